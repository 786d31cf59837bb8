//! Who is let into a queue: every admission controller by its name, under overload; whom it does not
//! let in is shed and counted under that name, or comes back to who pushed it; nothing is lost
//! otherwise, and nothing stalls.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use comporta::testing::TestRuntime;
use comporta::{
    App, Choice, Counts, Cx, Ended, Ev, Out, Plan, Result, Sender, Shed, Stage, WhenFull,
};

use crate::seen::{collector, counts, run, stage, taken};

const TICK: Duration = Duration::from_micros(100);

/// Every controller, set for events that take a tick, and the reason it sheds for.
const ALL: [(&str, Shed); 8] = [
    ("capacity(max=20)", Shed::Capacity),
    ("token-bucket(rate=9000, burst=20)", Shed::TokenBucket),
    ("codel(target=1ms, interval=10ms)", Shed::Codel),
    ("seda(target=2ms, rate_max=20000)", Shed::Seda),
    ("gradient(min=2, max=20, window=10)", Shed::Gradient),
    ("breakwater(target=1ms, every=100us)", Shed::Breakwater),
    ("tiers(target=1ms, window=20)", Shed::Tiers),
    ("deadline", Shed::Deadline),
];

/// What a text chooses.
pub(crate) fn choice(text: &str) -> Choice {
    text.parse().unwrap()
}

/// Everything but `work` does what there is to do; `work` makes one visit, which takes a tick.
fn work_for_a_tick(runtime: &mut TestRuntime) {
    runtime.hold("work");
    runtime.run_until_idle();
    runtime.resume("work");
    runtime.step();
    runtime.hold("work");
    runtime.advance(TICK);
    runtime.resume("work");
}

/// The way to `work`, which has the controller.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    /// `in` -> `pass` -> `work`.
    Straight,
    /// The same, but what comes to `pass` waits there for a while, and passes at the rate it came.
    Slow,
    /// Three of `in` -> `pass`, and all to `work`, which take turns.
    FanIn,
}

const WAYS: [Way; 3] = [Way::Straight, Way::Slow, Way::FanIn];
/// Ticks that an event waits at a slow `pass`: longer than any controller lets it wait at `work`.
const SLOW: u32 = 500;

/// A program on virtual time, in which a tick is what `work` takes for an event.
struct Line {
    way: Way,
    runtime: TestRuntime,
    senders: Vec<Sender<u64>>,
    seen: Arc<Mutex<Vec<u64>>>,
    pushed: u64,
    /// What comes in the ticks to come, to a slow `pass`.
    delayed: VecDeque<u64>,
    /// Ticks that an event waits at a slow `pass`.
    slow: usize,
    most: usize,
}

impl Line {
    fn new(admission: &str, way: Way) -> Self {
        let app = App::new("line");
        let (seen, see) = collector();
        let work = app.sink("work", see);
        let ends = if way == Way::FanIn { 3 } else { 1 };
        let senders = (0..ends).map(|end| {
            let (sender, port) = app.input(format!("in{end}"));
            let pass = app.map(format!("pass{end}"), |n: u64| n);
            app.connect(port, pass);
            app.connect(pass, work);
            sender
        });
        let senders = senders.collect();
        let before = if way == Way::Slow { TICK * SLOW } else { Duration::ZERO };
        let plan = Plan::new()
            .threads(1)
            .every(|s| s.batch(1).capacity(10_000).deadline(before + Duration::from_millis(2)))
            .stage("work", |s| s.admission(choice(admission)));
        let runtime = TestRuntime::new(app, &plan).unwrap();
        let (delayed, slow) = (VecDeque::new(), SLOW as usize);
        Line { way, runtime, senders, seen, pushed: 0, delayed, slow, most: 0 }
    }

    /// So many events come, and one is handled.
    fn tick(&mut self, events: u64) {
        for _ in 0..events {
            let end = self.pushed as usize % self.senders.len();
            self.senders[end].try_send(self.pushed).unwrap();
            self.pushed += 1;
        }
        if self.way == Way::Slow {
            self.delayed.push_back(events);
            let due = if self.delayed.len() > self.slow { self.delayed.pop_front() } else { None };
            self.pass(due.unwrap_or(0));
        }
        work_for_a_tick(&mut self.runtime);
        self.most = self.most.max(stage(&self.runtime.snapshot(), "work").queued);
    }

    /// Of what waits at a slow `pass`, so many go on.
    fn pass(&mut self, events: u64) {
        self.runtime.hold("work");
        self.runtime.resume("pass0");
        let passed = |runtime: &TestRuntime| stage(&runtime.snapshot(), "pass0").counts.handled;
        let all = passed(&self.runtime) + events;
        while passed(&self.runtime) < all {
            assert!(self.runtime.step());
        }
        self.runtime.hold("pass0");
    }

    /// Until all that came has had its time at a slow `pass`.
    fn wait(&mut self) {
        while self.delayed.iter().any(|events| *events > 0) {
            self.tick(0);
        }
        if self.way == Way::Slow {
            self.runtime.resume("pass0");
        }
    }

    fn end(mut self) -> (Counts, Vec<u64>) {
        self.wait();
        self.senders.clear();
        assert!(self.runtime.run());
        assert!(self.runtime.problems().is_empty(), "{:?}", self.runtime.problems());
        (counts(&self.runtime, "work"), taken(&self.seen))
    }
}

#[test]
fn under_overload_every_controller_sheds_under_its_name_and_keeps_the_queue_short() {
    for (admission, reason) in ALL {
        for way in WAYS {
            let mut line = Line::new(admission, way);
            (0..1_000).for_each(|_| line.tick(3));
            line.wait();
            assert!(line.most < 500, "{admission} {way:?}: {}", line.most);
            let (c, seen) = line.end();
            let shed = c.shed_on_entry() + c.shed_later();
            assert_eq!((c.offered, c.shed(reason)), (3_000, shed), "{admission} {way:?}");
            assert!((1_500..2_400).contains(&shed), "{admission} {way:?}: {shed}");
            assert_eq!(c.handled + shed, 3_000, "{admission} {way:?}");
            assert_eq!(c.handled as usize, seen.len(), "{admission} {way:?}");
        }
    }
}

#[test]
fn a_light_load_is_let_in_by_every_controller_whatever_the_way_took() {
    for (admission, _) in ALL {
        for way in WAYS {
            let mut line = Line::new(admission, way);
            (0..1_000).for_each(|at| line.tick(at % 2));
            let (c, seen) = line.end();
            let shed = c.shed_on_entry() + c.shed_later();
            assert_eq!((c.handled, shed), (500, 0), "{admission} {way:?}");
            assert!(seen.is_sorted(), "{admission} {way:?}");
        }
    }
}

#[test]
fn a_way_that_takes_ever_longer_does_not_make_gradient_let_fewer_in() {
    let mut line = Line::new("gradient(min=8, max=100, window=10)", Way::Slow);
    let shed = |line: &Line| counts(&line.runtime, "work").shed(Shed::Gradient);
    line.slow = 0;
    let mut before = 0;
    for burst in 0..300 {
        // As many as it must learn to let in at once, at half of what it can handle.
        line.tick(10);
        (1..20).for_each(|_| line.tick(0));
        line.slow += 5;
        if burst == 50 {
            before = shed(&line);
        }
    }
    line.wait();
    assert_eq!(shed(&line), before);
    let (c, _) = line.end();
    assert_eq!((c.offered, c.handled + before), (3_000, 3_000));
}

#[test]
fn on_threads_nothing_is_lost_but_what_is_counted_and_nothing_stalls() {
    for (admission, reason) in ALL {
        for when_full in [WhenFull::Block, WhenFull::DropOldest] {
            let app = App::new("threads");
            let numbers = app.source("numbers", || 0..20_000u64);
            let pass = app.map("pass", |n: u64| n);
            let work = app.map("work", |n: u64| (0..50).fold(n, |a, b| a.wrapping_mul(31) ^ b));
            let show = app.sink("show", |_: u64| ());
            app.connect(numbers, pass);
            app.connect(pass, work);
            app.connect(work, show);
            let plan = Plan::new()
                .threads(2)
                .stage("numbers", |s| s.deadline(Duration::from_millis(1)).tier(3))
                .stage("work", |s| {
                    s.instances(2).capacity(64).when_full(when_full).admission(choice(admission))
                });
            let summary = run(app, &plan);
            assert_eq!(summary.ended, Ended::Complete, "{admission}");
            assert!(summary.snapshot.adds_up(), "{admission}: {}", summary.snapshot);
            let c = stage(&summary.snapshot, "work").counts;
            let shed = c.shed(reason) + c.shed(Shed::Oldest);
            assert_eq!((c.offered, c.handled + shed), (20_000, 20_000), "{admission}");
            assert_eq!(stage(&summary.snapshot, "show").counts.handled, c.handled);
        }
    }
}

#[test]
fn under_overload_the_higher_tier_is_served() {
    let app = App::new("tiers");
    let (seen, see) = collector();
    let (sender, port) = app.input("in");
    let pass = app.map("pass", |n: u64| n);
    let work = app.sink("work", see);
    app.connect(port, pass);
    app.connect(pass, work);
    let plan = Plan::new()
        .threads(1)
        .stage("in", |s| s.tier(1))
        .stage("work", |s| s.batch(1).admission(choice("tiers(target=1ms, window=100)")));
    let mut runtime = TestRuntime::new(app, &plan).unwrap();
    let dear = sender.clone().tier(7);
    for tick in 1..=1_000 {
        sender.send(0).unwrap();
        sender.send(0).unwrap();
        if tick % 2 == 0 {
            dear.send(1).unwrap();
        }
        work_for_a_tick(&mut runtime);
    }
    drop((sender, dear));
    assert!(runtime.run());
    let served = taken(&seen);
    let dear = served.iter().filter(|n| **n == 1).count();
    assert!(dear >= 495, "{dear} of 500");
    assert!(served.len() < 1_600, "{}", served.len());
}

/// A tier, and how long there is.
type Origin = (u8, Option<Duration>);

/// Notes those of each event.
#[derive(Clone)]
struct Looks(Arc<Mutex<Vec<Origin>>>);
impl Stage for Looks {
    type In = u64;
    type Ports = ();
    fn handle(&mut self, _: Ev<'_, u64>, (): &mut (), cx: &Cx) -> Result {
        let within = cx.deadline().map(|deadline| deadline.duration_since(cx.ingress()));
        self.0.lock().unwrap().push((cx.tier(), within));
        Ok(())
    }
}

#[test]
fn tier_and_deadline_travel_with_what_events_lead_to() {
    let app = App::new("travel");
    let numbers = app.source("numbers", || 0..3u64);
    let (sender, port) = app.input("in");
    let pass = app.map("pass", |n: u64| n);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let work = app.stage("work", Looks(seen.clone()));
    app.connect(numbers, pass);
    app.connect(port, pass);
    app.connect(pass, work);
    let ms = Duration::from_millis;
    let plan =
        Plan::new().stage("numbers", |s| s.tier(4)).stage("in", |s| s.tier(5).deadline(ms(9)));
    let mut runtime = TestRuntime::new(app, &plan).unwrap();
    sender.send(0).unwrap();
    sender.clone().tier(6).send(0).unwrap();
    sender.clone().within(ms(1)).send(0).unwrap();
    drop(sender);
    assert!(runtime.run());
    let mut seen = taken(&seen);
    seen.sort_unstable();
    let (a, b, c) = ((4, None), (5, Some(ms(1))), (5, Some(ms(9))));
    assert_eq!(seen, [a, a, a, b, c, (6, Some(ms(9)))]);
}

/// Counts, and says how many when it finishes.
#[derive(Clone)]
struct Total(u64);
impl Stage for Total {
    type In = Vec<u64>;
    type Ports = Out<u64>;
    fn handle(&mut self, some: Ev<'_, Vec<u64>>, out: &mut Out<u64>, _: &Cx) -> Result {
        self.0 += some.len() as u64;
        out.send(0);
        Ok(())
    }
    fn finish(&mut self, out: &mut Out<u64>, _: &Cx) -> Result {
        out.send(self.0);
        Ok(())
    }
}

#[test]
fn a_group_matters_as_the_most_of_its_events_and_what_is_sent_at_the_end_matters_most() {
    let app = App::new("groups");
    let (sender, port) = app.input("in");
    let seen = Arc::new(Mutex::new(Vec::new()));
    let total = app.stage("total", Total(0).batched(3, Duration::from_secs(1)));
    let work = app.stage("work", Looks(seen.clone()));
    app.connect(port, total);
    app.connect(total, work);
    let mut runtime = TestRuntime::new(app, &Plan::new()).unwrap();
    for tier in [2, 4, 3] {
        sender.clone().tier(tier).send(0).unwrap();
    }
    drop(sender);
    assert!(runtime.run());
    assert_eq!(taken(&seen), [(4, None), (255, None)]);
}

#[test]
fn a_controller_can_be_changed_while_events_flow_and_is_shown() {
    let mut line = Line::new("capacity(max=5)", Way::Straight);
    let control = line.runtime.control();
    (0..100).for_each(|_| line.tick(3));
    let shown = stage(&line.runtime.snapshot(), "work").admission.clone().unwrap();
    assert_eq!(
        (shown.choice.to_string().as_str(), &*shown.allows),
        ("capacity(max=5)", "5 may wait")
    );
    control.set_admission("work", choice("token-bucket(rate=5000, burst=1)")).unwrap();
    (0..100).for_each(|_| line.tick(3));
    control.set_admission("work", "none").unwrap();
    assert!(stage(&line.runtime.snapshot(), "work").admission.is_none());
    (0..100).for_each(|_| line.tick(3));
    let (c, _) = line.end();
    assert!(c.shed(Shed::Capacity) > 150 && c.shed(Shed::TokenBucket) > 200, "{c:?}");
    assert_eq!(c.handled + c.shed_on_entry(), 900);
    let refusals = [
        (
            control.set_admission("work", "capasity"),
            "there is no admission controller `capasity`: did you mean `capacity`?",
        ),
        (
            control.set_admission("work", choice("capacity(max=0)")),
            "`max` of `capacity` is 0: use a whole number, at least 1",
        ),
        (control.set_admission("in0", "codel"), "`in0` is an input and has no queue"),
        (
            control.set_admission("wrok", "codel"),
            "the program has no stage `wrok`: did you mean `work`?",
        ),
    ];
    for (refused, said) in refusals {
        assert_eq!(refused.unwrap_err().to_string(), said);
    }
}
