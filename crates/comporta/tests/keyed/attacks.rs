//! Programs written to break what is promised of keys: each of these did, once.

use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use comporta::testing::TestRuntime;
use comporta::{App, Error, Ev, KeyedCx, KeyedStage, OnFailure, Plan, Result, WhenFull};

use crate::bounded::{BOUND, run};

pub(crate) fn eventually(mut is: impl FnMut() -> bool, what: &str) {
    let look = Duration::from_millis(1);
    for _ in 0..BOUND.as_millis() {
        if is() {
            return;
        }
        std::thread::park_timeout(look);
    }
    panic!("it never happened: {what}");
}

/// Counts the events of each key, and notes what it had counted at the end.
#[derive(Clone, Default)]
struct Tally {
    finished: Arc<Mutex<Vec<(u64, u64)>>>,
}

impl KeyedStage for Tally {
    type In = u64;
    type Key = u64;
    type State = u64;
    type Ports = ();

    fn key(&self, n: &u64) -> u64 {
        n % 10
    }

    fn handle(
        &mut self,
        seen: &mut u64,
        _: Ev<'_, u64>,
        _: &mut (),
        _: &KeyedCx<'_, u64>,
    ) -> Result {
        *seen += 1;
        Ok(())
    }

    fn finish(&mut self, seen: u64, _: &mut (), cx: &KeyedCx<'_, u64>) -> Result {
        self.finished.lock().unwrap().push((*cx.key(), seen));
        Ok(())
    }
}

/// An instance that went early finished every key of the stage, while the others were handling them.
#[test]
fn keys_outlive_the_instances_that_a_stage_gives_up() {
    let tally = Tally::default();
    let app = App::new("fewer");
    let (sender, numbers) = app.input::<u64>("numbers");
    app.connect(numbers, app.stage("tally", tally.clone()));
    let plan = Plan::new().stage("tally", |tally| tally.instances(4));
    let mut runtime = TestRuntime::new(app, &plan).unwrap();
    let send = |runtime: &mut TestRuntime| {
        (0..100).for_each(|n| sender.try_send(n).unwrap());
        runtime.run_until_idle();
    };
    send(&mut runtime);
    runtime.control().set_instances("tally", 1).unwrap();
    runtime.run_until_idle();
    assert_eq!(*tally.finished.lock().unwrap(), []);
    assert_eq!(runtime.control().key_state::<u64, u64>("tally", &3), Ok(Some(10)));
    send(&mut runtime);
    runtime.close();
    assert!(runtime.run());
    let mut finished = tally.finished.lock().unwrap().clone();
    finished.sort_unstable();
    assert_eq!(finished, (0..10).map(|key| (key, 20)).collect::<Vec<_>>());
}

/// A key that cannot be dropped.
#[derive(PartialEq, Eq, Hash)]
struct Sticky(u64);

impl Drop for Sticky {
    fn drop(&mut self) {
        panic!("the key {} cannot be dropped", self.0);
    }
}

/// Keys that cannot be dropped took the ends of the others with them, and, two together, the process.
#[test]
fn keys_whose_drop_panics_cost_no_other_its_end() {
    #[derive(Clone, Default)]
    struct Ends(Arc<AtomicUsize>);
    impl KeyedStage for Ends {
        type In = u64;
        type Key = Sticky;
        type State = u64;
        type Ports = ();
        fn key(&self, n: &u64) -> Sticky {
            Sticky(*n)
        }
        fn handle(
            &mut self,
            _: &mut u64,
            _: Ev<'_, u64>,
            _: &mut (),
            _: &KeyedCx<'_, Sticky>,
        ) -> Result {
            Ok(())
        }
        fn finish(&mut self, _: u64, _: &mut (), _: &KeyedCx<'_, Sticky>) -> Result {
            self.0.fetch_add(1, SeqCst);
            Ok(())
        }
    }
    let ends = Ends::default();
    let app = App::new("sticky");
    let numbers = app.source("numbers", || 0..100_u64);
    app.connect(numbers, app.stage("ends", ends.clone()));
    let _ = run(app, &Plan::new());
    assert_eq!(ends.0.load(SeqCst), 100);
}

/// A key that is counted while it lives.
#[derive(PartialEq, Eq, Hash)]
struct Counted(u64, Live);

#[derive(Clone)]
struct Live(Arc<AtomicUsize>);

impl PartialEq for Live {
    fn eq(&self, _: &Live) -> bool {
        true
    }
}

impl Eq for Live {}

impl std::hash::Hash for Live {
    fn hash<H: std::hash::Hasher>(&self, _: &mut H) {}
}

impl Counted {
    fn new(n: u64, live: &Live) -> Self {
        live.0.fetch_add(1, SeqCst);
        Counted(n, live.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.1.0.fetch_sub(1, SeqCst);
    }
}

/// The lane of an event is asked for before the queue decides whether there is room for it.
#[test]
fn events_that_find_no_room_leave_no_keys_behind() {
    for rule in [WhenFull::DropNewest, WhenFull::DropOldest, WhenFull::Reject] {
        let live = Live(Arc::default());
        let keys = live.clone();
        let app = App::new("full");
        let numbers = app.source("numbers", || 0..10_000_u64);
        let (_gate, idle) = app.input::<u64>("idle");
        let (open, closed) = mpsc::channel::<()>();
        let closed = Arc::new(Mutex::new(closed));
        let work = app.sink("work", move |n: u64| {
            if n == 0 {
                let _ = closed.lock().unwrap().recv_timeout(BOUND);
            }
        });
        let work = work.keyed(move |n| Counted::new(*n, &keys));
        app.connect(numbers, work);
        app.connect(idle, work);
        let plan = Plan::new().threads(2).stage("work", |work| work.capacity(4).when_full(rule));
        let running = app.start(&plan).unwrap();
        let work = || running.snapshot().stage("work").unwrap().clone();
        eventually(|| work().counts.offered == 10_000, "all are offered");
        drop(open);
        eventually(|| work().queued + work().in_flight == 0, "all that came are handled");
        eventually(|| live.0.load(SeqCst) == 0, "no key is left");
        let _ = running.stop();
    }
}

/// There was no room for the event that everything in the queue was waiting for.
#[test]
fn an_event_that_holds_its_key_is_replayed_into_a_queue_full_of_those_behind_it() {
    let bad = Arc::new(AtomicBool::new(true));
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (is_bad, into) = (bad.clone(), seen.clone());
    let app = App::new("held");
    let (sender, numbers) = app.input::<u64>("numbers");
    let work = app.sink("work", move |n: u64| -> Result {
        if n == 0 && is_bad.load(SeqCst) {
            return Err(Error::msg("bad"));
        }
        into.lock().unwrap().push(n);
        Ok(())
    });
    app.connect(numbers, work.retain().keyed(|_| 0));
    let held = Plan::new().stage("work", |work| work.capacity(4).on_failure(OnFailure::HoldKey));
    let mut runtime = TestRuntime::new(app, &held).unwrap();
    sender.try_send(0).unwrap();
    runtime.run_until_idle();
    (1..5).for_each(|n| sender.try_send(n).unwrap());
    assert!(sender.try_send(5).is_err(), "the queue is full");
    bad.store(false, SeqCst);
    assert_eq!(runtime.control().replay("work", 9), Ok(1));
    runtime.run_until_idle();
    assert_eq!(*seen.lock().unwrap(), [0, 1, 2, 3, 4]);
    assert!(runtime.snapshot().adds_up());
}

/// The controller judged the event that was next, and the oldest were shed in its place.
#[test]
fn an_admission_controller_sheds_the_event_it_was_shown() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let into = seen.clone();
    let app = App::new("late");
    let (sender, numbers) = app.input::<u64>("numbers");
    let (urgent, hurried) = app.input::<u64>("urgent");
    let work = app.sink("work", move |n: u64| -> Result {
        if n == 0 {
            return Err(Error::msg("it holds the even numbers"));
        }
        into.lock().unwrap().push(n);
        Ok(())
    });
    let work = work.keyed(|n| n % 2);
    app.connect(numbers, work);
    app.connect(hurried, work);
    let plan = Plan::new()
        .stage("urgent", |urgent| urgent.deadline(Duration::from_millis(10)))
        .stage("work", |work| work.on_failure(OnFailure::HoldKey).admission("deadline"));
    let mut runtime = TestRuntime::new(app, &plan).unwrap();
    for n in [0, 2, 4, 6, 8] {
        sender.try_send(n).unwrap();
        runtime.run_until_idle();
    }
    runtime.advance(Duration::from_millis(5));
    runtime.hold("work");
    urgent.try_send(1).unwrap();
    runtime.advance(Duration::from_millis(50)); // it is late
    runtime.resume("work");
    sender.try_send(3).unwrap();
    runtime.run_until_idle();
    assert_eq!(*seen.lock().unwrap(), [3]);
    runtime.control().take_failures::<u64>("work").unwrap();
    runtime.run_until_idle();
    assert_eq!(*seen.lock().unwrap(), [3, 2, 4, 6, 8]);
}

/// A state that takes its time to be copied.
#[derive(Default)]
struct Slow {
    gate: Option<Arc<(AtomicBool, Mutex<mpsc::Receiver<()>>)>>,
}

impl Clone for Slow {
    fn clone(&self) -> Self {
        if let Some(gate) = &self.gate {
            gate.0.store(true, SeqCst);
            let _ = gate.1.lock().unwrap().recv_timeout(BOUND);
        }
        Slow::default()
    }
}

/// The stage ended meanwhile, found no state, and the key had no end.
#[test]
fn a_state_that_is_being_copied_has_its_end_too() {
    #[derive(Clone, Default)]
    struct Ends(Arc<AtomicUsize>);
    impl KeyedStage for Ends {
        type In = u64;
        type Key = u64;
        type State = Slow;
        type Ports = ();
        fn key(&self, n: &u64) -> u64 {
            *n
        }
        fn handle(
            &mut self,
            _: &mut Slow,
            _: Ev<'_, u64>,
            _: &mut (),
            _: &KeyedCx<'_, u64>,
        ) -> Result {
            Ok(())
        }
        fn finish(&mut self, _: Slow, _: &mut (), _: &KeyedCx<'_, u64>) -> Result {
            self.0.fetch_add(1, SeqCst);
            Ok(())
        }
    }
    let ends = Ends::default();
    let app = App::new("copied");
    let (sender, numbers) = app.input::<u64>("numbers");
    app.connect(numbers, app.stage("ends", ends.clone()));
    let running = app.start(&Plan::new()).unwrap();
    sender.send(7).unwrap();
    let handled = || running.snapshot().stage("ends").unwrap().counts.handled;
    eventually(|| handled() == 1, "it is handled");
    let (open, closed) = mpsc::channel();
    let gate = Arc::new((AtomicBool::new(false), Mutex::new(closed)));
    let slow = Slow { gate: Some(gate.clone()) };
    running.control().set_key_state("ends", 7_u64, slow).unwrap();
    let control = running.control();
    let read = move || control.key_state::<u64, Slow>("ends", &7).unwrap();
    let reader = std::thread::Builder::new().name("reader".into()).spawn(read).unwrap();
    eventually(|| gate.0.load(SeqCst), "the state is being copied");
    drop(sender); // the last event has come
    let ended = || running.snapshot().stage("ends").unwrap().ended;
    (0..1_000).for_each(|_| assert!(!ended(), "the state is out"));
    drop(open);
    assert!(reader.join().unwrap().is_some());
    let _ = running.wait_for(BOUND).unwrap();
    assert_eq!(ends.0.load(SeqCst), 1);
}

/// Every event failed: nothing had given it a lane that its handler knew.
#[test]
fn keys_that_instances_could_not_share_are_refused() {
    let app = App::new("factory");
    let numbers = app.source("numbers", || 0..10_u64);
    app.connect(numbers, app.stage_with("tally", |_| Ok(Tally::default())));
    let refused = app.start(&Plan::new()).unwrap_err().to_string();
    assert!(refused.contains("made by a factory"), "{refused}");

    let app = App::new("twice");
    let numbers = app.source("numbers", || 0..10_u64);
    let tally = app.stage("tally", Tally::default());
    app.connect(numbers, tally.keyed(|n| n.to_string()));
    let refused = app.start(&Plan::new()).unwrap_err().to_string();
    assert!(refused.contains("keyed again"), "{refused}");
}

/// A handler seemed to take as long as the keys of its events, so that its visits were cut short, and moved to other
/// threads.
#[test]
#[expect(clippy::disallowed_methods, reason = "a key function that takes real time")]
fn the_time_that_keys_take_is_not_that_of_the_handler() {
    let app = App::new("slow keys");
    let numbers = app.source("numbers", || 0..4_000_u64);
    let keys_ns = Arc::new(AtomicU64::new(0));
    let spent = keys_ns.clone();
    let key = move |n: &u64| {
        let began = Instant::now();
        while began.elapsed() < Duration::from_micros(20) {
            std::hint::spin_loop();
        }
        spent.fetch_add(began.elapsed().as_nanos() as u64, SeqCst);
        n % 7
    };
    app.connect(numbers, app.keyed("sums", key, |sum: &mut u64, n: u64, (): &mut ()| *sum += n));
    let summary = run(app, &Plan::new().threads(1).every(|stage| stage.batch(4)));
    let busy = summary.snapshot.stage("sums").unwrap().busy.as_nanos() as u64;
    let keys_ns = keys_ns.load(SeqCst);
    assert!(busy * 3 < keys_ns, "busy for {busy} ns, and the keys took {keys_ns}");
}
