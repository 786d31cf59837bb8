//! Promise: a plan may have a stage stand in several replicas. Nothing is lost or handled twice, counts add up over all of
//! them, and what must be one is refused.
//! Long because all that replicas promise stands in one place.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use comporta::testing::TestRuntime;
use comporta::windows::{self, Windowed, Windows};
use comporta::{
    App, Cx, Error, Ev, Failed, Out, Part, Plan, Port, Result, Retry, Stage, Time, WhenFull,
};

use crate::seen::{collector, counts, stage, taken};

/// Notes which instance handles an event, and sends it on.
#[derive(Clone, Default)]
struct Note(Arc<Mutex<Vec<(usize, u64)>>>);

impl Stage for Note {
    type In = u64;
    type Ports = Out<u64>;

    fn handle(&mut self, event: Ev<'_, u64>, out: &mut Out<u64>, cx: &Cx) -> Result {
        self.0.lock().unwrap().push((cx.instance(), *event));
        out.send(*event);
        Ok(())
    }
}

impl Note {
    /// What each instance handled, in order.
    fn by_instance(&self) -> BTreeMap<usize, Vec<u64>> {
        let mut by_instance = BTreeMap::<_, Vec<u64>>::new();
        for (instance, event) in &*self.0.lock().unwrap() {
            by_instance.entry(*instance).or_default().push(*event);
        }
        by_instance
    }
}

fn numbers(app: &App) -> Port<u64> {
    app.source_parts("numbers", |part: Part| part.of(1_000))
}

#[test]
fn every_event_is_handled_once_and_counts_are_those_of_all_replicas() {
    for threads in [1, 2, 4] {
        let app = App::new("replicas");
        let numbers = numbers(&app);
        let double = app.map("double", |n: u64| 2 * n);
        let (seen, see) = collector();
        let sink = app.sink("sink", see);
        app.connect(numbers, double);
        app.connect(double, sink);
        let plan = Plan::new().threads(threads).every(|s| s.replicas(3).capacity(50).instances(2));
        let plan = plan.stage("sink", |s| s.replicas(1).instances(1));
        let summary = app.run(&plan).unwrap();
        let mut seen = taken(&seen);
        seen.sort_unstable();
        assert!(seen.into_iter().eq((0..1_000).map(|n| 2 * n)));
        let snapshot = &summary.snapshot;
        assert!(snapshot.adds_up(), "{summary}");
        let names: Vec<_> = snapshot.stages.iter().map(|stage| stage.name.as_str()).collect();
        assert_eq!(names, ["numbers", "double", "sink"]);
        assert_eq!(snapshot.pools[0].stages, names);
        let double = stage(snapshot, "double");
        assert_eq!((double.replicas, double.capacity), (3, 150));
        assert_eq!((double.counts.handled, double.counts.emitted), (1_000, 1_000));
        assert_eq!(double.sent, [("sink".to_owned(), 1_000)]);
        assert_eq!(stage(snapshot, "sink").replicas, 1);
    }
}

#[test]
fn replicas_of_one_number_are_joined_one_to_one_and_each_keeps_its_order() {
    let app = App::new("chain");
    let (first, last) = (Note::default(), Note::default());
    let a = app.stage("a", first.clone());
    let b = app.stage("b", last.clone());
    app.connect(numbers(&app), a);
    app.connect(a, b);
    app.connect(b, app.sink("end", |_: u64| ()));
    let _ = app.run(&Plan::new().threads(2).every(|s| s.replicas(2))).unwrap();
    for note in [first, last] {
        let by_instance = note.by_instance();
        assert!(by_instance[&0].iter().copied().eq(0..500), "{by_instance:?}");
        assert!(by_instance[&1].iter().copied().eq(500..1_000), "{by_instance:?}");
    }
}

#[test]
fn one_sends_to_several_in_turn_and_a_key_finds_the_same_one() {
    let app = App::new("fan");
    let (turns, keys) = (Note::default(), Note::default());
    let a = app.stage("in-turn", turns.clone());
    let b = app.stage("by-key", keys.clone());
    let numbers = app.source("numbers", || 0..900_u64);
    app.connect(numbers, a);
    app.by_key(a, |n| n % 30, [b]);
    app.connect(b, app.sink("end", |_: u64| ()));
    let plan = Plan::new().threads(2).stage("in-turn", |s| s.replicas(3));
    let summary = app.run(&plan.stage("by-key", |s| s.replicas(3))).unwrap();
    assert!(summary.snapshot.adds_up(), "{summary}");
    assert!(turns.by_instance().values().all(|events| events.len() == 300));
    let keys = keys.by_instance();
    assert_eq!(keys.values().map(Vec::len).sum::<usize>(), 900);
    let keys = keys.into_values();
    let keys: Vec<BTreeSet<u64>> =
        keys.map(|events| events.into_iter().map(|n| n % 30).collect()).collect();
    assert_eq!(keys.iter().map(BTreeSet::len).sum::<usize>(), 30, "a key went to two: {keys:?}");
    assert!(keys.len() > 1);
}

#[test]
fn what_must_be_one_is_refused_and_every_stage_means_those_that_may_be_several() {
    let app = || {
        let app = App::new("one");
        let source = app.source("source", || 0..10_u64);
        let (_, input) = app.input::<u64>("input");
        let stateful = app.map("stateful", |n: u64| n).stateful();
        let ordered = app.map("ordered", |n: u64| n).ordered();
        let keyed = app.map("keyed", |n: u64| n).keyed(|n| *n);
        let started = app.map("started", |n: u64| n).keyed(|n| *n).autostart(1);
        let cyclic = app.filter("cyclic", |_: &u64| false);
        let plain = app.map("plain", |n: u64| n);
        app.connect(source, stateful);
        app.connect(input, stateful);
        app.connect(stateful, ordered);
        app.round_robin(ordered, [keyed, plain]);
        app.connect(keyed, cyclic);
        app.connect(started, plain);
        app.connect(cyclic, cyclic);
        app.connect(cyclic, plain);
        app.connect(plain, app.sink("end", |_: u64| ()));
        app
    };
    let cases = [
        ("source", "its source is not in parts: declare it by `App::source_parts`"),
        ("input", "it is an input: its events come in at one place"),
        ("stateful", "it is stateful, and must see all events"),
        ("ordered", "it is ordered, and its results leave in the order of all events"),
        ("keyed", "it is keyed, and a connector with several ends chooses it by something else"),
        ("started", "it is keyed and has an event at the start, which belongs to one of them"),
        ("cyclic", "it is part of a cycle"),
    ];
    for (name, why) in cases {
        let error = app().start(&Plan::new().stage(name, |s| s.replicas(2))).unwrap_err();
        let text = format!("`{name}` cannot have several replicas: {why}");
        assert!(error.to_string().contains(&text), "{error}");
    }
    for (plan, text) in [
        (Plan::new().stage("plain", |s| s.replicas(0)), "the number of replicas of `plain` is 0"),
        (Plan::new().every(|s| s.replicas(2_000)), "the number of replicas of every stage is 2000"),
        (
            Plan::new().stage("plain", |s| s.replicas(2).elastic("elastic")),
            "`plain` cannot have several replicas: it is elastic: its threads follow the load of one queue",
        ),
    ] {
        let error = app().start(&plan).unwrap_err().to_string();
        assert!(error.contains(text), "{error}");
    }
    let running = app().start(&Plan::new().every(|s| s.replicas(2))).unwrap();
    let summary = running.drain();
    let replicas = |name| stage(&summary.snapshot, name).replicas;
    assert!(cases.iter().all(|(name, _)| replicas(name) == 1));
    assert_eq!((replicas("plain"), replicas("end")), (2, 2));
}

#[test]
fn changes_hold_for_all_replicas() {
    let app = App::new("live");
    let (_sender, input) = app.input::<u64>("input");
    let work = app.map("work", |n: u64| n);
    let sink = app.sink("sink", |_: u64| ());
    app.connect(input, work);
    app.connect(work, sink);
    let plan = Plan::new().stage("work", |s| s.replicas(3).instances(2));
    let plan = plan.cluster("side", |side| side.threads(1).stages("none".parse().unwrap()));
    let runtime = TestRuntime::new(app, &plan).unwrap();
    let control = runtime.control();
    let work = || stage(&runtime.snapshot(), "work").clone();
    assert_eq!((work().instances, work().capacity), (6, 3 * 1_024));
    control.set_instances("work", 4).unwrap();
    control.set_capacity("work", 10).unwrap();
    control.set_priority("work", 7).unwrap();
    control.move_stage("work", "side").unwrap();
    control.set_admission("work", "codel").unwrap();
    control.set_enabled("work", false).unwrap();
    assert_eq!((work().instances, work().capacity, work().priority), (12, 30, 7));
    assert!(work().admission.is_some());
    let snapshot = runtime.snapshot();
    assert!(!snapshot.pools[0].stages.contains(&"work".to_owned()), "all have moved");
    assert_eq!(snapshot.pools[1].stages, ["work"]);
}

#[test]
fn a_disabled_stage_sheds_at_each_replica() {
    let app = App::new("shut");
    let (sender, input) = app.input::<u64>("input");
    let sink = app.sink("sink", |_: u64| ());
    app.connect(input, sink);
    let plan = Plan::new().stage("sink", |s| s.replicas(3).capacity(1));
    let mut runtime = TestRuntime::new(app, &plan).unwrap();
    runtime.hold("sink");
    (0..3).for_each(|n| sender.try_send(n).unwrap());
    assert!(sender.try_send(3).is_err(), "each has room for one");
    runtime.control().set_enabled("sink", false).unwrap();
    runtime.resume("sink");
    runtime.run_until_idle();
    (4..7).for_each(|n| sender.try_send(n).unwrap());
    let counts = counts(&runtime, "sink");
    assert_eq!((counts.handled, counts.shed_on_entry()), (3, 3));
}

#[test]
fn failures_of_all_replicas_are_one_list() {
    let app = App::new("failures");
    let (sender, input) = app.input::<u64>("input");
    let fails = Arc::new(Mutex::new(true));
    let switch = fails.clone();
    let sink = app.sink("sink", move |n: u64| match *switch.lock().unwrap() {
        true => Err(Error::msg(n.to_string())),
        false => Ok(()),
    });
    let sink = sink.retain();
    app.connect(input, sink);
    let mut runtime = TestRuntime::new(app, &Plan::new().stage("sink", |s| s.replicas(3))).unwrap();
    for n in 0..7 {
        sender.try_send(n).unwrap();
        runtime.run_until_idle();
        runtime.advance(Duration::from_millis(1));
    }
    let control = runtime.control();
    let reasons = control.failures("sink").unwrap();
    let reasons: Vec<_> = reasons.iter().map(|failure| failure.reason.to_string()).collect();
    assert_eq!(reasons, ["0", "1", "2", "3", "4", "5", "6"]);
    assert_eq!(stage(&runtime.snapshot(), "sink").failures_kept, 7);
    *fails.lock().unwrap() = false;
    assert_eq!(control.replay("sink", 5).unwrap(), 5, "the oldest of all");
    runtime.run_until_idle();
    assert_eq!(counts(&runtime, "sink").handled, 5);
    assert!(control.take_failures::<String>("sink").is_err());
    let left = control.take_failures::<u64>("sink").unwrap();
    assert_eq!(left.iter().filter_map(|(_, event)| *event).collect::<Vec<_>>(), [5, 6]);
    drop(sender);
    assert!(runtime.run());
    assert!(runtime.snapshot().adds_up());
}

#[test]
fn what_the_plan_says_of_connectors_retries_and_errors_holds_for_each() {
    let app = App::new("rules");
    let parse =
        app.try_map(
            "parse",
            |n: u64| if n.is_multiple_of(10) { Err(Error::msg("ten")) } else { Ok(n) },
        );
    let show = app.sink("show", |_: u64| ());
    let dead = app.sink("dead", |failed: Failed<u64>| assert_eq!(failed.event.unwrap() % 10, 0));
    app.connect(numbers(&app), parse);
    app.connect(parse, show);
    app.connect(parse.errors(), dead);
    let plan = Plan::new()
        .every(|s| s.replicas(2).capacity(4).batch(4))
        .stage("parse", |s| s.retry(Retry::new(2, Duration::ZERO)))
        .stage("dead", |s| s.replicas(1))
        .connector("parse -> show", |way| way.when_full(WhenFull::DropOldest));
    let mut runtime = TestRuntime::new(app, &plan).unwrap();
    runtime.hold("show");
    runtime.run_until_idle();
    let snapshot = runtime.snapshot();
    assert_eq!(stage(&snapshot, "show").queued, 8, "all came, and most were dropped");
    assert_eq!(counts(&runtime, "show").arrived, 900);
    let parse = counts(&runtime, "parse");
    assert_eq!((parse.handled, parse.failed, parse.retried), (900, 100, 100));
    assert_eq!(counts(&runtime, "dead").handled, 100);
    runtime.resume("show");
    assert!(runtime.run());
    assert!(runtime.snapshot().adds_up());
}

#[test]
fn parts_of_a_source_share_its_rate() {
    let app = App::new("rate");
    app.connect(numbers(&app), app.sink("sink", |_: u64| ()));
    let plan = Plan::new().stage("numbers", |s| s.replicas(4).rate(100.0));
    let mut runtime = TestRuntime::new(app, &plan).unwrap();
    runtime.run_until_idle();
    runtime.advance(Duration::from_secs(2));
    let sent = counts(&runtime, "numbers").emitted;
    assert!((200..=204).contains(&sent), "{sent} in two seconds");
}

#[test]
fn an_event_that_is_there_at_the_start_is_there_once() {
    let app = App::new("start");
    let first = app.map("first", |n: u64| n + 1).autostart(1);
    let (seen, see) = collector();
    app.connect(first, app.sink("sink", see));
    let plan = Plan::new().stage("first", |s| s.replicas(3));
    let summary = app.run(&plan).unwrap();
    assert_eq!(taken(&seen), [2]);
    assert!(summary.snapshot.adds_up(), "{summary}");
}

#[test]
fn a_part_that_cannot_be_opened_keeps_the_program_from_starting() {
    let app = App::new("parts");
    let open = |part: Part| match part.index() {
        2 => Err(Error::msg("no third part")),
        _ => Ok(part.of(10)),
    };
    app.connect(app.source_parts("numbers", open), app.sink("sink", |_: u64| ()));
    let error = app.start(&Plan::new().stage("numbers", |s| s.replicas(3))).unwrap_err();
    assert!(error.to_string().contains("no third part"), "{error}");
}

#[test]
fn replicas_before_a_keyed_stage_are_named() {
    let app = App::new("overtaken");
    let keyed = app.sink("keyed", |_: u64| ()).keyed(|n| n % 7);
    app.connect(numbers(&app), keyed);
    let warnings = app.rehearse(&Plan::new().every(|s| s.replicas(2))).unwrap();
    let text = "events of one key may overtake each other in `numbers`, which has 2 replicas, before `keyed` can keep \
                them in order, unless each key comes by one of them: set `stage.numbers.replicas=1`";
    assert_eq!(warnings.iter().map(ToString::to_string).collect::<Vec<_>>(), [text]);
}

#[test]
fn a_key_has_one_replica_whoever_sends_it_and_its_state_is_found_there() {
    for threads in [1, 2, 4] {
        let app = App::new("keyed");
        let numbers = numbers(&app);
        let more = app.source("more", || 1_000..2_000_u64);
        let spread = app.map("spread", |n: u64| n);
        let (seen, see) = collector();
        let add = |count: &mut u64, n: u64, out: &mut Out<(u64, u64)>| {
            *count += 1;
            out.send((n % 50, *count));
        };
        let count = app.keyed("count", |n: &u64| n % 50, add);
        let last = app.sink("last", see);
        app.connect(numbers, spread);
        app.connect(spread, count);
        app.connect(more, count);
        let (open, input) = app.input::<u64>("open");
        app.connect(input, count);
        app.connect(count, last);
        let plan = Plan::new().threads(threads).every(|s| s.replicas(3).batch(16));
        let plan = plan.stage("count", |s| s.replicas(4).instances(2));
        let mut runtime = TestRuntime::new(app, &plan.stage("last", |s| s.replicas(1))).unwrap();
        let control = runtime.control();
        control.count_keys("count").unwrap();
        runtime.run_until_idle();
        for key in 0..50_u64 {
            assert_eq!(control.key_state::<u64, u64>("count", &key).unwrap(), Some(40));
        }
        assert_eq!(control.set_key_state("count", 7_u64, 5_u64).unwrap(), Some(40));
        assert_eq!(control.key_state::<u64, u64>("count", &7).unwrap(), Some(5));
        drop(open);
        assert!(runtime.run());
        let snapshot = runtime.snapshot();
        assert!(snapshot.adds_up());
        assert!(!stage(&snapshot, "count").top_keys.is_empty());
        let mut counted = taken(&seen);
        counted.sort_unstable();
        assert!(counted.into_iter().eq((0..50).flat_map(|key| (1..=40).map(move |n| (key, n)))));
    }
}

#[test]
fn windows_behind_replicas_close_by_the_event_time_of_every_part() {
    let sums = |replicas: usize, threads: usize| {
        let app = App::new("windows");
        let numbers = app.source_parts("numbers", |part: Part| {
            (part.index() as u64..5_000).step_by(part.count()) // as they happened, side by side
        });
        let sums = app.window(
            "sums",
            |n: &u64| n % 7,
            |n: &u64| Time::from_millis(*n),
            Windows::tumbling(Duration::from_millis(100)),
            windows::sum(|n: &u64| *n),
        );
        let (seen, see) = collector();
        app.connect(numbers, sums);
        app.connect(sums.late, app.sink("late", |_: u64| ()));
        app.connect(
            sums.windows,
            app.sink("sink", move |of: Windowed<u64, u64>| see((of.key, of.start, of.value))),
        );
        let plan = Plan::new().threads(threads).every(|s| s.replicas(replicas));
        let summary = app.run(&plan.stage("sink", |s| s.replicas(1))).unwrap();
        assert!(summary.snapshot.adds_up(), "{summary}");
        assert_eq!(stage(&summary.snapshot, "sums").replicas, 1, "it keeps event time");
        assert_eq!(stage(&summary.snapshot, "late").counts.handled, 0, "{summary}");
        let mut sums = taken(&seen);
        sums.sort_unstable();
        sums
    };
    let expected = sums(1, 1);
    assert_eq!(expected.len(), 350);
    let often = std::iter::repeat_n((4, 4), 20); // one that ends early must not close the windows of another
    for (replicas, threads) in [(2, 2), (3, 1)].into_iter().chain(often) {
        assert!(sums(replicas, threads) == expected, "{replicas} replicas, {threads} threads");
    }
}

#[test]
fn replicas_that_have_ended_do_not_keep_the_others_from_changing() {
    let app = App::new("ends");
    let source = app.source_parts("source", |part: Part| {
        let events = if part.index() == 0 { 1 } else { u64::MAX };
        0..events
    });
    let work = app.map("work", |n: u64| n);
    app.connect(source, work);
    app.connect(work, app.sink("sink", |_: u64| ()));
    let plan = Plan::new().threads(2).every(|s| s.replicas(3).capacity(4));
    let mut runtime = TestRuntime::new(app, &plan.stage("sink", |s| s.replicas(1))).unwrap();
    (0..100).for_each(|_| assert!(runtime.step()));
    let instances = || stage(&runtime.snapshot(), "work").instances;
    assert_eq!(instances(), 2, "one has ended");
    runtime.control().set_instances("work", 3).unwrap();
    assert_eq!(instances(), 6);
    runtime.close();
    assert!(runtime.run());
    assert!(runtime.control().set_instances("work", 2).is_err(), "all have ended");
}

#[test]
fn a_change_that_one_replica_refuses_is_made_to_none() {
    let made = Arc::new(Mutex::new(0));
    let count = made.clone();
    let app = App::new("refused");
    let (_sender, input) = app.input::<u64>("input");
    let work = app.stage_with("work", move |_| {
        let mut made = count.lock().unwrap();
        *made += 1;
        if *made > 8 { Err(Error::msg("no more than eight")) } else { Ok(Note::default()) }
    });
    app.connect(input, work);
    app.connect(work, app.sink("sink", |_: u64| ()));
    let plan = Plan::new().policy("seda(threads=2)".parse::<comporta::Choice>().unwrap());
    let plan = plan.stage("work", |s| s.replicas(3));
    let runtime = TestRuntime::new(app, &plan).unwrap();
    let instances = || stage(&runtime.snapshot(), "work").instances;
    assert_eq!(instances(), 6, "as the policy has it");
    let refused = runtime.control().set_instances("work", 4).unwrap_err().to_string();
    assert!(refused.contains("no more than eight"), "{refused}");
    assert_eq!(instances(), 6);
}

#[test]
fn the_group_of_every_replica_fits_into_its_queue() {
    let app = App::new("groups");
    let (_sender, input) = app.input::<u64>("input");
    let gather = comporta::batched(3, Duration::from_secs(1), |_: Vec<u64>, (): &mut ()| ());
    app.connect(input, app.stage("gather", gather));
    let runtime = TestRuntime::new(app, &Plan::new().every(|s| s.replicas(2))).unwrap();
    assert!(runtime.control().set_capacity("gather", 2).is_err());
    runtime.control().set_capacity("gather", 3).unwrap();
    assert_eq!(stage(&runtime.snapshot(), "gather").capacity, 6);
}

#[test]
fn what_is_rehearsed_is_the_program_with_its_replicas() {
    let app = App::new("many");
    let work = app.map("work", |n: u64| n);
    app.connect(numbers(&app), work);
    app.connect(work, app.sink("sink", |_: u64| ()));
    let seda = |threads| comporta::Choice::new("seda").with("threads", threads);
    let plan = |replicas| Plan::new().policy(seda(100)).every(|s| s.replicas(replicas));
    assert!(app.rehearse(&plan(2)).is_ok());
    let refused = app.rehearse(&plan(8)).unwrap_err();
    assert!(refused[0].to_string().contains("threads"), "{refused:?}");
    // The plan has given up the order: the policy does not.
    let said = app.rehearse(&Plan::new().policy(seda(4)).every(|s| s.replicas(2))).unwrap();
    assert!(said.is_empty(), "{said:?}");
}

#[test]
fn a_key_that_cannot_be_had_fails_its_event_and_not_its_sender() {
    let app = App::new("panics");
    let (sender, input) = app.input::<u64>("input");
    let work = app.sink("work", |_: u64| ()).keyed(|n| {
        assert!(n % 10 > 0, "no key");
        n % 7
    });
    app.connect(input, work);
    let plan = Plan::new().stage("work", |s| s.replicas(3));
    let mut runtime = TestRuntime::new(app, &plan).unwrap();
    (0..100).for_each(|n| sender.try_send(n).unwrap());
    drop(sender);
    assert!(runtime.run());
    let counts = counts(&runtime, "work");
    assert_eq!((counts.handled, counts.failed, counts.lost), (90, 10, 0));
    assert!(runtime.snapshot().adds_up());
}

#[test]
fn the_busiest_keys_of_all_replicas_are_as_few_as_those_of_one() {
    let app = App::new("busy");
    let (sender, input) = app.input::<u64>("input");
    app.connect(input, app.sink("work", |_: u64| ()).keyed(|n| *n));
    let plan = Plan::new().stage("work", |s| s.replicas(8));
    let mut runtime = TestRuntime::new(app, &plan).unwrap();
    runtime.control().count_keys("work").unwrap();
    runtime.hold("work");
    (0..200).for_each(|n| sender.try_send(n).unwrap());
    let keys = stage(&runtime.snapshot(), "work").top_keys.len();
    assert!((1..=15).contains(&keys), "{keys}");
}
