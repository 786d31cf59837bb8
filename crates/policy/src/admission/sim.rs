//! The queue on which controllers are tried: arrivals and service times are exponential, a few
//! servers share the queue, and a controller stands before it. The same seed gives the same run.

use std::collections::VecDeque;
use std::time::Duration;

use comporta_model::event::Time;
use comporta_model::plan::Choice;

use super::{Admission, Ask, Done, Look, Next, Open, Registry};

/// A stage, and what comes to it.
pub(super) struct Sim {
    pub(super) servers: usize,
    /// Mean service time.
    pub(super) service: Duration,
    pub(super) capacity: usize,
    /// Events that come; only what comes in the second half is counted.
    pub(super) events: usize,
    /// Tiers, each as frequent as the others.
    pub(super) tiers: u8,
    /// When an event must be done, after it came.
    pub(super) within: Option<Duration>,
    pub(super) seed: u64,
}

/// Two servers, a millisecond each, and room for a long queue.
pub(super) const SIM: Sim = Sim {
    servers: 2,
    service: Duration::from_millis(1),
    capacity: 10_000,
    events: 60_000,
    tiers: 1,
    within: None,
    seed: 7,
};

/// What came of it.
#[derive(Debug, Default)]
pub(super) struct Report {
    pub(super) offered: usize,
    /// Shed on entry and by a full queue.
    pub(super) at_door: usize,
    pub(super) later: usize,
    pub(super) handled: usize,
    /// Handled in time, of those that had a deadline.
    pub(super) in_time: usize,
    /// By tier: offered, handled.
    pub(super) by_tier: Vec<(usize, usize)>,
    /// Time while events came.
    span: f64,
    responses: Vec<f64>,
    pub(super) most_queued: usize,
    capacity_per_ns: f64,
}

impl Report {
    /// What was handled, as a share of what could have been.
    pub(super) fn goodput(&self) -> f64 {
        self.handled as f64 / (self.span * self.capacity_per_ns)
    }

    pub(super) fn shed(&self) -> f64 {
        (self.at_door + self.later) as f64 / self.offered as f64
    }

    /// A quantile of the response times of what was handled.
    pub(super) fn response(&self, quantile: f64) -> Duration {
        let at = (self.responses.len() as f64 * quantile) as usize;
        Duration::from_nanos(self.responses.get(at).copied().unwrap_or(0.0) as u64)
    }
}

/// The controller that a plan would get by these words.
pub(super) fn made(text: &str) -> Box<dyn Admission> {
    let choice: Choice = text.parse().unwrap();
    let registry = Registry::new();
    let entry = registry.find(&choice.name).unwrap();
    entry.make(&entry.offer.validate(&choice, "admission").unwrap())
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn exponential(&mut self, mean: f64) -> f64 {
        let unit = (self.next() >> 11) as f64 / (1_u64 << 53) as f64;
        -mean * (1.0 - unit).ln()
    }
}

#[derive(Clone, Copy)]
struct Event {
    came: f64,
    tier: u8,
    deadline: Option<Time>,
    counted: bool,
}

struct Busy {
    until: f64,
    service: f64,
    event: Event,
}

struct Run<'a> {
    sim: &'a Sim,
    gate: &'a mut dyn Admission,
    queue: VecDeque<Event>,
    busy: Vec<Busy>,
    random: Random,
    report: Report,
}

fn time(ns: f64) -> Time {
    Time::from_nanos(ns as u64)
}

impl Sim {
    /// Events come at `load` times what the servers can do.
    pub(super) fn run(&self, gate: &mut dyn Admission, load: f64) -> Report {
        self.phases(gate, &[(1.0, load)])
    }

    /// So much of the events at such a load, then so much at another.
    pub(super) fn phases(&self, gate: &mut dyn Admission, phases: &[(f64, f64)]) -> Report {
        let capacity_per_ns = self.servers as f64 / self.service.as_nanos() as f64;
        let report = Report {
            by_tier: vec![(0, 0); usize::from(self.tiers)],
            capacity_per_ns,
            ..Report::default()
        };
        let (queue, busy) = (VecDeque::new(), Vec::new());
        let random = Random(self.seed);
        let mut run = Run { sim: self, gate, queue, busy, random, report };
        let (mut now, mut began) = (0.0, 0.0);
        for event in 0..self.events {
            let mut part = event as f64 / self.events as f64;
            let load = phases.iter().find(|(share, _)| {
                part -= share;
                part < 0.0
            });
            let load = load.or(phases.last()).unwrap().1;
            now += run.random.exponential(1.0 / (capacity_per_ns * load));
            run.work_until(now);
            if event == self.events / 2 {
                began = now;
            }
            run.arrive(now, event >= self.events / 2);
        }
        run.report.span = now - began;
        run.work_until(f64::MAX);
        let mut report = run.report;
        assert_eq!(report.offered, report.at_door + report.later + report.handled);
        report.responses.sort_unstable_by(f64::total_cmp);
        report
    }
}

impl Run<'_> {
    fn arrive(&mut self, now: f64, counted: bool) {
        let tier = (self.random.next() % u64::from(self.sim.tiers)) as u8;
        let deadline = self.sim.within.map(|within| time(now) + within);
        let event = Event { came: now, tier, deadline, counted };
        let ask = Ask {
            now: time(now),
            n: 1,
            queued: self.queue.len(),
            in_flight: self.busy.len(),
            capacity: self.sim.capacity,
            instances: self.sim.servers,
            oldest: self.queue.front().map_or(Duration::ZERO, |oldest| age(now, oldest)),
            tier,
            deadline,
        };
        let enters = self.gate.admit(&ask) > 0 && self.queue.len() < self.sim.capacity;
        self.gate.entered(&ask, usize::from(enters));
        if counted {
            self.report.offered += 1;
            self.report.by_tier[usize::from(tier)].0 += 1;
            self.report.at_door += usize::from(!enters);
        }
        if enters {
            self.queue.push_back(event);
            self.report.most_queued = self.report.most_queued.max(self.queue.len());
            self.take(now);
        }
    }

    fn take(&mut self, now: f64) {
        while self.busy.len() < self.sim.servers
            && let Some(oldest) = self.queue.front()
        {
            let look = Look {
                now: time(now),
                n: 1,
                queued: self.queue.len(),
                age: age(now, oldest),
                tier: oldest.tier,
                deadline: oldest.deadline,
            };
            let taken = match self.gate.next(&look) {
                Next::Oldest => self.queue.pop_front(),
                Next::Newest => self.queue.pop_back(),
                Next::Shed(_) => {
                    let shed = self.queue.pop_front();
                    self.report.later += usize::from(shed.is_some_and(|event| event.counted));
                    continue;
                }
            };
            let service = self.random.exponential(self.sim.service.as_nanos() as f64);
            let event = taken.expect("the queue is not empty");
            self.busy.push(Busy { until: now + service, service, event });
        }
    }

    fn work_until(&mut self, now: f64) {
        while let Some(at) = (0..self.busy.len())
            .min_by(|a, b| self.busy[*a].until.total_cmp(&self.busy[*b].until))
            .filter(|at| self.busy[*at].until <= now)
        {
            let Busy { until, service, event } = self.busy.swap_remove(at);
            let response = until - event.came;
            self.gate.settled(&Done {
                now: time(until),
                n: 1,
                response: Duration::from_nanos(response as u64),
                service: Duration::from_nanos(service as u64),
            });
            if event.counted {
                self.report.handled += 1;
                self.report.by_tier[usize::from(event.tier)].1 += 1;
                self.report.responses.push(response);
                let in_time = event.deadline.is_some_and(|deadline| time(until) <= deadline);
                self.report.in_time += usize::from(in_time);
            }
            self.take(until);
        }
    }
}

fn age(now: f64, event: &Event) -> Duration {
    time(now).duration_since(time(event.came))
}

#[test]
fn without_a_controller_the_queue_is_the_one_of_the_books() {
    // Two servers at half load: the mean response time is the service time / (1 - 0.5²).
    let half = Sim { events: 400_000, ..SIM }.run(&mut Open, 0.5);
    let mean = half.responses.iter().sum::<f64>() / half.handled as f64;
    assert!((mean / 1_333_333.0 - 1.0).abs() < 0.02, "{mean}");
    assert_eq!(half.at_door + half.later, 0);
    // At three times the capacity it fills, and all wait for the whole of it.
    let thrice = SIM.run(&mut Open, 3.0);
    assert_eq!(thrice.most_queued, SIM.capacity);
    assert!(thrice.response(0.5) > Duration::from_secs(4), "{:?}", thrice.response(0.5));
}
