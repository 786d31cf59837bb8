//! Peer `comporta`: ours, as a user writes it: a stage per handler, one instance each (so that
//! order holds), the default plan but for the threads, the capacity and the batch all peers share.
//! Parking, counters, the panic guard, bounds and back-pressure are on; they cannot be turned off.

use super::Paced;
use crate::load::{BATCH, BenchEvent, CAPACITY, Case, Event64, Outcome, Sink, Source, handle};
use crate::pacer::{LatencySink, Pacer};
use crate::wake::{Probe, Program};
use comporta::{App, Choice, Cx, Ev, Part, Plan, Port, Result, Running, Sender, Stage};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Instant;

/// A sink that hands itself back when the last event has come.
struct Collect<S, F> {
    sink: Option<S>,
    accept: F,
    back: SyncSender<S>,
}

impl<S, F, E> Stage for Collect<S, (F, std::marker::PhantomData<fn(E)>)>
where
    S: Send + 'static,
    F: Fn(&mut S, &E) + Send + 'static,
    E: Send + 'static,
{
    type In = E;
    type Ports = ();

    fn handle(&mut self, event: Ev<'_, E>, (): &mut (), _: &Cx) -> Result {
        if let Some(sink) = &mut self.sink {
            (self.accept.0)(sink, &event);
        }
        Ok(())
    }

    fn finish(&mut self, (): &mut (), _: &Cx) -> Result {
        if let Some(sink) = self.sink.take() {
            let _ = self.back.send(sink); // received, or the run was given up
        }
        Ok(())
    }
}

pub(crate) fn run<E: BenchEvent>(case: &Case) -> Outcome {
    run_under::<E>(case, None)
}

/// The same program, with a source in parts, under a plan that has a replica of every stage for each thread. As in
/// `two_loops`, order holds within each share of the events.
pub(crate) fn run_replicas<E: BenchEvent>(case: &Case) -> Outcome {
    let app = App::new("replicas");
    let (events, shares) = (case.events, case.threads);
    let source = app.source_parts("source", move |part: Part| Source::<E>::new(part.of(events)));
    let sinks = (0..shares).map(|index| Sink::new(Part::new(index, shares).of(events))).collect();
    let accept = |sink: &mut Sink, event: &E| sink.accept(event);
    let last = stages(&app, source, case);
    let back = collect_each(&app, "sink", last, sinks, accept);
    let started = Instant::now();
    let running = app.start(&plan(case).every(|stage| stage.replicas(shares)));
    let summary = running.expect("the pipeline is a valid graph").wait();
    assert!(summary.snapshot.adds_up(), "{summary}");
    let sinks: Vec<Sink> = back.iter().take(shares).collect();
    let finished = sinks.iter().map(Sink::finished).max().expect("a sink for each share");
    Outcome {
        elapsed: finished.duration_since(started),
        events,
        checksum: sinks.iter().fold(0, |sum, sink| sum.wrapping_add(sink.checksum())),
    }
}

/// Under a policy, or the default one.
pub(crate) fn run_under<E: BenchEvent>(case: &Case, policy: Option<&Choice>) -> Outcome {
    let app = App::new("pipeline");
    let events = case.events;
    let source = app.source("source", move || Source::<E>::new(0..events));
    let sink = Sink::new(0..events);
    let back = chain(&app, source, case, sink, |sink: &mut Sink, event: &E| sink.accept(event));
    let plan = policy.into_iter().fold(plan(case), Plan::policy);
    let started = Instant::now();
    let running = app.start(&plan).expect("the pipeline is a valid graph");
    let summary = running.wait();
    assert!(summary.snapshot.adds_up(), "{summary}");
    back.recv().expect("the sink finishes").outcome(started, case)
}

pub(crate) fn paced(case: &Case, pacer: Pacer) -> Paced {
    let app = App::new("paced");
    let (sender, input) = app.input::<Event64>("input");
    let sink = pacer.sink();
    let accept = |sink: &mut LatencySink, event: &Event64| sink.accept(event);
    let back = chain(&app, input, case, sink, accept);
    let running = app.start(&plan(case)).expect("the pipeline is a valid graph");
    let pace = pacer.run(|clump| {
        for event in clump {
            sender.send(event).expect("the stages take events until the pacer ends");
        }
    });
    drop(sender);
    let _ = running.wait();
    Paced { pace, sink: back.recv().expect("the sink finishes") }
}

fn plan(case: &Case) -> Plan {
    // One instance a stage, whatever the policy: the peers keep the order, too.
    Plan::new()
        .threads(case.threads)
        .every(|stage| stage.capacity(CAPACITY).batch(BATCH).instances(1))
}

fn stages<E: BenchEvent>(app: &App, mut from: Port<E>, case: &Case) -> Port<E> {
    let work = case.work;
    for number in 0..case.stages {
        let stage =
            app.map_in_place(format!("stage{number}"), move |event: &mut E| handle(event, work));
        app.connect(from, stage);
        from = *stage;
    }
    from
}

fn chain<E: BenchEvent, S: Send + 'static>(
    app: &App,
    from: Port<E>,
    case: &Case,
    sink: S,
    accept: impl Fn(&mut S, &E) + Copy + Send + Sync + 'static,
) -> Receiver<S> {
    collect(app, "sink", stages(app, from, case), sink, accept)
}

/// Ends a chain in a sink that comes back when it has seen its last event.
pub(crate) fn collect<E: BenchEvent, S: Send + 'static>(
    app: &App,
    name: impl Into<String>,
    from: Port<E>,
    sink: S,
    accept: impl Fn(&mut S, &E) + Copy + Send + Sync + 'static,
) -> Receiver<S> {
    collect_each(app, name, from, vec![sink], accept)
}

/// As [`collect`], with a sink for each instance of the last stage.
fn collect_each<E: BenchEvent, S: Send + 'static>(
    app: &App,
    name: impl Into<String>,
    from: Port<E>,
    sinks: Vec<S>,
    accept: impl Fn(&mut S, &E) + Copy + Send + Sync + 'static,
) -> Receiver<S> {
    let (back, received) = sync_channel(sinks.len());
    let sinks: Vec<_> = sinks.into_iter().map(|sink| std::sync::Mutex::new(Some(sink))).collect();
    let collect = app.stage_with(name, move |cx| {
        let sink = sinks.get(cx.instance()).and_then(|sink| sink.lock().ok()?.take());
        Ok(Collect { sink, accept: (accept, std::marker::PhantomData), back: back.clone() })
    });
    app.connect(from, collect);
    received
}

struct Up {
    sender: Sender<u64>,
    running: Option<Running>,
}

impl Program for Up {
    fn push(&mut self, pushed_ns: u64) {
        self.sender.send(pushed_ns).expect("the program runs until it is dropped");
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            let _ = running.stop();
        }
    }
}

pub(crate) fn up(threads: usize, probe: Arc<Probe>) -> Box<dyn Program> {
    let app = App::new("wake");
    let (sender, input) = app.input::<u64>("input");
    let stage = app.sink("stage", move |pushed_ns: u64| probe.handled(pushed_ns));
    app.connect(input, stage);
    let running = app.start(&Plan::new().threads(threads)).expect("one stage is a valid graph");
    Box::new(Up { sender, running: Some(running) })
}
