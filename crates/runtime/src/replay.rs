//! Events fed back to their stages from JSON, such as those that failed in an earlier run (feature
//! `json`). They come from sources of their own, so that they enter, wait and are counted as others do.

use std::marker::PhantomData;

use comporta_model::error::Result;
use comporta_model::graph::StageId;
use comporta_model::plan::nearest;
use comporta_model::port::Out;
use comporta_model::source::{Demand, Pull, Source};

use crate::app::App;
use crate::failed_event::AnyCodec;
use crate::sync::Arc;

/// Why events cannot be fed back to a stage.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReplayError {
    /// There is no such stage; the nearest name.
    NoStage(String, Option<String>),
    /// Its events cannot be read: it is joined by local connectors only, or by none.
    Local(String),
    /// This is no event of the stage.
    Event(String),
}

impl std::fmt::Display for ReplayError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ReplayError::NoStage(name, None) => write!(f, "the program has no stage `{name}`"),
            ReplayError::NoStage(name, Some(near)) => {
                write!(f, "the program has no stage `{name}`: did you mean `{near}`?")
            }
            ReplayError::Local(name) => {
                write!(f, "the events of `{name}` cannot be read: no `connect` leads to it")
            }
            ReplayError::Event(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for ReplayError {}

/// Opens the events that are fed back.
pub(crate) type Open = Box<dyn FnOnce() -> Result<Texts> + Send>;
pub(crate) type Texts = Box<dyn Iterator<Item = Result<String>> + Send>;

/// Events that are fed back to their stage.
pub(crate) struct Fed<T> {
    pub(crate) texts: Texts,
    pub(crate) read: fn(&str) -> serde_json::Result<T>,
}

impl<T: Send + 'static> Source for Fed<T> {
    type Item = T;

    fn pull(&mut self, out: &mut Out<T>, demand: Demand) -> Result<Pull> {
        for _ in 0..demand.events {
            match self.texts.next() {
                Some(text) => out.send((self.read)(&text?)?),
                None => return Ok(Pull::End),
            }
        }
        Ok(Pull::More)
    }
}

/// Stands in for a source that is not opened.
pub(crate) struct Silent<T>(PhantomData<fn() -> T>);

impl<T> Silent<T> {
    pub(crate) fn new() -> Self {
        Silent(PhantomData)
    }
}

impl<T: Send + 'static> Source for Silent<T> {
    type Item = T;

    fn pull(&mut self, _: &mut Out<T>, _: Demand) -> Result<Pull> {
        Ok(Pull::End)
    }
}

impl App {
    /// Whether `text` is an event of a stage, as JSON.
    ///
    /// # Errors
    /// If it is not, or if there is no such stage.
    pub fn check_event(&self, stage: &str, text: &str) -> std::result::Result<(), ReplayError> {
        let (_, codec) = self.codec_of(stage)?;
        codec.check(text).map_err(ReplayError::Event)
    }

    /// Feeds events back to a stage, in place of what sources bring: the sources of the program
    /// are not opened. `events` are JSON, such as [`on_failure`](Self::on_failure) reports; they
    /// come from a source of their own, called `replay.STAGE`, whose failure is reported.
    ///
    /// ```
    /// # mod comporta { pub use comporta_model::{error::Error, plan::Plan}; pub use comporta_runtime::App; }
    /// # use comporta::{App, Plan};
    /// let app = App::new("picky");
    /// let numbers = app.source("numbers", || 0..10_u64);
    /// let check = app.sink("check", |_: u64| ());
    /// app.connect(numbers, check);
    /// app.replay("check", || Ok(["7", "8"].map(|text| Ok(text.to_owned())).into_iter()))?;
    /// let summary = app.run(&Plan::new())?;
    /// assert_eq!(summary.snapshot.stage("check").unwrap().counts.handled, 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If there is no such stage, or its events cannot be read.
    pub fn replay<I>(
        &self,
        stage: &str,
        events: impl FnOnce() -> Result<I> + Send + 'static,
    ) -> std::result::Result<(), ReplayError>
    where
        I: Iterator<Item = Result<String>> + Send + 'static,
    {
        let (id, codec) = self.codec_of(stage)?;
        self.silence_sources();
        let open = Box::new(move || Ok(Box::new(events()?) as Texts));
        let taken = |name: &str| self.graph().stages.iter().any(|spec| *spec.name == *name);
        let mut name = format!("replay.{stage}");
        while taken(&name) {
            name.insert_str(0, "replay.");
        }
        codec.feed(self, name, self.key_of(id), open);
        Ok(())
    }

    fn codec_of(
        &self,
        stage: &str,
    ) -> std::result::Result<(StageId, Arc<dyn AnyCodec>), ReplayError> {
        let graph = self.graph();
        let ids = graph.stages.iter().zip(0u32..);
        let Some((_, id)) = ids.into_iter().find(|(spec, _)| *spec.name == *stage) else {
            let near = nearest(stage, graph.stages.iter().map(|spec| &*spec.name));
            return Err(ReplayError::NoStage(stage.to_owned(), near));
        };
        match self.codec(id) {
            Some(codec) => Ok((StageId(id), codec)),
            None => Err(ReplayError::Local(stage.to_owned())),
        }
    }
}
