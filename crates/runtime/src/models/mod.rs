//! Models: the protocols of the runtime, explored by shuttle.
//!
//! ```text
//! RUSTFLAGS="--cfg shuttle" CARGO_TARGET_DIR=target/shuttle cargo test -p comporta-runtime --lib models
//! COMPORTA_SCHEDULES=20000 ...    # schedules per model and scheduler, instead of 150
//! ```
//!
//! **What is explored.** The very code that runs: under `--cfg shuttle` the module `sync` gives
//! shuttle's locks, atomics and threads instead of std's (and `comporta-model` its `AckGroup`), so
//! a model is a small program started with `Running::start`, its workers in `Worker::run` with
//! their real queues, permits, parking and stealing. Shuttle runs each model under many schedules:
//! at random, and by PCT with three changes of priority, which finds a fault that needs a few
//! preemptions at the right places. A schedule in which every thread waits is a failure (a lost
//! wake-up), and so is one that does not end (a livelock). Every model ends with the books: all
//! stages ended, every event accounted for, none failed. A failing schedule is printed and can be
//! replayed with `shuttle::replay`.
//! Constants shrink (`LOOKS`, `SHARED_EVERY`, `FOLLOW_MAX`, the spins of a pause), so that paths
//! that are rare in production are common here.
//!
//! **What is not explored.** Weak memory: shuttle interleaves sequentially consistent steps, so a
//! missing fence or too weak an ordering is not seen; the one place that depends on such an order,
//! `sleep`, uses sequentially consistent operations and fences throughout. Time: the clock is virtual and stands
//! still unless a model moves it, and what the clock thread does is called by models (`stuck`); real
//! deadlines and stand-ins are left to the integration tests. Counts of `Arc`s, `OnceLock`s (set before threads
//! start) and the panic hook are std's. And a schedule is a sample: silence is no proof.
//!
//! | rule of the design | model |
//! |---|---|
//! | instance, block, room, n instances | `queue` |
//! | cycles | `cycle` |
//! | park, and yields between visits | `park` |
//! | pools: clusters that stages move between, with their tokens | `pools` |
//! | policies: visit orders, pools made and given up, threads that move, colors | `policy_host` |
//! | order | `ordered` |
//! | events in flight | `flight` |
//! | senders | `sender` |
//! | a request's slot: reply, deadline, stop, a client that goes | `gateway` |
//! | the end of streams, acknowledgement, a stop at any moment | `end` |
//! | visits that take long, and the clock that looks after them | `stuck` |

#![expect(
    clippy::unwrap_used,
    reason = "all of it is tests, which clippy sees only under a plain `cfg(test)`"
)]

mod queue;
mod cycle;
mod park;
mod pools;
mod policy_host;
mod ordered;
mod flight;
mod sender;
mod gateway;
mod end;
mod stuck;

use std::sync::{Arc, Mutex};

use comporta_model::plan::Plan;
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::sync::atomic::{AtomicBool, Ordering::SeqCst};
use shuttle::{Config, MaxSteps, Runner, thread};

use crate::app::App;
use crate::core::Core;
use crate::env::Clock;
use crate::running::{Ended, Running, Summary};

/// Runs a model under many schedules.
fn explore(model: fn()) {
    let schedules = std::env::var("COMPORTA_SCHEDULES").ok().and_then(|n| n.parse().ok());
    let schedules = schedules.unwrap_or(150);
    let mut config = Config::new();
    config.stack_size = 1 << 17; // unoptimised frames of the data path
    config.max_steps = MaxSteps::FailAfter(100_000);
    Runner::new(RandomScheduler::new(schedules), config.clone()).run(model);
    Runner::new(PctScheduler::new(3, schedules), config).run(model);
}

/// A program on virtual time, with real workers.
fn start(app: App, plan: &Plan) -> (Running, Arc<Core>) {
    let core = app.build(plan, Clock::virtual_at_zero(), false).unwrap();
    (Running::start(core.clone()).unwrap(), core)
}

/// Runs a program to its end and checks the books.
fn run(app: App, plan: &Plan) {
    let _ = summary(app, plan);
}

/// As [`run`], and gives the books.
fn summary(app: App, plan: &Plan) -> Summary {
    let summary = start(app, plan).0.wait();
    check(&summary);
    summary
}

/// The program ended, every event is accounted for, and none failed.
fn check(summary: &Summary) {
    assert_eq!(summary.ended, Ended::Complete);
    assert!(summary.snapshot.adds_up(), "{summary}");
    assert!(summary.problems.is_empty(), "{summary}");
    for stage in &summary.snapshot.stages {
        let held = stage.queued + stage.in_flight + stage.outboxed;
        assert!(stage.ended && held == 0, "{summary}");
        assert_eq!((stage.counts.failed, stage.counts.cancelled), (0, 0), "{summary}");
    }
}

/// What a stage handled.
fn handled(summary: &Summary, stage: &str) -> u64 {
    let found = summary.snapshot.stages.iter().find(|s| s.name == stage);
    found.map(|s| s.counts.handled).unwrap()
}

/// What handlers have seen, in order. The lock is std's: looking is no step of its own.
struct Seen<T>(Arc<Mutex<Vec<T>>>);

impl<T> Clone for Seen<T> {
    fn clone(&self) -> Self {
        Seen(self.0.clone())
    }
}

impl<T> Seen<T> {
    fn new() -> Self {
        Seen(Arc::default())
    }

    fn see(&self, event: T) {
        self.0.lock().unwrap().push(event);
    }

    fn all(&self) -> Vec<T>
    where
        T: Clone,
    {
        self.0.lock().unwrap().clone()
    }
}

/// Only one thread may be within; the others get a chance to try.
#[derive(Clone, Default)]
struct Alone(Arc<AtomicBool>);

impl Alone {
    fn pass(&self) {
        assert!(!self.0.swap(true, SeqCst), "two at once");
        thread::yield_now();
        self.0.store(false, SeqCst);
    }
}

/// Source, a stage, end; the handlers of `end` must not overlap.
fn chain(seen: &Seen<u32>, events: u32) -> App {
    let app = App::new("chain");
    let (see, alone) = (seen.clone(), Alone::default());
    let source = app.source("source", move || 0..events);
    let a = app.map("a", |n: u32| n);
    let end = app.sink("end", move |n: u32| {
        alone.pass();
        see.see(n);
    });
    app.connect(source, a);
    app.connect(a, end);
    app
}

/// A count that can be waited for.
#[derive(Clone, Default)]
struct Count(Arc<(shuttle::sync::Mutex<usize>, shuttle::sync::Condvar)>);

impl Count {
    fn add(&self) {
        *self.0.0.lock().unwrap() += 1;
        self.0.1.notify_all();
    }

    fn wait_for(&self, n: usize) {
        let mut count = self.0.0.lock().unwrap();
        while *count < n {
            count = self.0.1.wait(count).unwrap();
        }
    }
}

/// Runs a program to its end and checks the books, while another thread does `tick` again and again.
fn run_beside(app: App, plan: &Plan, tick: impl Fn(&Core) + Send + 'static) {
    let (running, core) = start(app, plan);
    let ended = Arc::new(AtomicBool::new(false));
    let over = ended.clone();
    let clock = thread::spawn(move || {
        while !over.load(SeqCst) {
            tick(&core);
            thread::yield_now();
        }
    });
    let summary = running.wait();
    ended.store(true, SeqCst);
    clock.join().unwrap();
    check(&summary);
}

/// Lets so many steps of others pass, at most, without giving way as `yield_now` would.
fn dawdle(steps: usize) {
    let step = AtomicBool::new(false);
    for _ in 0..steps {
        let _ = step.load(SeqCst);
    }
}

/// The events of each producer, `base..base + n`, are all there and in the order sent.
fn in_order(seen: &[u32], producers: &[u32], n: u32) {
    assert_eq!(seen.len(), producers.len() * n as usize, "{seen:?}");
    for base in producers {
        let own = seen.iter().copied().filter(|e| (*base..*base + n).contains(e));
        assert!(own.eq(*base..*base + n), "{seen:?}");
    }
}
