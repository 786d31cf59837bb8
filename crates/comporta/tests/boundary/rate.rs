//! A source with a rate keeps its schedule, however few events each of its pulls gives: what the
//! program kept outside is late, and late by as much as it was.

use std::io::Read;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use comporta::testing::TestRuntime;
use comporta::{
    App, Cx, Demand, Ev, Event, IntoSource, Out, Plan, Pull, Result, Source, Stage, sources,
};

use crate::bounded::{stage, taken, watched};

const TENTH: Duration = Duration::from_millis(100);
/// Several events are due in what a pull may span.
const RATE: u64 = 50_000;

/// Gives one event a pull, and has more at once.
struct OneByOne(std::ops::Range<u64>);

impl Source for OneByOne {
    type Item = u64;
    fn pull(&mut self, out: &mut Out<u64>, _: Demand) -> Result<Pull> {
        Ok(self.0.next().map_or(Pull::End, |n| {
            out.send(n);
            Pull::More
        }))
    }
}

/// Notes how late each event came, in milliseconds.
#[derive(Clone)]
struct Lateness<T>(Arc<Mutex<Vec<u64>>>, std::marker::PhantomData<fn(T)>);

impl<T: Event> Stage for Lateness<T> {
    type In = T;
    type Ports = ();
    fn handle(&mut self, _: Ev<'_, T>, (): &mut (), cx: &Cx) -> Result {
        let late = cx.now().duration_since(cx.ingress());
        self.0.lock().unwrap().push(late.as_millis() as u64);
        Ok(())
    }
}

/// `events` -> `sink`, which stalls for the second tenth of a second of three. How late each event was.
fn stalled<M, S>(open: impl FnOnce() -> S + Send + 'static) -> Vec<u64>
where
    S: IntoSource<M> + 'static,
    <S::Source as Source>::Item: Event,
    M: 'static,
{
    let app = App::new("stalled");
    let late = Lateness(Arc::default(), std::marker::PhantomData);
    let events = app.source("events", open);
    app.connect(events, app.stage("sink", late.clone()));
    let plan = Plan::new()
        .threads(1)
        .stage("events", |s| s.rate(RATE as f64))
        .stage("sink", |s| s.capacity(10));
    let mut runtime = TestRuntime::new(app, &plan).unwrap();
    runtime.advance(TENTH);
    runtime.hold("sink");
    runtime.advance(TENTH);
    runtime.resume("sink");
    runtime.advance(TENTH);
    assert_eq!(stage(&runtime.snapshot(), "sink").queued, 0);
    taken(&late.0)
}

/// As many events as were due have come, and those of the stall as late as it kept them.
fn keeps_its_schedule(late: &[u64], what: &str) {
    let due = 3 * RATE / 10;
    let came = late.len() as u64;
    let half = late.iter().filter(|ms| **ms >= 50).count() as u64;
    let said = format!("{what}: {came} came, {half} of them late by half of the stall or more");
    assert!(came.abs_diff(due) <= 10, "{said}; {due} were due");
    assert!(half.abs_diff(RATE / 20) <= 50, "{said}; {} were", RATE / 20);
}

#[test]
fn a_source_that_gives_one_event_a_pull_keeps_its_schedule_behind_a_sink_that_stalls() {
    watched("one by one", || {
        keeps_its_schedule(&stalled(|| 0..1_000_000_u64), "an iterator");
        keeps_its_schedule(&stalled(|| OneByOne(0..1_000_000)), "one by one");
    });
}

/// A reader that gives a line at a time.
struct LineByLine(u64);

impl Read for LineByLine {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        self.0 += 1;
        let line = format!("{}\n", self.0);
        into[..line.len()].copy_from_slice(line.as_bytes());
        Ok(line.len())
    }
}

#[test]
fn lines_keep_their_schedule_behind_a_sink_that_stalls() {
    watched("lines", || {
        let late = stalled(|| sources::lines_of("lines", LineByLine(0)));
        keeps_its_schedule(&late, "lines");
    });
}

#[test]
fn a_source_that_was_not_pulled_in_time_sends_all_that_is_due_however_few_a_pull() {
    watched("held", || {
        let app = App::new("held");
        let events = app.source("events", || OneByOne(0..1_000_000));
        app.connect(events, app.sink("sink", |_: u64| ()));
        let rate = 50_000_u32;
        let plan = Plan::new()
            .threads(1)
            .stage("events", |s| s.rate(f64::from(rate)))
            .stage("sink", |s| s.capacity(100_000));
        let mut runtime = TestRuntime::new(app, &plan).unwrap();
        runtime.run_until_idle();
        // Every visit is 100 µs late, as on a machine that has other things to do.
        for _ in 0..1_000 {
            runtime.hold("events");
            runtime.advance(Duration::from_micros(100));
            runtime.resume("events");
            runtime.run_until_idle();
        }
        let came = stage(&runtime.snapshot(), "sink").counts.handled;
        let due = u64::from(rate / 10);
        assert!(came.abs_diff(due) <= 10, "{came} came in a tenth of a second, {due} were due");
    });
}
