//! Ours: the program of the example `weblog`, as it is, under a plan. Only its last stage is
//! another: it gathers what is found instead of printing it.

use crate::cep::work::{KEEP, Log, WINDOW};
use comporta::{App, Cx, Ended, Ev, Plan, Result, Stage};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use weblog::program::{Input, Settings, app};
use weblog::show::{Gathered, Said};

#[derive(Clone, Default)]
struct Gather(Arc<Mutex<Gathered>>);

impl Stage for Gather {
    type In = Said;
    type Ports = ();
    const STATEFUL: bool = true;

    fn handle(&mut self, said: Ev<'_, Said>, (): &mut (), _: &Cx) -> Result {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).add(said.take());
        Ok(())
    }
}

pub(crate) fn run(log: &Log, folder: &Path, plan: &Plan) -> Gathered {
    let gather = Gather::default();
    let gathered = Arc::clone(&gather.0);
    let inputs = log.logs.iter().map(|lines| Input::Kept(Arc::clone(lines))).collect();
    let settings = Settings { inputs, window: WINDOW, folder: folder.to_owned(), keep: KEEP };
    let app: App = app(settings, gather);
    let summary = app.run(plan).expect("the plans of the table fit the program");
    assert_eq!(summary.ended, Ended::Complete, "{summary}");
    assert!(summary.snapshot.adds_up(), "{summary}");
    std::mem::take(&mut *gathered.lock().unwrap_or_else(PoisonError::into_inner))
}
