//! One run: a program of one stage and one worker, and a load that does not wait for it.
//!
//! The pacer has a thread of its own and spins on the clock: it hands each event over when it is
//! due, one by one, and never waits (`try_push`: what is refused comes back at once). So a machine
//! of two cores has one for the load and one for the stage, and 0.9 is 0.9: what the load costs
//! takes nothing from what serves it. One worker on larger machines as well: with several, almost
//! nobody waits at 0.7 load, and there would be no level to come back to.
//!
//! Arrivals are Poisson, service times exponential; both are drawn from the seed of the round, so
//! every controller of a round meets the same ones. A handler spins until the clock says so, for
//! then capacity is the same at every clock speed. It notes when it began and ended: there is no
//! stage after it, whose own queue would be measured as well. A visit takes one event.
//!
//! Invariant: times count from when an event was due, however late the pacer was.

use super::controllers::Controller;
use crate::stats::Dice;
use comporta::{App, Cx, Ev, Plan, Push, PushError, Result, Running, Stage, WhenFull};
use std::hint::spin_loop;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Places in the queue. Never taken but by `none`: what is measured is the controller.
pub(crate) const PLACES: usize = 100_000;
/// From the start of the program to the first event.
const LEAD_IN: Duration = Duration::from_millis(2);
/// Events in the program while capacity is measured.
const CLOSED: u64 = 64;

/// One stretch of an open load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Phase {
    pub(crate) per_second: f64,
    pub(crate) lasting: Duration,
}

/// An event that was handled, in nanoseconds since the start of the load.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Handled {
    pub(crate) due: u64,
    pub(crate) began: u64,
    pub(crate) ended: u64,
}

/// What came of a run.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) handled: Vec<Handled>,
    /// When each event was due.
    pub(crate) due: Vec<u64>,
    /// Not let in by the controller, or shed by it later.
    pub(crate) shed: u64,
    /// Found the queue full.
    pub(crate) full: u64,
    /// How late each event was handed over.
    pub(crate) late: Vec<u64>,
}

#[derive(Clone, Copy)]
struct Event {
    due: u64,
    service: u64,
}

/// What handlers have in common with who measures.
struct Watch {
    epoch: Instant,
    done: AtomicU64,
    handled: Mutex<Vec<Handled>>,
}

impl Watch {
    fn now(&self) -> u64 {
        // Zero until the load begins.
        Instant::now().saturating_duration_since(self.epoch).as_nanos() as u64
    }
}

struct Serve(Arc<Watch>);

impl Stage for Serve {
    type In = Event;
    type Ports = ();

    fn handle(&mut self, event: Ev<'_, Event>, (): &mut (), _: &Cx) -> Result {
        let began = self.0.now();
        let mut ended = began;
        while ended < began + event.service {
            spin_loop();
            ended = self.0.now();
        }
        self.0.done.fetch_add(1, Relaxed);
        // One worker: nobody else wants the lock before the end.
        if let Ok(mut handled) = self.0.handled.lock() {
            handled.push(Handled { due: event.due, began, ended });
        }
        Ok(())
    }
}

fn start(plan: &Plan) -> (Push<Event>, Running, Arc<Watch>) {
    let app = App::new("overload");
    let (push, input) = app.input::<Event>("input");
    let watch = Arc::new(Watch {
        epoch: Instant::now() + LEAD_IN,
        done: AtomicU64::new(0),
        handled: Mutex::new(Vec::with_capacity(1 << 17)),
    });
    let seen = watch.clone();
    let serve = app.stage_with("serve", move |_| Ok(Serve(seen.clone())));
    app.connect_local(input, serve);
    let running = app.start(plan).expect("one stage is a valid graph");
    (push, running, watch)
}

fn plan(controller: &Controller, mean: Duration, capacity: f64) -> Plan {
    Plan::new().threads(1).stage("serve", |stage| {
        stage
            .instances(1)
            .batch(1)
            .capacity(PLACES)
            .when_full(WhenFull::DropNewest)
            .admission(controller.choice(mean, capacity))
    })
}

/// Service times and gaps.
pub(crate) struct Chance(Dice);

impl Chance {
    pub(crate) fn new(seed: u64) -> Chance {
        Chance(Dice::new(seed))
    }

    /// Exponential, with mean 1.
    pub(crate) fn exponential(&mut self) -> f64 {
        let uniform = (self.0.next() >> 11) as f64 / (1u64 << 53) as f64;
        -(1.0 - uniform).ln()
    }

    fn service(&mut self, mean: Duration) -> u64 {
        (self.exponential() * mean.as_nanos() as f64) as u64
    }
}

/// Events a second that the stage handles while it always has some.
pub(crate) fn capacity(mean: Duration, lasting: Duration, seed: u64) -> f64 {
    let (push, running, watch) = start(&plan(&super::controllers::CONTROLLERS[0], mean, 0.0));
    let mut chance = Chance::new(seed);
    let mut pushed = 0;
    while watch.now() < lasting.as_nanos() as u64 {
        if pushed - watch.done.load(Relaxed) < CLOSED {
            let event = Event { due: watch.now(), service: chance.service(mean) };
            push.try_push(event).expect("fewer are inside than there are places");
            pushed += 1;
        } else {
            spin_loop();
        }
    }
    let _ = running.stop();
    let handled = watch.handled.lock().expect("handlers do not panic");
    let (Some(first), Some(last)) = (handled.first(), handled.last()) else { return f64::NAN };
    handled.len() as f64 * 1e9 / (last.ended - first.began) as f64
}

/// Runs the program under a controller and a load of some phases, and stops it at their end.
pub(crate) fn open(
    controller: &Controller,
    mean: Duration,
    capacity: f64,
    phases: &[Phase],
    seed: u64,
) -> Outcome {
    let (push, running, watch) = start(&plan(controller, mean, capacity));
    let doors = controller.doors(push, mean);
    let mut outcome = Outcome::default();
    let mut chance = Chance::new(seed);
    let mut begin = 0.0;
    for phase in phases {
        let end = begin + phase.lasting.as_nanos() as f64;
        let gap = 1e9 / phase.per_second;
        // Exponential gaps forget: a phase may begin its own.
        let mut due = begin + chance.exponential() * gap;
        while due < end {
            let event = Event { due: due as u64, service: chance.service(mean) };
            let mut now = watch.now();
            while now < event.due {
                spin_loop();
                now = watch.now();
            }
            outcome.late.push(now - event.due);
            let door = &doors[outcome.due.len() % doors.len()];
            outcome.due.push(event.due);
            match door.try_push(event) {
                Ok(()) => {}
                Err(PushError::Refused(..)) => outcome.shed += 1,
                Err(PushError::Full(_)) => outcome.full += 1,
                Err(other) => panic!("the stage takes events until the load ends: {other}"),
            }
            due += chance.exponential() * gap;
        }
        begin = end;
    }
    let summary = running.stop();
    let counts = summary.snapshot.stage("serve").expect("it is in the program").counts;
    outcome.shed += counts.shed_later();
    outcome.full += counts.shed_at_door();
    outcome.handled = std::mem::take(&mut watch.handled.lock().expect("handlers do not panic"));
    outcome
}
