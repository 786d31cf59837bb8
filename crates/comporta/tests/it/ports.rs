//! Ports and connectors: several ports, copies, turns, keys, local connectors; and what a graph
//! may not be.

use std::collections::HashMap;
use std::sync::mpsc;

use comporta::testing::{TestRuntime, record};
use comporta::{App, AsPort, Cx, Ev, GraphFault, Out, Plan, Ports, Result, Stage, StartError};

use crate::seen::{collector, counts, run, taken};

#[derive(Ports)]
struct Sorted {
    even: Out<u64>,
    odd: Out<u64>,
}

/// Sends numbers through the port of their kind.
#[derive(Clone)]
struct Sort;
impl Stage for Sort {
    type In = u64;
    type Ports = Sorted;
    fn handle(&mut self, n: Ev<'_, u64>, out: &mut Sorted, _: &Cx) -> Result {
        if n.is_multiple_of(2) {
            out.even.send(*n);
        } else {
            out.odd.send(*n);
        }
        Ok(())
    }
}

#[derive(Ports)]
struct Parsed {
    number: Out<i64>,
    word: Out<String>,
    nothing: Out<()>,
}

/// Ports of three types.
#[derive(Clone)]
struct Parse;
impl Stage for Parse {
    type In = String;
    type Ports = Parsed;
    fn handle(&mut self, text: Ev<'_, String>, out: &mut Parsed, _: &Cx) -> Result {
        match text.parse() {
            Ok(number) => out.number.send(number),
            Err(_) if text.is_empty() => out.nothing.send(()),
            Err(_) => out.word.send(text.take()),
        }
        Ok(())
    }
}

#[test]
fn a_stage_sends_through_two_ports_of_one_type() {
    let app = App::new("two");
    let numbers = app.source("numbers", || 0..1_000u64);
    let sort = app.stage("sort", Sort);
    let (evens, see_even) = collector();
    let (odds, see_odd) = collector();
    let even = app.sink("even", see_even);
    let odd = app.sink("odd", see_odd);
    app.connect(numbers, sort);
    app.connect(sort.even, even);
    app.connect(sort.odd, odd);
    let mut runtime = TestRuntime::new(app, &Plan::new().every(|s| s.capacity(7))).unwrap();
    assert!(runtime.run());
    assert!(taken(&evens).into_iter().eq((0..1_000).step_by(2)));
    assert!(taken(&odds).into_iter().eq((1..1_000).step_by(2)));
}

#[test]
fn a_stage_sends_through_three_ports_of_three_types() {
    let app = App::new("three");
    let texts = app.source("texts", || ["7", "a", "", "-3", "b"].map(str::to_owned).into_iter());
    let parse = app.stage("parse", Parse);
    let (numbers, see_number) = collector();
    let (words, see_word) = collector();
    let (nothings, see_nothing) = collector();
    app.connect(texts, parse);
    app.connect(parse.number, app.sink("number", see_number));
    app.connect(parse.word, app.sink("word", see_word));
    app.connect(parse.nothing, app.sink("nothing", see_nothing));
    assert_eq!(app.graph().stages[1].ports, ["number", "word", "nothing"]);
    let mut runtime = TestRuntime::new(app, &Plan::new()).unwrap();
    assert!(runtime.run());
    assert_eq!(taken(&numbers), [7, -3]);
    assert_eq!(taken(&words), ["a", "b"]);
    assert_eq!(taken(&nothings), [()]);
}

/// Sends a run of numbers, now through one port, now through the other, in runs of 1, 2, 3 ...
#[derive(Clone)]
struct Alternate {
    next: u64,
    run: u64,
}
impl Stage for Alternate {
    type In = u64;
    type Ports = Sorted;
    fn handle(&mut self, n: Ev<'_, u64>, out: &mut Sorted, _: &Cx) -> Result {
        for _ in 0..*n {
            self.run = self.run % 3 + 1;
            for _ in 0..self.run {
                out.even.send(self.next);
                self.next += 1;
            }
            out.odd.send(self.next);
            self.next += 1;
        }
        Ok(())
    }
}

#[test]
fn two_ports_that_lead_to_one_queue_keep_the_order_of_sending() {
    for capacity in [1, 2, 3, 5, 64, 1_024] {
        for batch in [1, 2, 256] {
            for sends in [1, 2, 20] {
                let app = App::new("alternate");
                let (seen, see) = collector();
                let starts = app.source("starts", move || (0..30u64).map(move |_| sends));
                let work = app.stage("work", Alternate { next: 0, run: 0 });
                let sink = app.sink("sink", see);
                app.connect(starts, work);
                app.connect(work.even, sink);
                app.connect(work.odd, sink);
                let plan = Plan::new()
                    .threads(1)
                    .every(|s| s.batch(batch))
                    .stage("sink", |s| s.capacity(capacity));
                let mut runtime = TestRuntime::new(app, &plan).unwrap();
                assert!(runtime.run(), "{}", runtime.snapshot());
                let seen = taken(&seen);
                let n = seen.len() as u64;
                assert_eq!(n, counts(&runtime, "work").emitted);
                assert!(seen.into_iter().eq(0..n), "capacity {capacity}, batch {batch}, {sends}");
            }
        }
    }
}

#[test]
fn two_ports_that_lead_to_one_queue_keep_order_on_threads_and_beside_other_queues() {
    for (capacity, batch, instances) in [(1, 1, 1), (3, 256, 1), (2, 7, 1)] {
        let app = App::new("beside");
        let (seen, see) = collector();
        let numbers = app.source("numbers", || 0..3_000u64);
        let sort = app.stage("sort", Sort);
        let sink = app.sink("sink", see);
        let other = app.sink("other", |_: u64| {});
        app.connect(numbers, sort);
        app.connect(sort.even, other);
        app.connect(sort.even, sink);
        app.connect(sort.odd, sink);
        let plan = Plan::new()
            .threads(2)
            .every(|s| s.batch(batch).capacity(capacity))
            .stage("sort", |s| s.instances(instances));
        let summary = run(app, &plan);
        assert!(summary.snapshot.adds_up(), "{summary}");
        assert!(taken(&seen).into_iter().eq(0..3_000), "capacity {capacity}, batch {batch}");
    }
}

#[test]
fn an_ordered_stage_keeps_the_order_between_its_ports_too() {
    for seed in 0..10 {
        let app = App::new("ordered-ports");
        let (seen, see) = collector();
        let numbers = app.source("numbers", || 0..500u64);
        let sort = app.stage("sort", Sort).ordered();
        let sink = app.sink("sink", see);
        app.connect(numbers, sort);
        app.connect(sort.even, sink);
        app.connect(sort.odd, sink);
        let plan = Plan::new()
            .threads(3)
            .stage("sort", |s| s.instances(3).batch(5))
            .stage("sink", |s| s.capacity(2));
        let mut runtime = TestRuntime::new(app, &plan).unwrap().seeded(seed);
        assert!(runtime.run());
        assert!(taken(&seen).into_iter().eq(0..500), "seed {seed}");
    }
}

#[test]
fn what_is_sent_through_a_port_that_is_not_connected_is_counted() {
    let app = App::new("unrouted");
    let numbers = app.source("numbers", || 0..10u64);
    let sort = app.stage("sort", Sort);
    let even = app.sink("even", |_: u64| {});
    app.connect(numbers, sort);
    app.connect(sort.even, even);
    let warnings: Vec<_> = app.check().unwrap().iter().map(ToString::to_string).collect();
    assert_eq!(warnings, ["the port `sort.odd` is not connected: what is sent there is discarded"]);
    let mut runtime = TestRuntime::new(app, &Plan::new()).unwrap();
    assert!(runtime.run());
    let c = counts(&runtime, "sort");
    assert_eq!((c.emitted, c.unrouted), (10, 5));
    assert_eq!(counts(&runtime, "even").handled, 5);
}

#[test]
fn a_port_with_two_connectors_sends_a_copy_through_each() {
    for capacity in [1, 64] {
        let app = App::new("copies");
        let numbers = app.source("numbers", || 0..100u64);
        let (first, see_first) = collector();
        let (second, see_second) = collector();
        app.connect(numbers, app.sink("first", see_first));
        app.connect_local(numbers, app.sink("second", see_second));
        let plan = Plan::new().stage("second", |s| s.capacity(capacity));
        let mut runtime = TestRuntime::new(app, &plan).unwrap();
        assert!(runtime.run());
        assert!(taken(&first).into_iter().eq(0..100) && taken(&second).into_iter().eq(0..100));
        assert_eq!(
            (counts(&runtime, "first").offered, counts(&runtime, "second").offered),
            (100, 100)
        );
    }
}

#[test]
fn round_robin_gives_each_end_its_turn() {
    let app = App::new("turns");
    let numbers = app.source("numbers", || 0..90u64);
    let ends: Vec<_> = (0..3).map(|_| collector()).collect();
    let sinks: Vec<_> =
        (0..3).zip(&ends).map(|(n, (_, see))| app.sink(format!("sink-{n}"), see.clone())).collect();
    app.round_robin(numbers, sinks);
    let mut runtime = TestRuntime::new(app, &Plan::new().every(|s| s.capacity(4))).unwrap();
    assert!(runtime.run());
    let seen: Vec<Vec<u64>> = ends.iter().map(|(seen, _)| taken(seen)).collect();
    for own in &seen {
        assert_eq!(own.len(), 30);
        assert!(own.windows(2).all(|pair| pair[1] == pair[0] + 3), "{own:?}");
    }
}

#[test]
fn an_end_named_twice_gets_two_turns_and_keeps_order() {
    for capacity in [1, 4, 1_024] {
        let app = App::new("weights");
        let numbers = app.source("numbers", || 0..90u64);
        let (much, see_much) = collector();
        let (little, see_little) = collector();
        let big = app.sink("big", see_much);
        let small = app.sink("small", see_little);
        app.round_robin(numbers, [big, big, small]);
        let mut runtime =
            TestRuntime::new(app, &Plan::new().every(|s| s.capacity(capacity))).unwrap();
        assert!(runtime.run());
        let (much, little) = (taken(&much), taken(&little));
        assert_eq!((much.len(), little.len()), (60, 30));
        assert!(much.is_sorted() && little.is_sorted(), "{much:?}");
    }
}

#[test]
fn equal_keys_go_to_the_same_end() {
    let app = App::new("keys");
    let numbers = app.source("numbers", || 0..1_000u64);
    let ends: Vec<_> = (0..4).map(|_| collector::<u64>()).collect();
    let sinks: Vec<_> =
        (0..4).zip(&ends).map(|(n, (_, see))| app.sink(format!("sink-{n}"), see.clone())).collect();
    app.by_key(numbers, |n: &u64| n % 37, sinks);
    let mut runtime = TestRuntime::new(app, &Plan::new().every(|s| s.capacity(4))).unwrap();
    assert!(runtime.run());
    let mut home: HashMap<u64, usize> = HashMap::new();
    let mut all = 0;
    for (end, (seen, _)) in ends.iter().enumerate() {
        let own = taken(seen);
        all += own.len();
        assert!(!own.is_empty() && own.is_sorted(), "each end has keys, and their order is kept");
        for n in own {
            assert_eq!(*home.entry(n % 37).or_insert(end), end, "key {} has two homes", n % 37);
        }
    }
    assert_eq!(all, 1_000);
}

/// Neither `Clone` nor serialisable, like a socket.
struct Socket(mpsc::Sender<u64>);

#[test]
fn a_local_connector_takes_what_can_neither_be_copied_nor_serialised() {
    let (heard, hears) = mpsc::channel();
    let app = App::new("local");
    let sockets =
        app.source("sockets", move || (0..10u64).map(move |n| (n, Socket(heard.clone()))));
    let pass = app.map("pass", |socket: (u64, Socket)| socket);
    let answer = |(n, socket): (u64, Socket)| -> Result { Ok(socket.0.send(n)?) };
    let ends = ["one", "two"].map(|name| app.sink(name, answer));
    app.connect_local(sockets, pass);
    app.by_key_local(pass, |(n, _): &(u64, Socket)| *n, ends);
    let mut runtime = TestRuntime::new(app, &Plan::new()).unwrap();
    assert!(runtime.run());
    let mut heard: Vec<u64> = hears.try_iter().collect();
    heard.sort_unstable();
    assert!(heard.into_iter().eq(0..10));
}

fn faults(app: App) -> Vec<String> {
    match app.start(&Plan::new().threads(1)) {
        Err(StartError::Graph(faults)) => faults.iter().map(ToString::to_string).collect(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn two_local_connectors_on_one_port_are_refused() {
    let app = App::new("uncopied");
    let numbers = app.source("numbers", || 0..3u64);
    app.connect_local(numbers, app.sink("one", |_: u64| {}));
    app.connect_local(numbers, app.sink("two", |_: u64| {}));
    assert_eq!(
        faults(app),
        ["`numbers` is connected 2 times, so its events are copied, but all its connectors are \
          local and none says how: use `connect` for one of them, or one connector with several ends"]
    );
}

#[test]
fn handles_of_another_app_are_refused() {
    let other = App::new("other");
    let foreign = other.sink("foreign", |_: u64| {});
    let app = App::new("own");
    let numbers = app.source("numbers", || 0..3u64);
    app.connect(numbers, foreign);
    let Err(StartError::Graph(faults)) = app.check() else { panic!("accepted") };
    assert_eq!(faults, [GraphFault::Foreign { app: "own".into() }]);
    assert_eq!(
        faults[0].to_string(),
        "a handle of another app was used in `own`: connect only stages of one app"
    );
}

#[test]
fn every_mistake_of_a_graph_is_reported_before_anything_runs() {
    let app = App::new("mistakes");
    let numbers = app.source("numbers", || -> std::ops::Range<u64> { panic!("opened") });
    let _lonely = app.sink("lonely", |_: u64| {});
    let twice = app.sink("twice", |_: u64| {}).stateful().ordered();
    app.connect(numbers, twice);
    app.connect(numbers, app.sink("twice", |_: u64| {}));
    app.connect(numbers, app.sink("no name", |_: u64| {}));
    app.round_robin(numbers, Vec::<comporta::StageRef<'_, u64, ()>>::new());
    let faults = faults(app);
    let expected = [
        "nothing sends to the stage `lonely`: connect a port to it, or make it `autostart`",
        "the stage `twice` is stateful and ordered: a stateful stage has one instance and keeps order as it is",
        "two stages are called `twice`: every name is used once",
        "`no name` cannot be the name of a stage: use letters, digits, `_`, `-` and `.`, at least one",
        "a connector from `numbers` has no end: give it at least one stage",
    ];
    assert_eq!(faults, expected);
}

#[test]
fn a_recorder_sees_each_port_by_itself() {
    let app = App::new("recorded");
    let numbers = app.source("numbers", || 0..6u64);
    let sort = app.stage("sort", Sort);
    app.connect(numbers, sort);
    let (even, odd) = (record(&app, sort.even), record(&app, sort.odd));
    let mut runtime = TestRuntime::new(app, &Plan::new()).unwrap();
    assert!(runtime.run());
    assert_eq!((even.take(), odd.take()), (vec![0, 2, 4], vec![1, 3, 5]));
}

#[test]
fn handles_are_equal_if_they_are_of_one_stage_or_port() {
    use std::collections::HashSet;
    let app = App::new("handles");
    let first = app.map("first", |n: u64| n);
    let other = app.map("other", |n: u64| n);
    let ports = HashSet::from([first.as_port(), first.as_port(), other.as_port()]);
    assert_eq!(ports.len(), 2);
    let stages = HashSet::from([first.to_string(), other.to_string()]);
    assert_eq!(stages, HashSet::from(["first".to_owned(), "other".to_owned()]));
}
