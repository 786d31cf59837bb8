//! What an attack found in code of the program that the runtime drops, polls or asks: a `Drop` that
//! panics, for several values at once, or that does not return, and a controller that does not answer.

use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use comporta::policy::Offer;
use comporta::policy::admission::{Admission, Ask, Entry};
use comporta::{
    App, Cx, Demand, Ended, Error, Ev, Out, Plan, Pull, Result, Retry, Running, Settled, Source,
    Stage, Summary, WhenFull,
};

use crate::bounded::{
    Gate, STUCK_AFTER, Way, ends, handled, stage, thread, under, until, watched, within,
};

const HOUR: Duration = Duration::from_secs(3_600);
const EVENTS: u64 = 10;

/// Runs a case with one thread and with several.
pub(crate) fn with_threads(case: fn(Plan, &str)) {
    [1, 4].into_iter().for_each(|threads| under("stealing", threads, case));
}

/// Everything is accounted for, and the program came to its end by itself.
fn ended_well(summary: &Summary, label: &str) {
    assert_eq!(summary.ended, Ended::Complete, "{label}\n{summary}");
    assert!(summary.snapshot.adds_up(), "{label}\n{summary}");
}

/// The text of the bad error, and nothing else, is told as a problem.
fn one_problem(summary: &Summary, label: &str) {
    let problems = &summary.problems;
    let told = problems.len() == 1 && problems[0].to_string().contains("a bad error");
    assert!(told, "{label}: {problems:?}");
}

/// Panics whenever it is dropped: of two that unwind together, the second ends the process.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("an event that panics when it is dropped");
    }
}

/// An error that panics when it is dropped.
#[derive(Debug)]
struct Bad;

impl fmt::Display for Bad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a bad error")
    }
}

impl std::error::Error for Bad {}

impl Drop for Bad {
    fn drop(&mut self) {
        panic!("an error that panics when it is dropped");
    }
}

/// Where a stage of these tests fails.
#[derive(Clone, PartialEq)]
enum Fails {
    Init,
    Finish,
}

impl Stage for Fails {
    type In = u64;
    type Ports = ();
    fn init(&mut self, _: &Cx) -> Result {
        if *self == Fails::Init { Err(Bad.into()) } else { Ok(()) }
    }
    fn handle(&mut self, _: Ev<'_, u64>, _: &mut (), _: &Cx) -> Result {
        Ok(())
    }
    fn finish(&mut self, _: &mut (), _: &Cx) -> Result {
        if *self == Fails::Finish { Err(Bad.into()) } else { Ok(()) }
    }
}

#[test]
fn an_error_that_panics_when_it_is_dropped_costs_the_event_that_failed() {
    with_threads(|plan, label| {
        let app = App::new("errors");
        let numbers = app.source("numbers", || 0..EVENTS);
        app.connect(numbers, app.sink("work", |n: u64| if n == 3 { Err(Bad) } else { Ok(()) }));
        let summary = ends(label, app.start(&plan).unwrap());
        ended_well(&summary, label);
        let counts = stage(&summary.snapshot, "work").counts;
        assert_eq!((counts.handled, counts.failed), (EVENTS - 1, 1), "{label}\n{summary}");
    });
}

#[test]
fn a_finish_whose_error_panics_when_it_is_dropped_is_told_as_a_problem() {
    with_threads(|plan, label| {
        let app = App::new("finish");
        let numbers = app.source("numbers", || 0..EVENTS);
        app.connect(numbers, app.stage("work", Fails::Finish));
        let summary = ends(label, app.start(&plan).unwrap());
        ended_well(&summary, label);
        assert_eq!(stage(&summary.snapshot, "work").counts.handled, EVENTS, "{label}\n{summary}");
        one_problem(&summary, label);
    });
}

struct BadSource;

impl Source for BadSource {
    type Item = u64;
    fn pull(&mut self, _: &mut Out<u64>, _: Demand) -> Result<Pull> {
        Err(Bad.into())
    }
}

#[test]
fn a_source_whose_error_panics_when_it_is_dropped_ends_and_is_told_as_a_problem() {
    with_threads(|plan, label| {
        let app = App::new("source");
        let numbers = app.source("numbers", || BadSource);
        app.connect(numbers, app.sink("work", |_: u64| ()));
        let summary = ends(label, app.start(&plan).unwrap());
        assert_eq!(summary.ended, Ended::SourceFailed, "{label}\n{summary}");
        assert!(summary.snapshot.adds_up(), "{label}\n{summary}");
        one_problem(&summary, label);
    });
}

#[test]
fn an_init_whose_error_panics_when_it_is_dropped_refuses_the_start_with_its_text() {
    with_threads(|plan, label| {
        let app = App::new("init");
        let numbers = app.source("numbers", || 0..EVENTS);
        app.connect(numbers, app.stage("work", Fails::Init));
        let refused = app.start(&plan).err().map(|error| error.to_string());
        let says_why = refused.as_ref().is_some_and(|text| text.contains("a bad error"));
        assert!(says_why, "{label}: {refused:?}");
    });
}

/// Fails, and is tried again in an hour: what is behind it stays queued.
#[derive(Clone)]
struct Later;

impl Stage for Later {
    type In = Bomb;
    type Ports = ();
    fn handle(&mut self, _: Ev<'_, Bomb>, _: &mut (), _: &Cx) -> Result {
        Err(Error::msg("not now"))
    }
}

#[test]
fn a_stop_survives_the_panics_of_all_events_it_cancels() {
    with_threads(|plan, label| {
        let app = App::new("stop");
        let (sender, port) = app.input::<Bomb>("in");
        app.connect_local(port, app.stage("later", Later));
        let plan = plan.stage("later", |s| s.retry(Retry::new(2, HOUR)));
        let running = app.start(&plan).unwrap();
        for _ in 0..5 {
            assert!(sender.send(Bomb).is_ok());
        }
        until("one is tried later, the others wait", || {
            let snapshot = running.snapshot();
            let later = stage(&snapshot, "later");
            (later.in_flight, later.queued) == (1, 4)
        });
        let summary = within("a stop", move || Running::stop(running));
        assert!(summary.snapshot.adds_up(), "{label}\n{summary}");
        assert_eq!(stage(&summary.snapshot, "later").counts.cancelled, 5, "{label}\n{summary}");
    });
}

#[test]
fn what_a_handler_sent_before_it_failed_may_panic_when_it_is_withdrawn() {
    with_threads(|plan, label| {
        let app = App::new("withdrawn");
        let numbers = app.source("numbers", || 0..EVENTS);
        let fails = app.process("fails", |_: u64, out: &mut Out<Bomb>| -> Result {
            out.send(Bomb);
            out.send(Bomb);
            Err(Error::msg("after all"))
        });
        app.connect(numbers, fails);
        app.connect_local(fails, app.sink("sink", std::mem::forget::<Bomb>));
        let summary = ends(label, app.start(&plan).unwrap());
        ended_well(&summary, label);
        assert_eq!(stage(&summary.snapshot, "fails").counts.failed, EVENTS, "{label}\n{summary}");
        assert_eq!(stage(&summary.snapshot, "sink").counts.offered, 0, "{label}\n{summary}");
    });
}

/// Each of 1000 visits sends two events to a queue of one place.
fn sheds(plan: &Plan, when_full: WhenFull, label: &str) {
    let app = App::new("sheds");
    let numbers = app.source("numbers", || 0..1_000_u64);
    let two = app.flat_map("two", |_: u64| [Bomb, Bomb]);
    app.connect(numbers, two);
    app.connect_local(two, app.sink("sink", std::mem::forget::<Bomb>));
    let plan = plan.clone().stage("sink", |s| s.capacity(1).when_full(when_full));
    let summary = ends(label, app.start(&plan).unwrap());
    ended_well(&summary, label);
    let counts = stage(&summary.snapshot, "sink").counts;
    let shed = counts.shed_on_entry() + counts.shed_later();
    assert_eq!(counts.handled + shed, 2_000, "{label}\n{summary}");
    assert!(shed >= 1_000, "{label}: at least one of each two\n{summary}");
}

#[test]
fn the_oldest_of_a_queue_may_panic_when_they_are_dropped() {
    with_threads(|plan, label| sheds(&plan, WhenFull::DropOldest, label));
}

#[test]
fn the_newest_of_a_queue_may_panic_when_they_are_dropped() {
    with_threads(|plan, label| sheds(&plan, WhenFull::DropNewest, label));
}

/// Does not return when it is dropped, until its gate is open.
struct Slow(Way);

impl Drop for Slow {
    fn drop(&mut self) {
        self.0.pass();
    }
}

#[test]
fn an_event_whose_drop_does_not_return_leaves_the_rest_to_a_stand_in() {
    watched("an event", || {
        let gate = Gate::default();
        let way = gate.way();
        let app = App::new("drop");
        let one = app.source("one", || 0..1_u64);
        // Nothing is joined to its port: what it sends is dropped.
        let drops =
            app.process("drops", move |_: u64, out: &mut Out<Slow>| out.send(Slow(way.clone())));
        app.connect(one, drops);
        let (sender, port) = app.input::<u64>("in");
        app.connect(port, app.sink("work", |_: u64| ()));
        let running = app.start(&Plan::new().threads(1).stuck_after(STUCK_AFTER)).unwrap();
        gate.wait_for(1, "a drop is under way");
        (0..EVENTS).for_each(|n| sender.try_send(n).unwrap());
        until("the rest is done", || handled(&running, "work") == EVENTS);
        gate.open();
        drop(sender);
        ended_well(&ends("an event", running), "an event");
    });
}

/// Numbers, from a source that does not return when it is dropped.
struct SlowNumbers(
    std::ops::Range<u64>,
    #[expect(dead_code, reason = "for its `Drop`")] Option<Slow>,
);

impl Iterator for SlowNumbers {
    type Item = u64;
    fn next(&mut self) -> Option<u64> {
        self.0.next()
    }
}

/// Sends each event on, and does not return when it is dropped.
struct SlowPass(#[expect(dead_code, reason = "for its `Drop`")] Option<Slow>);

impl Stage for SlowPass {
    type In = u64;
    type Ports = Out<u64>;
    fn handle(&mut self, n: Ev<'_, u64>, out: &mut Out<u64>, _: &Cx) -> Result {
        out.send(*n);
        Ok(())
    }
}

/// The program ends while its source, or its handler, is being dropped.
fn ends_during_a_drop(plan: &Plan, of_the_source: bool, label: &str) {
    let gate = Gate::default();
    let slow = move |it: bool, way: Way| it.then(|| Slow(way));
    let (way, too) = (gate.way(), gate.way());
    let app = App::new("drop");
    let numbers = app.source("numbers", move || SlowNumbers(0..EVENTS, slow(of_the_source, way)));
    let pass = app.stage_with("pass", move |_| Ok(SlowPass(slow(!of_the_source, too.clone()))));
    app.connect(numbers, pass);
    app.connect(pass, app.sink("sink", |_: u64| ()));
    let summary = ends(label, app.start(plan).unwrap());
    ended_well(&summary, label);
    assert_eq!(stage(&summary.snapshot, "sink").counts.handled, EVENTS, "{label}\n{summary}");
    gate.wait_for(1, "it is dropped");
}

#[test]
fn a_source_whose_drop_does_not_return_does_not_keep_the_program_from_its_end() {
    with_threads(|plan, label| ends_during_a_drop(&plan, true, label));
}

#[test]
fn a_handler_whose_drop_does_not_return_does_not_keep_the_program_from_its_end() {
    with_threads(|plan, label| ends_during_a_drop(&plan, false, label));
}

/// A waker whose last copy does not return when it is dropped.
struct SlowWaker(#[expect(dead_code, reason = "for its `Drop`")] Slow);

impl Wake for SlowWaker {
    fn wake(self: Arc<Self>) {}
}

#[test]
fn a_waker_whose_drop_does_not_return_holds_no_other_from_the_end() {
    with_threads(|plan, label| {
        let gate = Gate::default();
        let app = App::new("end");
        let (sender, port) = app.input::<u64>("in");
        app.connect(port, app.sink("sink", |_: u64| ()));
        let running = app.start(&plan).unwrap();
        let mut end = Box::pin(running.ended());
        let slow = Waker::from(Arc::new(SlowWaker(Slow(gate.way()))));
        assert!(end.as_mut().poll(&mut Context::from_waker(&slow)).is_pending());
        drop(slow); // the last copy is the future's, which the next poll replaces
        let polls =
            thread(move || end.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        gate.wait_for(1, "a waker is being dropped");
        let told = Arc::new(AtomicBool::new(false));
        let tell = told.clone();
        running.on_end(move || tell.store(true, SeqCst));
        sender.send(1).unwrap();
        drop(sender);
        until(label, || told.load(SeqCst));
        gate.open();
        assert!(within("the poll", move || polls.join().unwrap()), "it had not ended then");
        ended_well(&ends(label, running), label);
    });
}

#[test]
fn an_event_that_is_changed_in_place_is_tried_again_as_it_came() {
    with_threads(|plan, label| {
        let app = App::new("again");
        let numbers = app.source("numbers", || 0..EVENTS);
        let (tries, seen) = (Arc::<AtomicUsize>::default(), Arc::<Mutex<Vec<u64>>>::default());
        let work = app.map_in_place("work", move |n: &mut u64| -> Result {
            *n += 100;
            let fails = tries.fetch_add(1, SeqCst).is_multiple_of(2);
            if fails { Err(Error::msg("once more")) } else { Ok(()) }
        });
        let sees = seen.clone();
        app.connect(numbers, work.retain());
        app.connect(work, app.sink("sink", move |n: u64| sees.lock().unwrap().push(n)));
        let plan = plan.stage("work", |s| s.tries(2));
        ended_well(&ends(label, app.start(&plan).unwrap()), label);
        assert_eq!(*seen.lock().unwrap(), (100..100 + EVENTS).collect::<Vec<_>>(), "{label}");
    });
}

/// Answers once, and not again until its gate is open.
struct Silent(Way, bool);

impl Admission for Silent {
    fn admit(&mut self, ask: &Ask) -> usize {
        if std::mem::replace(&mut self.1, true) {
            self.0.pass();
        }
        ask.n
    }
}

#[test]
fn a_stop_accounts_for_events_that_a_controller_does_not_answer_for() {
    with_threads(|plan, label| {
        let gate = Gate::default();
        let way = gate.way();
        let app = App::new("silent");
        let offer = Offer { name: "silent", aliases: &[], about: "", cites: "", params: &[] };
        app.register_admission(Entry::new(offer, move |_| Silent(way.clone(), false)));
        let numbers = app.source("numbers", || 0..EVENTS);
        let pass = app.map("pass", |n: u64| n);
        app.connect(numbers, pass);
        app.connect(pass, app.sink("sink", |_: u64| ()));
        let plan = plan.stage("pass", |s| s.batch(1)).stage("sink", |s| s.admission("silent"));
        let running = app.start(&plan).unwrap();
        gate.wait_for(1, "the controller is asked again");
        let live = running.snapshot();
        assert!(live.adds_up(), "{label}, live\n{live}");
        let summary = within("a stop", move || Running::stop(running));
        assert!(summary.snapshot.adds_up(), "{label}\n{summary}");
    });
}

/// Sends its events in one group.
struct Acked(Arc<Mutex<Vec<Settled>>>);

impl Source for Acked {
    type Item = u64;
    const ACKNOWLEDGED: bool = true;
    fn pull(&mut self, out: &mut Out<u64>, _: Demand) -> Result<Pull> {
        (0..EVENTS).for_each(|n| out.send(n));
        Ok(Pull::End)
    }
    fn settled(&mut self, settled: Settled) {
        self.0.lock().unwrap().push(settled);
    }
}

#[test]
fn a_source_is_not_told_that_all_is_well_if_an_event_was_lost_on_its_way() {
    with_threads(|plan, label| {
        let told = Arc::<Mutex<Vec<Settled>>>::default();
        let hears = told.clone();
        let app = App::new("lost");
        let numbers = app.source("numbers", move || Acked(hears));
        let pass = app.map("pass", |n: u64| n);
        let key = |n: &u64| {
            assert!(*n != 5, "no key for {n}");
            *n
        };
        app.connect(numbers, pass);
        app.by_key(pass, key, ["one", "two"].map(|name| app.sink(name, |_: u64| ())));
        let summary = ends(label, app.start(&plan).unwrap());
        ended_well(&summary, label);
        assert_eq!(stage(&summary.snapshot, "pass").counts.lost, 1, "{label}\n{summary}");
        let told = told.lock().unwrap();
        assert!(told.len() == 1 && !told[0].is_clean(), "{label}: {told:?}");
    });
}
