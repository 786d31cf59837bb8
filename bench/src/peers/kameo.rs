//! Peer `kameo`: an actor per stage with a bounded mailbox, one event per `tell`, on tokio.
//! Chosen among the actor crates for being maintained, light to build and bounded by design.

use super::tokio_mpsc::runtime;
use crate::load::{BenchEvent, CAPACITY, Case, Outcome, Sink, Source, Work, handle};
use kameo::actor::{Actor, ActorRef, Spawn};
use kameo::error::Infallible;
use kameo::mailbox;
use kameo::message::{Context, Message};
use std::marker::PhantomData;
use std::time::Instant;
use tokio::sync::oneshot;

enum Next<E: BenchEvent> {
    Stage(ActorRef<StageActor<E>>),
    Sink(ActorRef<SinkActor<E>>),
}

impl<E: BenchEvent> Next<E> {
    async fn tell(&self, event: E) {
        // A refusal means that the sink died of an assertion, which `run` reports.
        let _ = match self {
            Next::Stage(stage) => stage.tell(event).await.is_ok(),
            Next::Sink(sink) => sink.tell(event).await.is_ok(),
        };
    }
}

struct StageActor<E: BenchEvent> {
    work: Work,
    next: Next<E>,
}

impl<E: BenchEvent> Actor for StageActor<E> {
    type Args = Self;
    type Error = Infallible;
    async fn on_start(args: Self, _: ActorRef<Self>) -> Result<Self, Infallible> {
        Ok(args)
    }
}

impl<E: BenchEvent> Message<E> for StageActor<E> {
    type Reply = ();
    async fn handle(&mut self, mut event: E, _: &mut Context<Self, ()>) {
        handle(&mut event, self.work);
        self.next.tell(event).await;
    }
}

struct SinkActor<E> {
    sink: Option<Sink>,
    done: Option<oneshot::Sender<Sink>>,
    event: PhantomData<fn(E)>,
}

impl<E: BenchEvent> Actor for SinkActor<E> {
    type Args = Self;
    type Error = Infallible;
    async fn on_start(args: Self, _: ActorRef<Self>) -> Result<Self, Infallible> {
        Ok(args)
    }
}

impl<E: BenchEvent> Message<E> for SinkActor<E> {
    type Reply = ();
    async fn handle(&mut self, event: E, _: &mut Context<Self, ()>) {
        let sink = self.sink.as_mut().expect("no event follows the last one");
        sink.accept(&event);
        if sink.is_complete()
            && let (Some(sink), Some(done)) = (self.sink.take(), self.done.take())
        {
            // Nobody waits only when `run` is unwinding already.
            let _ = done.send(sink);
        }
    }
}

pub(crate) fn run<E: BenchEvent>(case: &Case) -> Outcome {
    let case = *case;
    let runtime = runtime(case.threads);
    let (done, sink) = oneshot::channel();
    let last = SinkActor::<E> {
        sink: Some(Sink::new(0..case.events)),
        done: Some(done),
        event: PhantomData,
    };
    let started = Instant::now();
    runtime.spawn(async move {
        let mut next = Next::Sink(Spawn::spawn_with_mailbox(last, mailbox::bounded(CAPACITY)));
        for _ in 0..case.stages {
            let stage = StageActor { work: case.work, next };
            next = Next::Stage(Spawn::spawn_with_mailbox(stage, mailbox::bounded(CAPACITY)));
        }
        for event in Source::<E>::new(0..case.events) {
            next.tell(event).await;
        }
    });
    let sink = runtime.block_on(sink).expect("the sink accepted the last event");
    sink.outcome(started, &case)
}
