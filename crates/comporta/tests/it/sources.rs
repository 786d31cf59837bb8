//! Where events come from: iterators, lines, timers, senders, and sources that hear when
//! everything their events led to has settled.
//! Long because the kinds of sources share their helpers.

use std::collections::VecDeque;
use std::future::Future;
use std::io::Cursor;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use comporta::sources::LongLine;
use comporta::testing::{TestRuntime, record};
use comporta::{
    App, Cx, Demand, Ended, Error, Ev, Out, Plan, Pull, Result, SendError, Settled, Shed, Source,
    Stage, StartError, WhenFull, batched, sources,
};

use crate::seen::{Gate, collector, counts, ends, run, stage, taken, thread, until};

const MS: Duration = Duration::from_millis(1);

#[test]
fn an_iterator_is_pulled_only_as_far_as_there_is_room() {
    let app = App::new("iterator");
    let pulled = Arc::new(Mutex::new(0));
    let counter = pulled.clone();
    let numbers = app
        .source("numbers", move || (0..1_000u64).inspect(move |_| *counter.lock().unwrap() += 1));
    let sink = app.sink("sink", |_: u64| {});
    app.connect(numbers, sink);
    let mut runtime =
        TestRuntime::new(app, &Plan::new().stage("sink", |s| s.capacity(10))).unwrap();
    runtime.hold("sink");
    runtime.run_until_idle();
    assert_eq!(*pulled.lock().unwrap(), 11, "ten fill the queue, one waits");
    assert_eq!(counts(&runtime, "numbers").visits, 1, "for which it is not pulled again");
    runtime.resume("sink");
    assert!(runtime.run());
    assert_eq!(counts(&runtime, "sink").handled, 1_000);
}

#[test]
fn a_source_closed_while_it_waits_for_room_is_not_pulled_again() {
    let app = App::new("iterator");
    let numbers = app.source("numbers", || 0..1_000u64);
    app.connect(numbers, app.sink("sink", |_: u64| {}));
    let mut runtime =
        TestRuntime::new(app, &Plan::new().stage("sink", |s| s.capacity(10))).unwrap();
    runtime.hold("sink");
    runtime.run_until_idle();
    runtime.close();
    runtime.resume("sink");
    assert!(runtime.run());
    assert_eq!(
        counts(&runtime, "sink").handled,
        11,
        "what filled the queue, and the one that waited"
    );
}

fn lines(bytes: &'static [u8]) -> Vec<String> {
    let app = App::new("lines");
    let (seen, see) = collector();
    let lines = app.source("lines", move || sources::lines_of("bytes", Cursor::new(bytes)));
    app.connect(lines, app.sink("sink", see));
    let mut runtime = TestRuntime::new(app, &Plan::new()).unwrap();
    assert!(runtime.run());
    assert!(runtime.problems().is_empty());
    taken(&seen)
}

#[test]
fn lines_come_without_their_ends() {
    assert_eq!(lines(b"a\nb\r\n\nc\rd\n"), ["a", "b", "", "c\rd"]);
    assert_eq!(lines(b"no end"), ["no end"]);
    assert_eq!(lines(b"one\r\ntwo\r"), ["one", "two"]);
    assert!(lines(b"").is_empty());
}

#[test]
fn a_bad_byte_is_replaced_and_ends_nothing() {
    assert_eq!(lines(b"good\nb\xffd\nagain\n"), ["good", "b\u{fffd}d", "again"]);
}

#[test]
fn the_lines_of_a_file_come_in_order() {
    let path = std::env::temp_dir().join(format!("comporta-lines-{}", std::process::id()));
    let text: String = (0..2_000).map(|n| format!("{n}\n")).collect();
    std::fs::write(&path, text).unwrap();
    let app = App::new("file");
    let (seen, see) = collector();
    let from = path.clone();
    app.connect(app.source("lines", move || sources::lines(from)), app.sink("sink", see));
    let summary = run(app, &Plan::new().threads(2));
    std::fs::remove_file(&path).unwrap();
    assert_eq!(summary.ended, Ended::Complete);
    assert!(taken(&seen).into_iter().eq((0..2_000).map(|n| n.to_string())));
}

#[test]
fn a_file_that_is_not_there_keeps_the_program_from_starting_and_is_named() {
    let app = App::new("missing");
    let lines = app.source("lines", || sources::lines("/nowhere/words.txt"));
    app.connect(lines, app.sink("sink", |_: String| {}));
    let error = app.start(&Plan::new().threads(1)).unwrap_err();
    let StartError::Stage { name, message } = error else { panic!("{error}") };
    assert_eq!(name, "lines");
    assert!(message.starts_with("/nowhere/words.txt: "), "{message}");
}

#[test]
fn a_line_that_is_too_long_fails_or_is_cut_or_skipped() {
    let run = |long: LongLine| {
        let text = b"four\nfive5\nsix666\r\nfour\r\nsevenseven";
        let app = App::new("long");
        let lines = app
            .source("lines", move || sources::lines_of("text", Cursor::new(text)).max_len(4, long));
        let sent = record(&app, lines);
        let mut runtime = TestRuntime::new(app, &Plan::new()).unwrap();
        assert!(runtime.run());
        (sent.take(), runtime.problems())
    };
    let (sent, problems) = run(LongLine::Fail);
    assert_eq!(sent, ["four"]);
    assert_eq!(problems, ["the source `lines` failed: text: line 2 is longer than 4 bytes"]);
    assert_eq!(run(LongLine::Cut).0, ["four", "five", "six6", "four", "seve"]);
    assert_eq!(run(LongLine::Skip), (vec!["four".to_owned(), "four".to_owned()], Vec::new()));
}

#[test]
fn a_file_is_followed_while_it_grows_is_rotated_and_is_cut_short() {
    let folder = std::env::temp_dir().join(format!("comporta-follow-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (log, old) = (folder.join("log"), folder.join("log.1"));
    let app = App::new("follow");
    let path = log.clone();
    let lines = app.source("lines", move || sources::follow(path));
    let sent = record(&app, lines);
    app.connect(lines, app.sink("end", |_: String| {}));
    let mut runtime = TestRuntime::new(app, &Plan::new()).unwrap();
    let mut seen = || {
        runtime.advance(Duration::from_secs(1));
        assert!(runtime.problems().is_empty(), "{:?}", runtime.problems());
        sent.take()
    };
    let append = |path: &std::path::Path, text: &str| {
        use std::io::Write;
        let file = std::fs::OpenOptions::new().append(true).create(true).open(path);
        file.unwrap().write_all(text.as_bytes()).unwrap();
    };
    assert!(seen().is_empty(), "there is no file yet");
    append(&log, "one\ntw");
    assert_eq!(seen(), ["one"], "a line is sent when it has its end");
    append(&log, "o\n");
    assert_eq!(seen(), ["two"]);
    std::fs::rename(&log, &old).unwrap();
    append(&old, "three\nfour");
    assert_eq!(seen(), ["three"], "there is no other of its name yet");
    append(&log, "five\n");
    assert_eq!(seen(), ["four", "five"], "what the old one holds comes first");
    std::fs::write(&log, "6\n").unwrap();
    assert_eq!(seen(), ["6"], "it was cut short");
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_channel_of_the_standard_library_is_a_source() {
    let (sender, receiver) = std::sync::mpsc::sync_channel(4);
    let app = App::new("channel");
    let (seen, see) = collector();
    app.connect(app.source("numbers", move || sources::receiver(receiver)), app.sink("sink", see));
    let sends = thread(move || (0..1_000_u64).for_each(|n| sender.send(n).unwrap()));
    let summary = run(app, &Plan::new().threads(2));
    sends.join().unwrap();
    assert_eq!(summary.ended, Ended::Complete);
    assert!(taken(&seen).into_iter().eq(0..1_000));
}

/// Notes when events come, in milliseconds.
#[derive(Clone, Default)]
struct Times(Arc<Mutex<Vec<(u64, u64)>>>);
impl Stage for Times {
    type In = u64;
    type Ports = ();
    fn handle(&mut self, n: Ev<'_, u64>, (): &mut (), cx: &Cx) -> Result {
        self.0.lock().unwrap().push((cx.now().as_nanos() / 1_000_000, *n));
        Ok(())
    }
}

#[test]
fn a_paced_source_sends_each_event_when_its_time_has_come() {
    let app = App::new("paced");
    let times = Times::default();
    app.connect(app.source("n", || sources::paced(100.0, 0..4u64)), app.stage("s", times.clone()));
    let mut runtime = TestRuntime::new(app, &Plan::new()).unwrap();
    assert!(runtime.run());
    assert_eq!(taken(&times.0), [(0, 0), (10, 1), (20, 2), (30, 3)]);
}

#[test]
fn a_paced_source_makes_up_for_time_lost_so_that_its_rate_holds() {
    let app = App::new("late");
    let times = Times::default();
    app.connect(app.source("n", || sources::paced(100.0, 0..6u64)), app.stage("s", times.clone()));
    let mut runtime = TestRuntime::new(app, &Plan::new()).unwrap();
    runtime.run_until_idle();
    runtime.hold("n");
    runtime.advance(35 * MS);
    runtime.resume("n");
    runtime.advance(20 * MS);
    assert_eq!(taken(&times.0), [(0, 0), (35, 1), (35, 2), (35, 3), (40, 4), (50, 5)]);
}

#[test]
fn ticks_come_one_a_gap_and_those_missed_are_skipped() {
    let app = App::new("ticks");
    let times = Times::default();
    app.connect(app.source("ticks", || sources::every(10 * MS)), app.stage("s", times.clone()));
    let mut runtime = TestRuntime::new(app, &Plan::new()).unwrap();
    runtime.advance(25 * MS);
    assert_eq!(taken(&times.0), [(10, 0), (20, 1)]);
    runtime.hold("ticks");
    runtime.advance(30 * MS);
    runtime.resume("ticks");
    runtime.advance(10 * MS);
    assert_eq!(taken(&times.0), [(55, 4), (60, 5)]);
    runtime.close();
    assert!(runtime.run(), "closing ends it though it never would");
}

#[test]
fn a_source_without_a_rate_or_gap_is_reported() {
    let app = App::new("zero");
    let sink = app.sink("sink", |_: u64| {});
    app.connect(app.source("ticks", || sources::every(Duration::ZERO)), sink);
    app.connect(app.source("paced", || sources::paced(0.0, 0..3u64)), sink);
    let mut runtime = TestRuntime::new(app, &Plan::new()).unwrap();
    assert!(runtime.run());
    let mut problems = runtime.problems();
    problems.sort();
    assert_eq!(
        problems,
        [
            "the source `paced` failed: a paced source needs a rate above zero",
            "the source `ticks` failed: a timer needs a gap above zero"
        ]
    );
}

#[test]
fn a_push_before_the_start_or_after_the_close_gives_the_event_back() {
    let app = App::new("push");
    let (seen, see) = collector();
    let (sender, port) = app.input("in");
    app.connect(port, app.sink("sink", see));
    assert_eq!(sender.send(1u64), Err(SendError::NotStarted(1)));
    assert_eq!(sender.try_send(2), Err(SendError::NotStarted(2)));
    let running = app.start(&Plan::new().threads(1)).unwrap();
    sender.send(3).unwrap();
    sender.try_send(4).unwrap();
    sender.close();
    assert_eq!(sender.send(5), Err(SendError::Closed(5)));
    assert_eq!(sender.try_send(6).map_err(SendError::into_event), Err(Some(6)));
    assert_eq!(ends(running).ended, Ended::Complete);
    assert_eq!(sender.send(7), Err(SendError::Closed(7)));
    assert_eq!(taken(&seen), [3, 4]);
}

#[test]
fn an_input_closed_or_dropped_before_the_start_ends_at_once() {
    for closes in [false, true] {
        let app = App::new("early");
        let (sender, port) = app.input::<u64>("in");
        app.connect(port, app.sink("sink", |_: u64| {}));
        let kept = if closes {
            sender.close();
            Some(sender)
        } else {
            drop(sender);
            None
        };
        let mut runtime = TestRuntime::new(app, &Plan::new()).unwrap();
        assert!(runtime.run(), "closed: {closes}");
        assert!(kept.is_none_or(|sender| sender.send(1) == Err(SendError::Closed(1))));
    }
}

#[test]
fn the_program_ends_when_all_handles_are_dropped() {
    let app = App::new("handles");
    let (sender, port) = app.input("in");
    let sum = Arc::new(Mutex::new(0));
    app.connect(
        port,
        app.sink("sink", {
            let sum = sum.clone();
            move |n: u64| *sum.lock().unwrap() += n
        }),
    );
    let running = app.start(&Plan::new().threads(2).every(|s| s.capacity(1))).unwrap();
    let pushers: Vec<_> = (0..3)
        .map(|_| {
            let sender = sender.clone();
            thread(move || (1..=1_000u64).for_each(|n| sender.send(n).unwrap()))
        })
        .collect();
    drop(sender);
    let summary = ends(running);
    pushers.into_iter().for_each(|pusher| pusher.join().unwrap());
    assert!(summary.snapshot.adds_up(), "{summary}");
    assert_eq!(*sum.lock().unwrap(), 3 * 500_500);
}

#[test]
fn a_push_waits_for_room_on_its_thread_and_is_cancelled_by_a_stop() {
    let app = App::new("waits");
    let gate = Gate::default();
    let (sender, port) = app.input("in");
    app.connect(
        port,
        app.sink("sink", {
            let gate = gate.clone();
            move |_: u64| gate.pass()
        }),
    );
    let running = app.start(&Plan::new().threads(1).every(|s| s.capacity(1).batch(1))).unwrap();
    sender.send(0).unwrap();
    gate.wait_for(1); // it is in hand: the queue is empty
    sender.send(1).unwrap();
    let waiting = thread({
        let sender = sender.clone();
        move || sender.send(2)
    });
    until(|| stage(&running.snapshot(), "sink").outboxed == 1);
    gate.open();
    assert_eq!(waiting.join().unwrap(), Ok(()));
    until(|| stage(&running.snapshot(), "sink").counts.handled == 3);
    assert_eq!(running.stop().ended, Ended::Stopped);
    assert_eq!(sender.send(9), Err(SendError::Closed(9)));

    let app = App::new("stopped");
    let gate = Gate::default();
    let (sender, port) = app.input("in");
    app.connect(
        port,
        app.sink("sink", {
            let gate = gate.clone();
            move |_: u64| gate.pass()
        }),
    );
    let running = app.start(&Plan::new().threads(1).every(|s| s.capacity(1).batch(1))).unwrap();
    sender.send(0).unwrap();
    gate.wait_for(1);
    sender.send(1).unwrap();
    let waiting = thread(move || sender.send(2));
    until(|| stage(&running.snapshot(), "sink").outboxed == 1);
    let opener = thread({
        let control = running.control();
        move || {
            until(|| control.set_instances("sink", 1).is_err()); // it has been stopped
            gate.open();
        }
    });
    let summary = running.stop();
    opener.join().unwrap();
    assert_eq!(waiting.join().unwrap(), Err(SendError::Cancelled));
    assert!(summary.snapshot.adds_up(), "{summary}");
    let c = stage(&summary.snapshot, "sink").counts;
    assert_eq!((c.arrived, c.handled, c.cancelled), (3, 1, 2));
}

#[test]
fn a_push_in_a_handler_never_holds_its_worker() {
    let app = App::new("inside");
    let (sender, port) = app.input("in");
    let full = app.sink("full", |_: u64| {});
    app.connect(port, full);
    let numbers = app.source("numbers", || 0..3u64);
    let (answers, answer) = collector();
    let pushes = app.sink("pushes", move |n: u64| answer(sender.send(n)));
    app.connect(numbers, pushes);
    let mut runtime = TestRuntime::new(app, &Plan::new().stage("full", |s| s.capacity(1))).unwrap();
    runtime.hold("full");
    runtime.run_until_idle();
    let expected = [Ok(()), Err(SendError::WouldBlock(1)), Err(SendError::WouldBlock(2))];
    assert_eq!(taken(&answers), expected);
    let c = counts(&runtime, "full");
    assert_eq!((c.offered, c.refused, c.arrived), (3, 2, 1));
}

struct Unparks(std::thread::Thread);
impl Wake for Unparks {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unparks(std::thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

#[test]
fn an_asynchronous_push_waits_for_room_as_a_future() {
    let app = App::new("async");
    let (seen, see) = collector();
    let (sender, port) = app.input("in");
    app.connect(port, app.sink("sink", see));
    let running = app.start(&Plan::new().threads(1).every(|s| s.capacity(1))).unwrap();
    for n in 0..2_000u64 {
        block_on(sender.send_async(n)).unwrap();
    }
    sender.close();
    assert_eq!(block_on(sender.send_async(7)), Err(SendError::Closed(7)));
    let summary = ends(running);
    assert!(summary.snapshot.adds_up(), "{summary}");
    assert!(taken(&seen).into_iter().eq(0..2_000));
}

#[test]
fn a_push_that_waits_is_woken_for_a_quarter_of_the_queue_which_nobody_takes_from_it() {
    for rule in [WhenFull::DropNewest, WhenFull::DropOldest, WhenFull::Reject] {
        let app = App::new("quarter");
        let (sender, port) = app.input("in");
        let (lossy, way) = app.input("lossy");
        let sink = app.sink("sink", |_: u64| ());
        app.connect(port, sink);
        app.connect(way, sink);
        let plan = Plan::new()
            .stage("sink", |s| s.capacity(16).batch(1))
            .connector("lossy -> sink", |way| way.when_full(rule));
        let mut runtime = TestRuntime::new(app, &plan).unwrap();
        (0..16).for_each(|n| sender.try_send(n).unwrap());
        let mut context = Context::from_waker(Waker::noop());
        let mut waits = Box::pin(sender.send_async(16));
        for handled in 1..=4 {
            assert!(waits.as_mut().poll(&mut context).is_pending(), "{rule:?}, {handled}");
            assert!(runtime.step());
            // It comes in for every place that is free, and would keep the queue full.
            let _ = lossy.try_send(99);
        }
        assert!(waits.as_mut().poll(&mut context).is_ready(), "{rule:?}");
        drop(waits);
        runtime.run_until_idle();
        assert_eq!(counts(&runtime, "sink").cancelled, 0, "{rule:?}");
        sender.try_send(17).unwrap();
        sender.close();
        lossy.close();
        assert!(runtime.run() && runtime.snapshot().adds_up(), "{rule:?}");
    }
}

#[test]
fn dropping_a_push_that_waits_sheds_its_event_and_leaves_the_line() {
    let app = App::new("dropped");
    let (seen, see) = collector();
    let (sender, port) = app.input("in");
    app.connect(port, app.sink("sink", see));
    let mut runtime = TestRuntime::new(app, &Plan::new().stage("sink", |s| s.capacity(1))).unwrap();
    runtime.hold("sink");
    sender.send(0u64).unwrap();
    let mut context = Context::from_waker(Waker::noop());
    let mut second = Box::pin(sender.send_async(1));
    let mut third = Box::pin(sender.send_async(2));
    assert!(second.as_mut().poll(&mut context).is_pending());
    assert!(third.as_mut().poll(&mut context).is_pending());
    assert_eq!(stage(&runtime.snapshot(), "sink").outboxed, 2);
    drop(second);
    let c = counts(&runtime, "sink");
    assert_eq!((c.arrived, c.shed(Shed::Abandoned)), (3, 1));
    sender.close();
    runtime.resume("sink");
    runtime.run_until_idle();
    assert!(!runtime.is_ended(), "one push is still under way");
    assert_eq!(third.as_mut().poll(&mut context), Poll::Ready(Ok(())));
    drop(third);
    assert!(runtime.run());
    assert_eq!(taken(&seen), [0, 2]);
    assert_eq!(counts(&runtime, "sink").handled, 2);
}

#[test]
fn dropping_a_push_that_was_granted_room_passes_it_on() {
    let app = App::new("granted");
    let (seen, see) = collector();
    let (sender, port) = app.input("in");
    app.connect(port, app.sink("sink", see));
    let mut runtime = TestRuntime::new(app, &Plan::new().stage("sink", |s| s.capacity(1))).unwrap();
    sender.send(0u64).unwrap();
    let mut context = Context::from_waker(Waker::noop());
    let mut second = Box::pin(sender.send_async(1));
    let mut third = Box::pin(sender.send_async(2));
    assert!(second.as_mut().poll(&mut context).is_pending());
    assert!(third.as_mut().poll(&mut context).is_pending());
    runtime.run_until_idle(); // the queue is empty, and its one place is promised to the second
    drop(second);
    assert_eq!(third.as_mut().poll(&mut context), Poll::Ready(Ok(())));
    drop(third);
    runtime.run_until_idle();
    assert_eq!(taken(&seen), [0, 2]);
    assert_eq!(counts(&runtime, "sink").shed(Shed::Abandoned), 1);
    sender.try_send(3).unwrap();
}

#[test]
fn a_send_that_finds_no_room_in_time_is_shed_as_abandoned() {
    let app = App::new("late");
    let (sender, port) = app.input::<u64>("in");
    let gate = Gate::default();
    let waits = gate.clone();
    app.connect(port, app.sink("work", move |_: u64| waits.pass()));
    let running = app.start(&Plan::new().stage("work", |work| work.capacity(1).batch(1))).unwrap();
    sender.send_timeout(0, Duration::from_secs(30)).unwrap(); // there is room
    gate.wait_for(1); // the handler has it, and stays
    sender.send(1).unwrap();
    assert_eq!(sender.send_timeout(2, MS), Err(SendError::TimedOut));
    gate.open();
    drop(sender);
    let summary = ends(running);
    let work = stage(&summary.snapshot, "work").counts;
    assert_eq!((work.handled, work.shed(Shed::Abandoned), work.cancelled), (2, 1, 0), "{summary}");
    assert!(summary.snapshot.adds_up(), "{summary}");
}

/// Gives groups of events, one a pull, and remembers what it was told of them.
struct Acked {
    groups: VecDeque<Vec<u64>>,
    told: Arc<Mutex<Vec<Settled>>>,
    left: Pull,
}

impl Source for Acked {
    type Item = u64;
    const ACKNOWLEDGED: bool = true;
    fn pull(&mut self, out: &mut Out<u64>, _: Demand) -> Result<Pull> {
        let Some(group) = self.groups.pop_front() else { return Ok(Pull::End) };
        group.into_iter().for_each(|n| out.send(n));
        Ok(self.left)
    }
    fn settled(&mut self, settled: Settled) {
        self.told.lock().unwrap().push(settled);
    }
}

type Told = Arc<Mutex<Vec<Settled>>>;

/// An app whose source `numbers` gives these groups.
fn acked(app: &App, groups: &[&[u64]], left: Pull) -> (comporta::Port<u64>, Told) {
    let told = Told::default();
    let groups: VecDeque<Vec<u64>> = groups.iter().map(|group| group.to_vec()).collect();
    let to = told.clone();
    (app.source("numbers", move || Acked { groups, told: to, left }), told)
}

/// What was told, as `(group, failed, shed)`, by group; each must come once.
fn told(told: &Told) -> Vec<(u64, u64, u64)> {
    let mut all: Vec<_> = taken(told).iter().map(|s| (s.group, s.failed, s.shed)).collect();
    all.sort_unstable();
    assert!(all.windows(2).all(|pair| pair[0].0 < pair[1].0), "told twice: {all:?}");
    all
}

#[test]
fn a_pull_settles_once_after_everything_its_events_led_to() {
    let app = App::new("acked");
    let (numbers, heard) = acked(&app, &[&[1, 2], &[3], &[]], Pull::More);
    let copy = app.flat_map("copy", |n: u64| vec![n; 3]);
    let one = app.sink("one", |_: u64| {});
    let two = app.sink("two", |_: u64| {});
    app.connect(numbers, copy);
    app.connect(copy, one);
    app.connect(copy, two);
    let mut runtime = TestRuntime::new(app, &Plan::new().every(|s| s.capacity(2))).unwrap();
    runtime.hold("two");
    runtime.run_until_idle();
    let early = told(&heard);
    assert!(early.iter().all(|(group, ..)| *group > 2), "settled while copies wait: {early:?}");
    runtime.resume("two");
    assert!(runtime.run());
    let all: Vec<_> = early.into_iter().chain(told(&heard)).map(|told| told.0).collect();
    assert_eq!(all, [1, 2], "one for each pull that gave something");
}

#[test]
fn what_failed_and_what_was_shed_is_told() {
    let app = App::new("told");
    let (numbers, heard) = acked(&app, &[&[1, 2, 3], &[4], &[5, 6]], Pull::AfterAck);
    let fails = app.process("fails", |n: u64, out: &mut Out<u64>| {
        out.send(n);
        if n == 2 { Err(Error::msg("two")) } else { Ok(()) }
    });
    let small = app.sink("small", |_: u64| {});
    app.connect(numbers, fails);
    app.connect(fails, small);
    let plan = Plan::new().stage("small", |s| s.capacity(1).when_full(WhenFull::DropNewest));
    let mut runtime = TestRuntime::new(app, &plan).unwrap();
    assert!(runtime.run());
    assert_eq!(told(&heard), [(1, 1, 1), (2, 0, 0), (3, 0, 1)]);
}

#[test]
fn a_failed_event_settles_once_even_if_it_is_replayed() {
    let app = App::new("replayed");
    let (numbers, heard) = acked(&app, &[&[1, 2]], Pull::AfterAck);
    let mended = Arc::new(Mutex::new(false));
    let works = mended.clone();
    let fails = app.process("fails", move |n: u64, out: &mut Out<u64>| {
        out.send(n);
        if *works.lock().unwrap() { Ok(()) } else { Err(Error::msg("broken")) }
    });
    let fails = fails.retain();
    app.connect(numbers, fails);
    app.connect(fails, app.sink("sink", |_: u64| {}));
    let (sender, port) = app.input("in"); // keeps the stage open for the replay
    app.connect(port, fails);
    let mut runtime = TestRuntime::new(app, &Plan::new()).unwrap();
    runtime.run_until_idle();
    assert_eq!(told(&heard), [(1, 2, 0)]);
    *mended.lock().unwrap() = true;
    assert_eq!(runtime.control().replay("fails", 2).unwrap(), 2);
    runtime.run_until_idle();
    assert!(told(&heard).is_empty());
    assert_eq!(counts(&runtime, "sink").handled, 2);
    drop(sender);
    assert!(runtime.run());
}

#[test]
fn a_source_that_awaits_acknowledgement_is_pulled_one_group_at_a_time() {
    let app = App::new("one-at-a-time");
    let (numbers, heard) = acked(&app, &[&[1], &[2]], Pull::AfterAck);
    let sent = record(&app, numbers);
    app.connect(numbers, app.sink("sink", |_: u64| {}));
    let mut runtime = TestRuntime::new(app, &Plan::new()).unwrap();
    runtime.hold("sink");
    runtime.run_until_idle();
    assert_eq!((sent.take(), told(&heard).len()), (vec![1], 0));
    runtime.resume("sink");
    assert!(runtime.run());
    assert_eq!((sent.take(), told(&heard).len()), (vec![2], 2));
}

#[test]
fn a_source_that_sleeps_is_told_at_once_and_pulled_in_its_time() {
    let app = App::new("asleep");
    let (numbers, heard) = acked(&app, &[&[1], &[2], &[3]], Pull::After(MS * 10));
    let sent = record(&app, numbers);
    app.connect(numbers, app.sink("sink", |_: u64| {}));
    let mut runtime = TestRuntime::new(app, &Plan::new()).unwrap();
    for group in 1..=3 {
        runtime.run_until_idle();
        assert_eq!((sent.take(), told(&heard)), (vec![group], vec![(group, 0, 0)]));
        runtime.advance(MS * 9);
        assert!(sent.take().is_empty(), "pulled before its time");
        runtime.advance(MS);
    }
    assert!(runtime.run());
}

#[test]
fn groups_gathered_from_several_pulls_settle_each() {
    for plain_first in [false, true] {
        let app = App::new("gathered");
        let (numbers, heard) = acked(&app, &[&[1, 2], &[3], &[4, 5]], Pull::More);
        let call = |group: Vec<u64>, out: &mut Out<u64>| out.send(group.iter().sum());
        let gather = app.stage("gather", batched(4, MS, call));
        // Events that nobody awaits are gathered with those that are awaited.
        let plain = app.source("plain", || [100, 100].into_iter());
        app.connect(numbers, gather);
        app.connect(plain, gather);
        let sink = app.sink("sink", |_: u64| {});
        app.connect(gather, sink);
        let mut runtime = TestRuntime::new(app, &Plan::new().threads(1)).unwrap();
        runtime.hold(if plain_first { "numbers" } else { "plain" });
        runtime.run_until_idle();
        runtime.hold("sink");
        runtime.resume(if plain_first { "numbers" } else { "plain" });
        runtime.run_until_idle();
        runtime.resume("sink");
        assert!(runtime.run(), "plain first: {plain_first}\n{}", runtime.snapshot());
        let groups: Vec<_> = told(&heard).into_iter().map(|(group, ..)| group).collect();
        assert_eq!(groups, [1, 2, 3], "plain first: {plain_first}");
        assert_eq!(counts(&runtime, "gather").handled, 7);
    }
}

#[test]
fn every_group_settles_at_the_end_of_a_stream_on_threads() {
    let app = App::new("threads");
    let groups: Vec<Vec<u64>> = (0..500).map(|n| (0..n % 5).collect()).collect();
    let slices: Vec<&[u64]> = groups.iter().map(Vec::as_slice).collect();
    let (numbers, heard) = acked(&app, &slices, Pull::More);
    let work = app.flat_map("work", |n: u64| vec![n; 2]).ordered();
    let pair = app.stage("pair", batched(3, MS, |_: Vec<u64>, _: &mut Out<u64>| {}));
    app.connect(numbers, work);
    app.connect(work, pair);
    let plan = Plan::new().threads(2).every(|s| s.capacity(5)).stage("work", |s| s.instances(3));
    let summary = run(app, &plan);
    assert_eq!(summary.ended, Ended::Complete);
    let groups: Vec<_> = told(&heard).into_iter().map(|(group, ..)| group).collect();
    // Every fifth pull gave nothing, and there is nothing to tell of it.
    assert!(groups.into_iter().eq((1..=500).filter(|group| (group - 1) % 5 != 0)));
}

#[test]
fn what_an_iterator_has_given_is_handled_while_it_waits_for_more() {
    for burst in [1, 5, 20] {
        let (send, receive) = std::sync::mpsc::channel::<u64>();
        let app = App::new("channel");
        let numbers = app.source("numbers", move || receive.into_iter());
        let end = app.sink("end", |_: u64| ());
        app.connect(numbers, end);
        let running = app.start(&Plan::new().threads(2)).unwrap();
        for round in 1..=3 {
            (0..burst).for_each(|n| send.send(n).unwrap());
            until(|| stage(&running.snapshot(), "end").counts.handled == round * burst);
        }
        drop(send);
        assert_eq!(ends(running).ended, Ended::Complete);
    }
}

/// Gives its bytes when asked, one line at a time, and then waits until the gate is open.
struct Pipe {
    lines: VecDeque<&'static str>,
    gate: Gate,
}

impl std::io::Read for Pipe {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let Some(line) = self.lines.pop_front() else {
            self.gate.pass();
            return Ok(0);
        };
        into[..line.len()].copy_from_slice(line.as_bytes());
        Ok(line.len())
    }
}

/// Lines that come one by one; the last is followed by nothing until the gate opens.
fn piped(threads: usize) -> (comporta::Running, Gate) {
    let gate = Gate::default();
    let pipe = Pipe { lines: ["a\n", "b", "\nc\nd\n"].into(), gate: gate.clone() };
    let app = App::new("piped");
    let lines = app.source("lines", move || sources::lines_of("pipe", pipe));
    let window = app.stage("window", comporta::windows::by_count(3));
    let end = app.sink("end", |_: comporta::windows::Window<String>| ());
    app.connect(lines, window);
    app.connect(window, end);
    (app.start(&Plan::new().threads(threads)).unwrap(), gate)
}

#[test]
fn lines_are_handed_on_before_more_are_waited_for() {
    let (running, gate) = piped(2);
    until(|| stage(&running.snapshot(), "window").counts.handled == 4);
    gate.open();
    let summary = ends(running);
    assert_eq!(stage(&summary.snapshot, "end").counts.handled, 2);
}

#[test]
fn a_drain_leaves_a_source_that_waits_for_input_and_finishes_what_it_has_sent() {
    // With one thread, too: the source holds it.
    for threads in [1, 2] {
        let (running, gate) = piped(threads);
        gate.wait_for(1);
        let summary = running.drain();
        assert_eq!(summary.ended, Ended::Drained, "{summary}");
        assert!(summary.snapshot.adds_up(), "{summary}");
        let end = stage(&summary.snapshot, "end").counts;
        assert_eq!(end.handled, 2, "the window that was not full leaves when the drain ends it");
        assert!(summary.stuck.is_empty(), "it waits for input: {summary}");
        gate.open();
    }
}
