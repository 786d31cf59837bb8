//! Handlers that take virtual time: what they hold meanwhile, when they end, and what others see of it.
//!
//! | file | what |
//! |---|---|
//! | `queues` | queues computed by hand: one server, many, keys, batches |
//! | `machine` | what the runtime around them does: trays, stand-ins, threads that come and go, CPU |
//! | `ends` | failures, the end of a program, and threads that are left |

#![allow(clippy::unwrap_used, reason = "a test that unwraps in vain has failed")]

mod queues;
mod machine;
mod ends;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use comporta::testing::{ServiceTime, TestRuntime};
use comporta::{App, Cx, Ev, Plan, Result, Sender, Stage};

/// An event: its key, and its number.
type Event = (u64, u64);

/// What was handled, and when, in microseconds.
type Log = Arc<Mutex<Vec<(u64, Event)>>>;

/// Notes what it handles.
#[derive(Clone, Default)]
struct Noting(Log);
impl Stage for Noting {
    type In = Event;
    type Ports = ();
    fn handle(&mut self, event: Ev<'_, Event>, (): &mut (), cx: &Cx) -> Result {
        self.0.lock().unwrap().push((cx.now().as_nanos() / 1_000, *event));
        Ok(())
    }
}

/// A program of one stage, `work`, which notes what it handles.
struct Bench {
    sender: Sender<Event>,
    runtime: TestRuntime,
    log: Log,
}

impl Bench {
    fn new(threads: usize, keyed: bool, time: ServiceTime) -> Self {
        Bench::under(threads, keyed, time, |plan| plan)
    }

    fn under(
        threads: usize,
        keyed: bool,
        time: ServiceTime,
        plan: impl FnOnce(Plan) -> Plan,
    ) -> Self {
        let app = App::new("timed");
        let (sender, input) = app.input::<Event>("in");
        let noting = Noting::default();
        let log = noting.0.clone();
        let work = app.stage("work", noting);
        let work = if keyed { work.keyed(|(key, _)| *key) } else { work };
        app.connect(input, work);
        let instances = threads;
        let base = Plan::new().threads(threads);
        let base = base.stage("work", |work| work.instances(instances).capacity(100_000));
        let mut runtime = TestRuntime::new(app, &plan(base)).unwrap();
        runtime.service_time("work", time);
        Bench { sender, runtime, log }
    }

    fn send(&self, events: impl IntoIterator<Item = Event>) {
        events.into_iter().for_each(|event| self.sender.try_send(event).unwrap());
    }

    fn handled(&self) -> usize {
        self.log.lock().unwrap().len()
    }

    /// When events were handled, in milliseconds.
    fn times_ms(&self) -> Vec<u64> {
        self.log.lock().unwrap().iter().map(|(us, _)| us / 1_000).collect()
    }
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn us(us: u64) -> Duration {
    Duration::from_micros(us)
}
