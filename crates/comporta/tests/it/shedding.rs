//! What becomes of an event that an admission controller does not let in, or sheds later, and what
//! a controller of the program's own can do: it is asked and told, may turn the order, and may fail.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use comporta::policy::Offer;
use comporta::policy::admission::{Admission, Ask, Done, Entry, Look, Next};
use comporta::testing::TestRuntime;
use comporta::{
    App, Cx, Demand, Ev, Out, Plan, Pull, Result, SendError, Sender, Settled, Shed, Source, Stage,
    WhenFull,
};

use crate::admission::choice;
use crate::seen::{collector, counts, taken};

#[test]
fn what_is_pushed_and_not_let_in_comes_back_with_the_reason() {
    for when_full in [WhenFull::Block, WhenFull::Reject, WhenFull::DropNewest] {
        let app = App::new("pushed");
        let (sender, port) = app.input("in");
        let work = app.sink("work", |_: u64| ());
        app.connect(port, work);
        let plan = Plan::new()
            .stage("work", |s| s.when_full(when_full).admission(choice("capacity(max=2)")));
        let mut runtime = TestRuntime::new(app, &plan).unwrap();
        runtime.hold("work");
        sender.send(0).unwrap();
        sender.try_send(1).unwrap();
        assert_eq!(sender.try_send(2), Err(SendError::Refused(2, Shed::Capacity)), "{when_full:?}");
        let refused = sender.send(3).unwrap_err(); // it does not wait
        assert_eq!(refused.to_string(), "the admission controller `capacity` refused it");
        assert_eq!(refused.into_event(), Some(3));
        let c = counts(&runtime, "work");
        assert_eq!((c.offered, c.refused, c.arrived, c.shed_on_entry()), (4, 2, 2, 0));
        runtime.resume("work");
        runtime.run_until_idle();
        sender.send(4).unwrap();
        drop(sender);
        assert!(runtime.run());
        assert_eq!(counts(&runtime, "work").handled, 3);
    }
}

#[test]
fn a_full_queue_makes_pushers_wait_whom_the_controller_lets_in() {
    let app = App::new("full");
    let (sender, port) = app.input("in");
    let work = app.sink("work", |_: u64| ());
    app.connect(port, work);
    let plan = Plan::new().stage("work", |s| s.capacity(1).admission(choice("capacity(max=5)")));
    let mut runtime = TestRuntime::new(app, &plan).unwrap();
    runtime.hold("work");
    sender.send(0).unwrap();
    assert_eq!(sender.try_send(1), Err(SendError::Full(1)));
    runtime.resume("work");
    drop(sender);
    assert!(runtime.run());
}

/// Tries to send each event; remembers what it got back.
#[derive(Clone)]
struct Offers(Arc<Mutex<Vec<u64>>>);
impl Stage for Offers {
    type In = u64;
    type Ports = Out<u64>;
    fn handle(&mut self, n: Ev<'_, u64>, out: &mut Out<u64>, _: &Cx) -> Result {
        if let Err(back) = out.try_send(*n) {
            self.0.lock().unwrap().push(back);
        }
        Ok(())
    }
}

#[test]
fn try_send_gives_back_what_the_controller_would_not_let_in() {
    let app = App::new("try");
    let back = Arc::new(Mutex::new(Vec::new()));
    let (sender, port) = app.input("in");
    let offers = app.stage("offers", Offers(back.clone()));
    let work = app.sink("work", |_: u64| ());
    app.connect(port, offers);
    app.connect(offers, work);
    let plan = Plan::new().stage("work", |s| s.admission(choice("capacity(max=4)")));
    let mut runtime = TestRuntime::new(app, &plan).unwrap();
    runtime.hold("work");
    // Visit by visit: also one that knows how much room there is.
    for n in 0..10 {
        sender.send(n).unwrap();
        runtime.run_until_idle();
    }
    let c = counts(&runtime, "work");
    assert_eq!((c.offered, c.arrived, c.shed_on_entry()), (4, 4, 0));
    assert_eq!(taken(&back), [4, 5, 6, 7, 8, 9]);
    runtime.resume("work");
    drop(sender);
    assert!(runtime.run());
}

/// Lets in every other one, and remembers what it was told.
struct Half(Arc<Mutex<Vec<(usize, usize)>>>);
impl Admission for Half {
    fn admit(&mut self, ask: &Ask) -> usize {
        usize::from(self.0.lock().unwrap().len().is_multiple_of(2)).min(ask.n)
    }
    fn entered(&mut self, ask: &Ask, n: usize) {
        self.0.lock().unwrap().push((ask.n, n));
    }
}

#[test]
fn a_controller_is_told_once_of_each_event_whether_it_entered() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let app = App::new("half");
    let (sender, port) = app.input("in");
    let work = app.sink("work", |_: u64| ());
    app.connect(port, work);
    let to = told.clone();
    let offer = Offer { name: "half", aliases: &[], about: "", cites: "", params: &[] };
    app.register_admission(Entry::new(offer, move |_| Half(to.clone())));
    let plan = Plan::new().stage("work", |s| s.admission("half"));
    let mut runtime = TestRuntime::new(app, &plan).unwrap();
    let entered: Vec<bool> = (0..4).map(|n| sender.send(n).is_ok()).collect();
    assert_eq!(entered, [true, false, true, false]);
    assert_eq!(taken(&told), [(1, 1), (1, 0), (1, 1), (1, 0)]);
    drop(sender);
    assert!(runtime.run());
}

/// Lets in whoever asks at an odd time.
struct Moody(usize);
impl Admission for Moody {
    fn admit(&mut self, ask: &Ask) -> usize {
        self.0 += 1;
        ask.n * (self.0 % 2)
    }
}

#[test]
fn who_pushed_is_not_refused_after_it_was_let_in() {
    let app = App::new("moody");
    let (sender, port) = app.input("in");
    let work = app.sink("work", |_: u64| ());
    app.connect(port, work);
    app.register_admission(own("moody", || Moody(0)));
    let plan = Plan::new().stage("work", |s| s.admission("moody"));
    let mut runtime = TestRuntime::new(app, &plan).unwrap();
    let entered = (0..10).filter(|n| sender.send(*n).is_ok()).count();
    drop(sender);
    assert!(runtime.run());
    let c = counts(&runtime, "work");
    assert_eq!((entered, c.handled, c.refused, c.shed_on_entry()), (5, 5, 5, 0));
}

/// `in` -> `many`, which makes ten of one -> `work`, held, with places for two, five to wait.
fn crowded() -> (TestRuntime, Sender<u64>) {
    let app = App::new("crowded");
    let (sender, port) = app.input("in");
    let many = app.flat_map("many", |n: u64| n * 10..n * 10 + 10);
    let work = app.sink("work", |_: u64| ());
    app.connect(port, many);
    app.connect(many, work);
    let plan = Plan::new()
        .stage("many", |s| s.instances(2))
        .stage("work", |s| s.capacity(2).admission(choice("capacity(max=5)")));
    let mut runtime = TestRuntime::new(app, &plan).unwrap();
    runtime.hold("work");
    (runtime, sender)
}

#[test]
fn who_waits_with_its_sender_waits_for_the_controller_too() {
    let (mut runtime, sender) = crowded();
    sender.send(0).unwrap();
    runtime.run_until_idle();
    let c = counts(&runtime, "work");
    assert_eq!((c.arrived, c.shed(Shed::Capacity)), (5, 5)); // two in the queue, three outside
    sender.send(1).unwrap();
    runtime.run_until_idle();
    assert_eq!(counts(&runtime, "work").shed(Shed::Capacity), 15);
    runtime.resume("work");
    drop(sender);
    assert!(runtime.run());
    assert_eq!(counts(&runtime, "work").handled, 5);
}

#[test]
fn a_disabled_queue_sheds_for_its_own_reason() {
    let (mut runtime, sender) = crowded();
    runtime.control().set_enabled("work", false).unwrap();
    sender.send(0).unwrap();
    runtime.run_until_idle();
    let c = counts(&runtime, "work");
    assert_eq!((c.shed(Shed::Disabled), c.shed(Shed::Capacity)), (10, 0));
    runtime.resume("work");
    drop(sender);
    assert!(runtime.run());
}

/// Gives its groups one by one, and is told how they ended.
struct Acked(Vec<Vec<u64>>, Arc<Mutex<Vec<Settled>>>);
impl Source for Acked {
    type Item = u64;
    const ACKNOWLEDGED: bool = true;
    fn pull(&mut self, out: &mut Out<u64>, _: Demand) -> Result<Pull> {
        let Some(group) = self.0.pop() else { return Ok(Pull::End) };
        group.into_iter().for_each(|n| out.send(n));
        Ok(Pull::More)
    }
    fn settled(&mut self, settled: Settled) {
        self.1.lock().unwrap().push(settled);
    }
}

#[test]
fn a_source_is_told_of_what_was_shed_at_the_door_and_of_what_was_shed_later() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let app = App::new("acked");
    let to = told.clone();
    let groups = vec![(0..10).collect(), (10..12).collect()];
    let numbers = app.source("numbers", move || Acked(groups, to));
    let work = app.sink("work", |_: u64| ());
    app.connect(numbers, work);
    app.register_admission(own("fussy", || Fussy));
    let plan = Plan::new().stage("work", |s| s.admission("fussy"));
    let mut runtime = TestRuntime::new(app, &plan).unwrap();
    assert!(runtime.run());
    let mut told: Vec<_> = taken(&told).iter().map(|s| (s.group, s.shed)).collect();
    told.sort_unstable();
    // Of two, none is refused and one is shed later; of ten, five and one.
    assert_eq!(told, [(1, 1), (2, 6)]);
    let c = counts(&runtime, "work");
    assert_eq!((c.shed(Shed::Admission), c.shed_on_entry(), c.shed_later()), (7, 5, 2));
}

/// Lets in five at once, and sheds the first of each lot.
struct Fussy;
impl Admission for Fussy {
    fn admit(&mut self, ask: &Ask) -> usize {
        ask.n.min(5)
    }
    fn next(&mut self, look: &Look) -> Next {
        if look.n == 5 || look.n == 2 { Next::Shed(1) } else { Next::Oldest }
    }
}

/// A controller of the program's own.
fn own<A: Admission + 'static>(name: &'static str, make: fn() -> A) -> Entry {
    let offer = Offer { name, aliases: &[], about: "of a test", cites: "", params: &[] };
    Entry::new(offer, move |_| make())
}

/// Sheds whatever waits, after so many looks.
struct Sweeper;
impl Admission for Sweeper {
    fn next(&mut self, look: &Look) -> Next {
        Next::Shed(look.n)
    }
}

#[test]
fn room_that_shedding_makes_is_given_to_those_who_wait_for_it() {
    let app = App::new("swept");
    let numbers = app.source("numbers", || 0..100u64);
    let pass = app.map("pass", |n: u64| n);
    let work = app.sink("work", |_: u64| ());
    app.connect(numbers, pass);
    app.connect(pass, work);
    app.register_admission(own("sweeper", || Sweeper));
    let plan = Plan::new().stage("work", |s| s.capacity(3).admission("sweeper"));
    let mut runtime = TestRuntime::new(app, &plan).unwrap();
    assert!(runtime.run(), "{}", runtime.snapshot());
    let c = counts(&runtime, "work");
    assert_eq!((c.handled, c.shed_later(), c.shed(Shed::Admission)), (0, 100, 100));
}

/// Takes the newest, always.
struct Lifo;
impl Admission for Lifo {
    fn next(&mut self, _: &Look) -> Next {
        Next::Newest
    }
}

#[test]
fn the_newest_come_first_where_a_controller_says_so_and_the_order_does_not_matter() {
    let run = |stateful: bool, batch: usize| {
        let app = App::new("lifo");
        let (seen, see) = collector();
        let (sender, port) = app.input("in");
        let work = app.sink("work", see);
        if stateful {
            work.stateful();
        }
        app.connect(port, work);
        app.register_admission(own("lifo", || Lifo));
        let plan = Plan::new().stage("work", |s| s.batch(batch).admission("lifo"));
        let mut runtime = TestRuntime::new(app, &plan).unwrap();
        runtime.hold("work");
        (0..6).for_each(|n| sender.send(n).unwrap());
        runtime.resume("work");
        drop(sender);
        assert!(runtime.run());
        taken(&seen)
    };
    assert_eq!(run(false, 1), [5, 4, 3, 2, 1, 0]);
    assert_eq!(run(true, 1), [0, 1, 2, 3, 4, 5]);
}

#[test]
fn what_a_visit_to_the_newest_does_not_come_to_is_still_the_newest() {
    let app = App::new("back");
    let (seen, see) = collector();
    let (sender, port) = app.input("in");
    let work = app.flat_map("work", |n: u64| [n]);
    let show = app.sink("show", see);
    app.connect(port, work);
    app.connect(work, show);
    app.register_admission(own("lifo", || Lifo));
    let plan = Plan::new().stage("work", |s| s.admission("lifo")).stage("show", |s| s.capacity(1));
    let mut runtime = TestRuntime::new(app, &plan).unwrap();
    runtime.hold("work");
    for (tier, first) in [(1, 0), (2, 3)] {
        let sender = sender.clone().tier(tier); // so that they do not travel together
        (first..first + 3).for_each(|n| sender.send(n).unwrap());
    }
    runtime.resume("work");
    drop(sender);
    assert!(runtime.run());
    assert_eq!(taken(&seen), [3, 4, 5, 0, 1, 2]);
}

#[test]
fn a_controller_is_told_of_what_was_handled() {
    static TOLD: Mutex<Vec<Done>> = Mutex::new(Vec::new());
    struct Listens;
    impl Admission for Listens {
        fn settled(&mut self, done: &Done) {
            TOLD.lock().unwrap().push(*done);
        }
    }
    for ordered in [false, true] {
        let app = App::new("told");
        let (sender, port) = app.input("in");
        let work = app.map("work", |n: u64| n);
        let show = app.sink("show", |_: u64| ());
        if ordered {
            work.ordered();
        }
        app.connect(port, work);
        app.connect(work, show);
        app.register_admission(own("listens", || Listens));
        let plan = Plan::new().stage("work", |s| s.admission("listens"));
        let mut runtime = TestRuntime::new(app, &plan).unwrap();
        runtime.hold("work");
        (0..5).for_each(|n| sender.send(n).unwrap());
        runtime.advance(Duration::from_millis(3));
        runtime.resume("work");
        runtime.run_until_idle();
        let told = taken(&TOLD);
        assert_eq!(told.iter().map(|done| done.n).sum::<usize>(), 5, "{ordered}");
        assert!(told.iter().all(|done| done.response == Duration::from_millis(3)), "{told:?}");
    }
}

/// Breaks down when it has seen some.
struct Breaks(usize);
impl Admission for Breaks {
    fn admit(&mut self, ask: &Ask) -> usize {
        self.0 += 1;
        assert!(self.0 < 3, "too much for me");
        ask.n
    }
}

#[test]
fn a_controller_that_panics_is_asked_no_more_and_all_are_let_in() {
    let app = App::new("breaks");
    let (sender, port) = app.input("in");
    let pass = app.map("pass", |n: u64| n);
    let work = app.sink("work", |_: u64| ());
    app.connect(port, pass);
    app.connect(pass, work);
    app.register_admission(own("breaks", || Breaks(0)));
    let plan = Plan::new().stage("work", |s| s.admission("breaks"));
    let mut runtime = TestRuntime::new(app, &plan).unwrap();
    for n in 0..20 {
        sender.send(n).unwrap();
        runtime.run_until_idle();
    }
    drop(sender);
    assert!(runtime.run());
    assert_eq!(counts(&runtime, "work").handled, 20);
    let problems = runtime.problems();
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(
        problems[0].contains("`work`: its admission controller `breaks` failed"),
        "{problems:?}"
    );
    assert!(problems[0].contains("too much for me"), "{problems:?}");
}
