//! Overload control on the real runtime: what each method of the interface means, what each policy
//! does with it, changes while events flow, and policies that do harm if anything lets them.
//!
//! | file | what |
//! |---|---|
//! | `queues`, `pools`, `monitoring`, `scheduling`, `instances` | the methods, by group |
//! | `refused` | what is refused, and policies that fail |
//! | `sequences` | the order in which each policy visits stages |
//! | `threads` | every policy on threads, with handlers that fail |
//! | `pairs` | from every policy to every other while events flow |
//! | `attack` | policies that do silly things fast, and persons at the same time |
//! | `effect` | what each policy is chosen for |
//! | `elastic` | threads that follow the load of a stage |
//! | `alike` | the mock answers as the runtime does |
//! | `broken` | what attacks broke once |

mod queues;
mod pools;
mod monitoring;
mod scheduling;
mod instances;
mod refused;
mod sequences;
mod threads;
mod pairs;
mod attack;
mod effect;
mod elastic;
mod alike;
mod broken;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use comporta::policy::{
    Choice, Entry, Offer, Policy, PolicyControl, PoolId, Refused, StageId, TimerId,
};
use comporta::testing::TestRuntime;
use comporta::{App, Plan, Sender, Snapshot};

use crate::seen::stage;
pub(crate) use crate::stall::{STALLED, ended};

type Answer = Result<(), Refused>;
type Act = Arc<dyn Fn(&mut dyn PolicyControl) -> Answer + Send + Sync>;
type Order = Box<dyn FnOnce(&mut dyn PolicyControl) + Send>;

/// A policy made of closures.
#[derive(Clone)]
pub(crate) struct Made {
    start: Act,
    timer: Act,
    last_focused: Act,
    max_visits: Act,
}

impl Made {
    pub(crate) fn new(
        start: impl Fn(&mut dyn PolicyControl) -> Answer + Send + Sync + 'static,
    ) -> Self {
        let nothing: Act = Arc::new(|_| Ok(()));
        Made {
            start: Arc::new(start),
            timer: nothing.clone(),
            last_focused: nothing.clone(),
            max_visits: nothing,
        }
    }

    pub(crate) fn on_timer(
        mut self,
        act: impl Fn(&mut dyn PolicyControl) -> Answer + Send + Sync + 'static,
    ) -> Self {
        self.timer = Arc::new(act);
        self
    }

    pub(crate) fn on_last_focused(
        mut self,
        act: impl Fn(&mut dyn PolicyControl) -> Answer + Send + Sync + 'static,
    ) -> Self {
        self.last_focused = Arc::new(act);
        self
    }

    pub(crate) fn on_max_visits(
        mut self,
        act: impl Fn(&mut dyn PolicyControl) -> Answer + Send + Sync + 'static,
    ) -> Self {
        self.max_visits = Arc::new(act);
        self
    }

    /// Adds it to a program under a name.
    pub(crate) fn add(self, app: &App, name: &'static str) {
        let offer = Offer { name, aliases: &[], about: "", cites: "", params: &[] };
        app.register_policy(Entry::new(offer, move |_: &Choice| self.clone()));
    }
}

impl Policy for Made {
    fn start(&mut self, control: &mut dyn PolicyControl) -> Answer {
        (self.start)(control)
    }
    fn on_timer(&mut self, _: TimerId, control: &mut dyn PolicyControl) -> Answer {
        (self.timer)(control)
    }
    fn on_last_focused(&mut self, control: &mut dyn PolicyControl) -> Answer {
        (self.last_focused)(control)
    }
    fn on_max_visits(&mut self, control: &mut dyn PolicyControl) -> Answer {
        (self.max_visits)(control)
    }
}

/// The policy `puppet`: does what the test tells it, when it is told.
#[derive(Clone, Default)]
pub(crate) struct Puppet(Arc<Mutex<VecDeque<Order>>>);

/// How often a puppet looks whether it has been told something.
const LOOKS: Duration = Duration::from_millis(1);

impl Puppet {
    pub(crate) fn add(
        app: &App,
        start: impl Fn(&mut dyn PolicyControl) -> Answer + Send + Sync + 'static,
    ) -> Self {
        let puppet = Puppet::default();
        let orders = puppet.0.clone();
        let made = Made::new(move |control| {
            start(control)?;
            control.add_timer(LOOKS).map(drop)
        });
        let made = made.on_timer(move |control| {
            let next = orders.lock().unwrap().pop_front();
            next.into_iter().for_each(|order| order(control));
            Ok(())
        });
        made.add(app, "puppet");
        puppet
    }

    /// Lets the program come to rest, has the puppet do something, and lets it come to rest again.
    pub(crate) fn told<R: Send + 'static>(
        &self,
        runtime: &mut TestRuntime,
        order: impl FnOnce(&mut dyn PolicyControl) -> R + Send + 'static,
    ) -> R {
        let answer = Arc::new(Mutex::new(None));
        let into = answer.clone();
        let order = move |control: &mut dyn PolicyControl| {
            *into.lock().unwrap() = Some(order(control));
        };
        self.0.lock().unwrap().push_back(Box::new(order));
        runtime.advance(LOOKS);
        let answer = answer.lock().unwrap().take();
        answer.expect("the puppet's timer is due every millisecond")
    }
}

/// The stage of a cluster with this name.
pub(crate) fn id(control: &dyn PolicyControl, name: &str) -> StageId {
    let found = control.stages().iter().find(|stage| stage.name == name);
    found.unwrap_or_else(|| panic!("no stage `{name}`")).id
}

pub(crate) fn ids(control: &dyn PolicyControl, names: &[&str]) -> Vec<StageId> {
    names.iter().map(|name| id(control, name)).collect()
}

/// Every stage of the cluster that can be visited.
pub(crate) fn all(control: &dyn PolicyControl) -> Vec<StageId> {
    let visited =
        control.stages().iter().filter(|stage| stage.kind != comporta::policy::Kind::Input);
    visited.map(|stage| stage.id).collect()
}

/// What handlers did, in order: the stage and the event, such as `a0 b0 a1`.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    pub(crate) fn note(&self, stage: &str, event: impl std::fmt::Display) {
        self.0.lock().unwrap().push(format!("{stage}{event}"));
    }

    pub(crate) fn take(&self) -> String {
        std::mem::take(&mut *self.0.lock().unwrap()).join(" ")
    }
}

/// A stage that logs its events and passes them on.
pub(crate) fn logs(
    log: &Log,
    name: &'static str,
) -> impl Fn(u64) -> u64 + Clone + Send + Sync + 'static {
    let log = log.clone();
    move |n| {
        log.note(name, n);
        n
    }
}

/// `in` -> `a` -> `b` -> `c`, on one thread under the puppet, an event for each visit.
pub(crate) struct Chain {
    pub(crate) runtime: TestRuntime,
    pub(crate) sender: Sender<u64>,
    pub(crate) log: Log,
    pub(crate) puppet: Puppet,
}

impl Chain {
    pub(crate) fn new(
        start: impl Fn(&mut dyn PolicyControl) -> Answer + Send + Sync + 'static,
    ) -> Self {
        Chain::planned(|plan| plan, start)
    }

    pub(crate) fn planned(
        plan: impl FnOnce(Plan) -> Plan,
        start: impl Fn(&mut dyn PolicyControl) -> Answer + Send + Sync + 'static,
    ) -> Self {
        let app = App::new("chain");
        let puppet = Puppet::add(&app, start);
        let log = Log::default();
        let (sender, port) = app.input("in");
        let a = app.map("a", logs(&log, "a"));
        let b = app.map("b", logs(&log, "b"));
        let c = app.map("c", logs(&log, "c"));
        app.connect(port, a);
        app.connect(a, b);
        app.connect(b, c);
        let base = Plan::new().threads(1).policy("puppet").every(|s| s.batch(1));
        let runtime = TestRuntime::new(app, &plan(base)).unwrap();
        Chain { runtime, sender, log, puppet }
    }

    pub(crate) fn push(&self, events: std::ops::Range<u64>) {
        events.for_each(|n| self.sender.send(n).unwrap());
    }

    /// What was handled since the last call, once everything has come to rest.
    pub(crate) fn ran(&mut self) -> String {
        self.runtime.run_until_idle();
        self.log.take()
    }

    pub(crate) fn told<R: Send + 'static>(
        &mut self,
        order: impl FnOnce(&mut dyn PolicyControl) -> R + Send + 'static,
    ) -> R {
        self.puppet.told(&mut self.runtime, order)
    }

    /// Everything is let go, comes to its end, and adds up.
    pub(crate) fn ends(mut self) {
        for name in ["a", "b", "c"] {
            self.runtime.resume(name);
        }
        drop(self.sender);
        assert!(self.runtime.run(), "stalled:\n{}", self.runtime.snapshot());
        assert!(self.runtime.snapshot().adds_up(), "{}", self.runtime.snapshot());
        assert!(self.runtime.problems().is_empty(), "{:?}", self.runtime.problems());
    }
}

/// Everything of a snapshot that a call could change, but time and what the handlers did.
pub(crate) fn settings(snapshot: &Snapshot) -> String {
    let stages = snapshot.stages.iter();
    let stages = stages.map(|s| (&s.name, s.capacity, s.instances, s.priority));
    let pools =
        snapshot.pools.iter().map(|p| (&p.name, &p.cluster, p.threads, p.policy.to_string()));
    format!("{:?} {:?}", stages.collect::<Vec<_>>(), pools.collect::<Vec<_>>())
}

/// The threads of the main pool and of others, as the program shows them.
pub(crate) fn threads_of(runtime: &TestRuntime) -> Vec<usize> {
    runtime.snapshot().pools.iter().map(|pool| pool.threads).collect()
}

pub(crate) fn threads(control: &dyn PolicyControl, pool: PoolId) -> usize {
    control.threads(pool).unwrap()
}

/// The one instance of a stage that handled, by name.
pub(crate) fn handled(snapshot: &Snapshot, name: &str) -> u64 {
    stage(snapshot, name).counts.handled
}
