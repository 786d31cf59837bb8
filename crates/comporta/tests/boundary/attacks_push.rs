//! What an attack found in pushes from outside: one that says yes has its event in every queue it
//! goes to, one that cannot be served any more comes back, and none leaves anything behind in a queue.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread::JoinHandle;

use comporta::policy::admission::{Admission, Ask, Entry};
use comporta::policy::{Choice, Offer};
use comporta::testing::TestRuntime;
use comporta::{
    App, Cx, Ended, Ev, Plan, Result, Running, SendError, Sender, Shed, Stage, WhenFull,
};

use crate::attacks::with_threads;
use crate::bounded::{Gate, Way, ends, handled, stage, thread, until, watched, within};

type Pushed = std::result::Result<(), SendError<u64>>;

/// One event is being handled, by a handler at a gate, and one waits in the only place there is.
fn fill(running: &Running, sender: &Sender<u64>, stages: &[&str]) {
    sender.send(0).unwrap();
    until("the first is being handled", || {
        let snapshot = running.snapshot();
        stages.iter().all(|name| stage(&snapshot, name).in_flight == 1)
    });
    sender.send(1).unwrap();
}

/// Pushes one more on a thread of its own, and waits until it waits for room or was answered.
fn one_more(running: &Running, sender: &Sender<u64>) -> JoinHandle<Pushed> {
    let sender = sender.clone();
    let pushes = thread(move || sender.send(2));
    until("one more waits or is answered", || {
        let waits = running.snapshot().stages.iter().any(|stage| stage.outboxed > 0);
        waits || pushes.is_finished()
    });
    pushes
}

fn answer(pushes: JoinHandle<Pushed>) -> Pushed {
    within("a push", move || pushes.join().unwrap())
}

#[test]
fn a_push_that_waited_for_room_and_says_yes_was_not_shed_by_the_controller() {
    with_threads(|plan, label| {
        let gate = Gate::default();
        let way = gate.way();
        let app = App::new("tokens");
        let (sender, port) = app.input::<u64>("in");
        app.connect(port, app.sink("work", move |_: u64| way.pass()));
        let three = Choice::new("token-bucket").with("burst", 3).with("rate", 0.001);
        let running = app.start(&plan.stage("work", |s| s.capacity(1).admission(three))).unwrap();
        fill(&running, &sender, &["work"]);
        let pushes = one_more(&running, &sender);
        gate.open();
        assert_eq!(answer(pushes), Ok(()), "{label}: the third of three tokens");
        drop(sender);
        let summary = ends(label, running);
        let counts = stage(&summary.snapshot, "work").counts;
        let fates = (counts.handled, counts.shed(Shed::TokenBucket));
        assert_eq!(fates, (3, 0), "{label}: handled, shed\n{summary}");
    });
}

/// Lets everybody in, and counts those who came in.
struct Counting(Arc<AtomicUsize>);

impl Admission for Counting {
    fn admit(&mut self, ask: &Ask) -> usize {
        ask.n
    }
    fn entered(&mut self, _: &Ask, n: usize) {
        self.0.fetch_add(n, SeqCst);
    }
}

#[test]
fn a_controller_is_told_of_those_who_entered_and_of_no_others() {
    watched("told", || {
        let told = Arc::<AtomicUsize>::default();
        let counts = told.clone();
        let app = App::new("told");
        let offer = Offer { name: "counting", aliases: &[], about: "", cites: "", params: &[] };
        app.register_admission(Entry::new(offer, move |_| Counting(counts.clone())));
        let (sender, port) = app.input::<u64>("in");
        app.connect(port, app.sink("work", |_: u64| ()));
        let plan = Plan::new().stage("work", |s| s.capacity(1).admission("counting"));
        let mut runtime = TestRuntime::new(app, &plan).unwrap();
        runtime.hold("work");
        sender.try_send(0).unwrap();
        (0..10).for_each(|n| assert_eq!(sender.try_send(n), Err(SendError::Full(n))));
        assert_eq!(told.load(SeqCst), 1, "while the queue is full");
        runtime.resume("work");
        drop(sender);
        assert!(runtime.run());
        let arrived = stage(&runtime.snapshot(), "work").counts.arrived;
        assert_eq!((told.load(SeqCst), arrived), (1, 1), "told, arrived");
    });
}

#[test]
fn a_queue_that_rejects_gives_an_event_back_also_while_another_has_it_wait() {
    with_threads(|plan, label| {
        let gate = Gate::default();
        let app = App::new("both");
        let (sender, port) = app.input::<u64>("in");
        for name in ["blocks", "rejects"] {
            let way = gate.way();
            app.connect(port, app.sink(name, move |_: u64| way.pass()));
        }
        let plan =
            plan.every(|s| s.capacity(1)).stage("rejects", |s| s.when_full(WhenFull::Reject));
        let running = app.start(&plan).unwrap();
        fill(&running, &sender, &["blocks", "rejects"]);
        let pushes = one_more(&running, &sender);
        gate.open();
        assert_eq!(answer(pushes), Err(SendError::Full(2)), "{label}");
        drop(sender);
        let summary = ends(label, running);
        assert!(summary.snapshot.adds_up(), "{label}\n{summary}");
        let [blocks, rejects] =
            ["blocks", "rejects"].map(|name| stage(&summary.snapshot, name).counts.handled);
        assert_eq!((blocks, rejects), (2, 2), "{label}: each event to both\n{summary}");
    });
}

/// Waits at a gate, and quits.
#[derive(Clone)]
struct Quits(Way);

impl Stage for Quits {
    type In = u64;
    type Ports = ();
    fn handle(&mut self, _: Ev<'_, u64>, _: &mut (), cx: &Cx) -> Result {
        self.0.pass();
        cx.quit(7_u32);
        Ok(())
    }
}

#[test]
fn a_quit_sends_away_those_who_wait_to_push_before_anybody_waits_for_the_end() {
    with_threads(|plan, label| {
        let gate = Gate::default();
        let app = App::new("quit");
        let (sender, port) = app.input::<u64>("in");
        app.connect(port, app.stage("quits", Quits(gate.way())));
        let running = app.start(&plan.stage("quits", |s| s.capacity(1))).unwrap();
        fill(&running, &sender, &["quits"]);
        let pushes = one_more(&running, &sender);
        gate.open();
        until("the end", || running.is_ended());
        assert_eq!(answer(pushes), Err(SendError::Cancelled), "{label}");
        let summary = ends(label, running);
        assert!(summary.snapshot.adds_up(), "{label}\n{summary}");
        assert_eq!(summary.ended, Ended::Quit, "{label}");
    });
}

#[test]
fn after_a_quit_the_input_is_closed_before_anybody_waits_for_the_end() {
    with_threads(|plan, label| {
        let gate = Gate::default();
        gate.open();
        let app = App::new("quit");
        let (sender, port) = app.input::<u64>("in");
        app.connect(port, app.stage("quits", Quits(gate.way())));
        let running = app.start(&plan).unwrap();
        sender.send(0).unwrap();
        until("the end", || running.is_ended());
        until("the input closes", || sender.try_send(1) == Err(SendError::Closed(1)));
        (0..5).for_each(|n| assert_eq!(sender.send(n), Err(SendError::Closed(n)), "{label}"));
        let summary = ends(label, running);
        assert!(summary.snapshot.adds_up(), "{label}\n{summary}");
    });
}

#[test]
fn ends_that_take_turns_get_alike_from_many_who_push_and_wait() {
    with_threads(|plan, label| {
        let app = App::new("turns");
        let (sender, port) = app.input::<u64>("in");
        let names = ["a", "b", "c"];
        app.round_robin(port, names.map(|name| app.sink(name, |_: u64| ())));
        let running = app.start(&plan.every(|s| s.capacity(1))).unwrap();
        let push_all = |sender: Sender<u64>| move || (0..500).for_each(|n| sender.send(n).unwrap());
        let pushes: Vec<_> = (0..6).map(|_| thread(push_all(sender.clone()))).collect();
        within("all push", move || pushes.into_iter().for_each(|pushes| pushes.join().unwrap()));
        drop(sender);
        let summary = ends(label, running);
        let shares = names.map(|name| stage(&summary.snapshot, name).counts.handled);
        assert_eq!(shares.iter().sum::<u64>(), 3_000, "{label}: {shares:?}");
        let alike = shares.iter().all(|share| (700..1_300).contains(share));
        assert!(alike, "{label}, of 3000: {shares:?}");
    });
}

#[test]
fn both_copies_of_an_event_enter_a_queue_of_one_place() {
    with_threads(|plan, label| {
        let app = App::new("double");
        let (sender, port) = app.input::<u64>("in");
        let work = app.sink("work", |_: u64| ());
        app.connect(port, work);
        app.connect_again(port, work);
        let running = app.start(&plan.stage("work", |s| s.capacity(1))).unwrap();
        sender.try_send(1).unwrap();
        until("both are handled", || handled(&running, "work") == 2);
        assert_eq!(stage(&running.snapshot(), "work").outboxed, 0, "{label}");
        drop(sender);
        let summary = ends(label, running);
        assert!(summary.snapshot.adds_up(), "{label}\n{summary}");
    });
}

#[test]
fn a_queue_that_an_input_leads_to_twice_keeps_nothing_back() {
    with_threads(|plan, label| {
        let app = App::new("double");
        let (sender, port) = app.input::<u64>("in");
        let [a, b] = ["a", "b"].map(|name| app.sink(name, |_: u64| ()));
        app.connect(port, a);
        app.by_key(port, |n: &u64| *n, [a, b]);
        let running = app.start(&plan.every(|s| s.capacity(8))).unwrap();
        let mut taken = 0;
        for n in 0..20_000_u64 {
            taken += u64::from(sender.try_send(n).is_ok());
            if n.is_multiple_of(16) {
                std::thread::yield_now();
            }
        }
        until("all are handled", || handled(&running, "a") + handled(&running, "b") == 2 * taken);
        drop(sender);
        let summary = ends(label, running);
        assert!(summary.snapshot.adds_up(), "{label}\n{summary}");
    });
}

#[test]
fn a_queue_that_is_shut_and_opened_while_others_push_stays_alive() {
    with_threads(|plan, label| {
        let app = App::new("toggle");
        let (sender, port) = app.input::<u64>("in");
        app.connect(port, app.sink("work", |_: u64| ()));
        let running = app.start(&plan.every(|s| s.capacity(1))).unwrap();
        let done = Arc::new(AtomicBool::new(false));
        let push_on = |sender: Sender<u64>, done: Arc<AtomicBool>| {
            move || {
                while !done.load(SeqCst) {
                    let _ = sender.try_send(1);
                }
            }
        };
        let pushes: Vec<_> =
            (0..4).map(|_| thread(push_on(sender.clone(), done.clone()))).collect();
        until("others push", || handled(&running, "work") > 100);
        let control = running.control();
        for _ in 0..10_000 {
            control.set_enabled("work", false).unwrap();
            control.set_enabled("work", true).unwrap();
        }
        done.store(true, SeqCst);
        within("all end", move || pushes.into_iter().for_each(|pushes| pushes.join().unwrap()));
        until("the queue is at rest", || {
            let snapshot = running.snapshot();
            let work = stage(&snapshot, "work");
            (work.queued, work.outboxed, work.in_flight) == (0, 0, 0)
        });
        let before = handled(&running, "work");
        assert_eq!(sender.try_send(1), Ok(()), "{label}: to an empty queue");
        until("it is handled", || handled(&running, "work") == before + 1);
        drop(sender);
        let summary = ends(label, running);
        assert!(summary.snapshot.adds_up(), "{label}\n{summary}");
    });
}
