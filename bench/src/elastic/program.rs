//! The simulator of the dissertation: a producer that writes messages of accounts, and a consumer that handles those of
//! an account in order. On virtual time, or on threads of the machine.

use comporta::testing::{Dice, ServiceTime, TestRuntime};
use comporta::{App, Choice, Demand, Out, Plan, Pull, Result, Snapshot, Source, StageSet, Time};
use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

/// What decides on the threads of the consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Controller {
    /// Nobody: it has one.
    None,
    Elastic,
    Ds2,
}

impl Controller {
    pub(super) const ALL: [Controller; 3] =
        [Controller::None, Controller::Elastic, Controller::Ds2];

    pub(super) fn name(self) -> &'static str {
        match self {
            Controller::None => "none",
            Controller::Elastic => "elastic",
            Controller::Ds2 => "ds2",
        }
    }

    fn choice(self, cpu_max: f64) -> Option<Choice> {
        let choice = |name| Choice::new(name).with("cpu_max", cpu_max);
        match self {
            Controller::None => None,
            other => Some(choice(other.name())),
        }
    }
}

/// When messages come.
#[derive(Clone, Copy, Debug)]
pub(super) enum Gaps {
    Fixed(Duration),
    /// By chance, with this mean.
    Exponential(Duration),
    /// The same, with another mean from this moment on.
    Shifting(Duration, Duration, Duration),
}

/// Of which accounts they are.
#[derive(Clone, Copy, Debug)]
pub(super) enum Accounts {
    /// Of so many, one after the other.
    InTurn(u32),
    /// Nine of ten of so many, one after the other; the others of 1,000 more.
    Hot(u32),
    /// Of so many, by chance.
    AtRandom(u32),
}

/// How long a message takes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Takes {
    Waiting(Duration),
    Busy(Duration),
    /// By chance, with this mean; waiting.
    Exponential(Duration),
}

/// What a run is given.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    pub(super) gaps: Gaps,
    pub(super) accounts: Accounts,
    pub(super) takes: Takes,
    pub(super) seconds: u64,
    pub(super) cpus: usize,
    /// CPU that others use, and that threads must not exceed, in percent.
    pub(super) others: u32,
    pub(super) cpu_max: f64,
    pub(super) seed: u64,
}

impl Load {
    /// A message every `gap`, which takes 50 ms, for five minutes.
    pub(super) fn every(gap: Duration) -> Self {
        Load {
            gaps: Gaps::Fixed(gap),
            accounts: Accounts::InTurn(100),
            takes: Takes::Waiting(TAKES),
            seconds: FIVE_MINUTES,
            cpus: CPUS,
            others: 0,
            cpu_max: 100.0,
            seed: 1,
        }
    }
}

/// The time that a message took, and how long the demonstrations were.
pub(super) const TAKES: Duration = Duration::from_millis(50);
const FIVE_MINUTES: u64 = 300;
/// The machine of the demonstrations had four cores.
const CPUS: usize = 4;

/// What was seen at the end of a second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Second {
    pub(super) queue: usize,
    pub(super) threads: usize,
    pub(super) arrived: u64,
    pub(super) handled: u64,
}

impl Second {
    fn of(snapshot: &Snapshot) -> Self {
        let stage = snapshot.stage("consumer").expect("the program has a consumer");
        let own = |stages: &[String]| stages.iter().any(|name| name == "consumer");
        let pool = snapshot.pools.iter().find(|pool| own(&pool.stages));
        Second {
            queue: stage.queued,
            threads: pool.map_or(0, |pool| pool.threads),
            arrived: stage.counts.arrived,
            handled: stage.counts.handled,
        }
    }
}

/// What was seen, second by second, the first after one.
#[derive(Debug)]
pub(super) struct Series {
    pub(super) seconds: Vec<Second>,
    /// What the controller decided, and why.
    pub(super) decisions: Vec<String>,
    /// How long the run took the machine.
    pub(super) wall: Duration,
}

impl Series {
    pub(super) fn last(&self) -> Second {
        self.seconds.last().copied().unwrap_or_default()
    }

    /// At which seconds the threads changed, and to how many.
    pub(super) fn changes(&self) -> Vec<(u64, usize)> {
        let threads = std::iter::once(1).chain(self.seconds.iter().map(|second| second.threads));
        let pairs = threads.clone().zip(threads.skip(1)).zip(1..);
        pairs.filter(|((before, now), _)| before != now).map(|((_, now), at)| (at, now)).collect()
    }

    pub(super) fn threads_peak(&self) -> usize {
        self.seconds.iter().map(|second| second.threads).max().unwrap_or_default()
    }

    pub(super) fn queue_peak(&self) -> usize {
        self.seconds.iter().map(|second| second.queue).max().unwrap_or_default()
    }

    pub(super) fn queue_mean(&self) -> f64 {
        let sum: usize = self.seconds.iter().map(|second| second.queue).sum();
        sum as f64 / self.seconds.len().max(1) as f64
    }
}

/// Runs a load under a controller, on virtual time.
pub(super) fn run(controller: Controller, load: &Load) -> Series {
    let began = Instant::now();
    let app = App::new("elastic");
    let producer = Producer::new(*load);
    let messages = app.source("producer", move || producer);
    let consumer = app.sink("consumer", |_: Message| ()).keyed(|(account, _)| *account);
    app.connect(messages, consumer);
    let runtime = TestRuntime::new(app, &plan(controller, load)).expect("a valid plan");
    let mut runtime = runtime.seeded(load.seed);
    runtime.set_cpus(NonZeroUsize::new(load.cpus).expect("processors"));
    runtime.set_cpu_usage(load.others);
    runtime.service_time(
        "consumer",
        match load.takes {
            Takes::Waiting(time) => ServiceTime::waiting(time),
            Takes::Busy(time) => ServiceTime::busy(time),
            Takes::Exponential(mean) => {
                ServiceTime::waiting_with(move |dice| dice.exponential(mean))
            }
        },
    );
    let mut seconds = Vec::new();
    for _ in 0..load.seconds {
        runtime.advance(Duration::from_secs(1));
        let snapshot = runtime.snapshot();
        assert!(snapshot.stages.iter().all(|stage| stage.adds_up()), "{snapshot}");
        seconds.push(Second::of(&snapshot));
    }
    let decisions = runtime.control().decisions("consumers").unwrap_or_default();
    let decisions = decisions.iter().map(ToString::to_string).collect();
    Series { seconds, decisions, wall: began.elapsed() }
}

/// Runs a load under a controller, on threads that sleep.
pub(super) fn run_on_threads(controller: Controller, load: &Load) -> Series {
    let began = Instant::now();
    let app = App::new("elastic");
    let producer = Producer::new(*load);
    let messages = app.source("producer", move || producer);
    let consumer = app.sink("consumer", |_: Message| std::thread::sleep(TAKES));
    app.connect(messages, consumer.keyed(|(account, _)| *account));
    let running = app.start(&plan(controller, load)).expect("a valid plan");
    let mut seconds = Vec::new();
    for second in 1..=load.seconds {
        let at = began + Duration::from_secs(second);
        std::thread::sleep(at.saturating_duration_since(Instant::now()));
        seconds.push(Second::of(&running.snapshot()));
    }
    let decisions = running.control().decisions("consumers").unwrap_or_default();
    let decisions = decisions.iter().map(ToString::to_string).collect();
    drop(running.stop());
    Series { seconds, decisions, wall: began.elapsed() }
}

fn plan(controller: Controller, load: &Load) -> Plan {
    let plan = Plan::new().threads(1).cluster("consumers", |cluster| {
        let cluster = cluster.stages(StageSet::of(["consumer"])).threads(1);
        match controller.choice(load.cpu_max) {
            None => cluster,
            Some(choice) => cluster.policy(choice),
        }
    });
    plan.stage("consumer", |consumer| consumer.capacity(QUEUE_MAX))
}

/// More than ever comes.
const QUEUE_MAX: usize = 1_000_000;

/// A message: its account, and its number.
pub(super) type Message = (u32, u64);

/// Sends a message whenever one is due.
struct Producer {
    load: Load,
    dice: Dice,
    due: Option<Time>,
    /// The gaps so far.
    passed: Duration,
    sent: u64,
}

impl Producer {
    fn new(load: Load) -> Self {
        Producer { load, dice: Dice::new(load.seed), due: None, passed: Duration::ZERO, sent: 0 }
    }

    fn account(&mut self) -> u32 {
        let turn = |of: u32, n: u64| (n % u64::from(of)) as u32;
        match self.load.accounts {
            Accounts::InTurn(of) => turn(of, self.sent),
            Accounts::AtRandom(of) => self.dice.below(of as usize) as u32,
            Accounts::Hot(hot) if self.sent % 10 == 9 => hot + self.dice.below(1_000) as u32,
            Accounts::Hot(hot) => turn(hot, self.sent),
        }
    }

    fn gap(&mut self) -> Duration {
        match self.load.gaps {
            Gaps::Fixed(gap) => gap,
            Gaps::Exponential(mean) => self.dice.exponential(mean),
            Gaps::Shifting(mean, then, at) => {
                let mean = if self.passed < at { mean } else { then };
                let gap = self.dice.exponential(mean);
                self.passed += gap;
                gap
            }
        }
    }
}

impl Source for Producer {
    type Item = Message;

    fn pull(&mut self, out: &mut Out<Message>, demand: Demand) -> Result<Pull> {
        let mut due = self.due.unwrap_or(demand.now);
        for _ in 0..demand.events {
            if due > demand.now {
                self.due = Some(due);
                return Ok(Pull::After(due.duration_since(demand.now)));
            }
            out.send((self.account(), self.sent));
            self.sent += 1;
            due = due + self.gap();
        }
        self.due = Some(due);
        Ok(Pull::More)
    }
}
