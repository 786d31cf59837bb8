//! Ours: a keyed stage as a user writes it. Its keys are finished when the last event has come.

use crate::keyed::load::{Click, Load, digest, fold};
use crate::load::{BATCH, CAPACITY};
use comporta::{App, Ended, Ev, KeyedCx, KeyedStage, Out, Plan, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

#[derive(Clone)]
struct Fold;

impl KeyedStage for Fold {
    type In = Click;
    type Key = u64;
    type State = u64;
    type Ports = Out<u64>;

    fn key(&self, click: &Click) -> u64 {
        click.key
    }

    fn handle(
        &mut self,
        state: &mut u64,
        click: Ev<'_, Click>,
        _: &mut Out<u64>,
        _: &KeyedCx<'_, u64>,
    ) -> Result {
        fold(state, &click);
        Ok(())
    }

    fn finish(&mut self, state: u64, out: &mut Out<u64>, cx: &KeyedCx<'_, u64>) -> Result {
        out.send(digest(*cx.key(), state));
        Ok(())
    }
}

pub(crate) fn run(load: &Load, threads: usize) -> u64 {
    let (clicks, sum) = (load.clicks.clone(), Arc::new(AtomicU64::new(0)));
    let into = sum.clone();
    let app = App::new("keyed");
    let source = app.source("source", move || (0..clicks.len()).map(move |at| clicks[at]));
    let fold = app.stage("fold", Fold);
    app.connect(source, fold);
    app.connect(
        fold,
        app.sink("sum", move |digest: u64| {
            into.fetch_xor(digest, Relaxed);
        }),
    );
    let plan = Plan::new()
        .threads(threads)
        .every(|stage| stage.capacity(CAPACITY).batch(BATCH))
        .stage("fold", |fold| fold.instances(threads).emit_max(usize::MAX));
    let summary = app.run(&plan).expect("a valid graph");
    assert_eq!(summary.ended, Ended::Complete, "{summary}");
    sum.load(Relaxed)
}
