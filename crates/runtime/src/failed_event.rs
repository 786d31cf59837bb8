//! Events that fail for good, reported while the program runs: [`App::on_failure`]. What is known of
//! the type of an event is known where it is connected ([`Codec`]); the feature `json` adds how it
//! is written and read.

use std::any::Any;

use comporta_model::event::{Event, Time};
#[cfg(feature = "json")]
use comporta_model::port::StageKey;

use crate::app::App;
use crate::failure::Reason;
#[cfg(feature = "json")]
use crate::replay::{Fed, Open};
use crate::sync::Arc;
use crate::user;

/// An event that has failed for good, as [`App::on_failure`] reports it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FailedEvent<'a> {
    /// The stage that failed it.
    pub stage: &'a str,
    /// Why.
    pub reason: &'a Reason,
    /// How often it was tried.
    pub attempts: u32,
    /// When it failed for good.
    pub at: Time,
    /// The event as JSON (feature `json`), or why there is none.
    pub event: Result<String, String>,
}

/// What is called for events that fail.
pub(crate) type OnFailure = Arc<dyn Fn(&FailedEvent<'_>) + Send + Sync>;

/// What a stage calls for an event that has failed for good.
pub(crate) type Reporter<T> = Arc<dyn Fn(&Reason, u32, Time, Option<&T>) + Send + Sync>;

/// What can be done with the events that come to a stage, since `connect` asks for it.
pub(crate) struct Codec<T> {
    pub(crate) copy: fn(&T) -> T,
    pub(crate) write: fn(&T) -> Result<String, String>,
    #[cfg(feature = "json")]
    pub(crate) read: fn(&str) -> serde_json::Result<T>,
}

impl<T: Event> Codec<T> {
    pub(crate) fn new() -> Self {
        Codec {
            copy: T::clone,
            #[cfg(feature = "json")]
            write: |event| serde_json::to_string(event).map_err(|error| error.to_string()),
            #[cfg(not(feature = "json"))]
            write: |_| Err("the feature `json` is off".to_owned()),
            #[cfg(feature = "json")]
            read: |text| serde_json::from_str(text),
        }
    }
}

impl<T> Clone for Codec<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Codec<T> {}

/// A [`Codec`], whatever its type.
pub(crate) trait AnyCodec: Any + Send + Sync {
    /// Whether `text` is an event.
    #[cfg(feature = "json")]
    fn check(&self, text: &str) -> Result<(), String>;
    /// Adds a source of events that leads to a stage.
    #[cfg(feature = "json")]
    fn feed(&self, app: &App, name: String, to: StageKey, open: Open);
}

impl<T: Send + 'static> AnyCodec for Codec<T> {
    #[cfg(feature = "json")]
    fn check(&self, text: &str) -> Result<(), String> {
        user::try_call(|| Ok((self.read)(text)?)).map(user::discard)
    }

    #[cfg(feature = "json")]
    fn feed(&self, app: &App, name: String, to: StageKey, open: Open) {
        let codec = *self;
        let port = app.source(name, move || open().map(|texts| Fed { texts, read: codec.read }));
        app.connect_coded(port, to, codec);
    }
}

impl<T: 'static> Codec<T> {
    /// The event of a failure as JSON, or why there is none.
    fn text(codec: Option<&Self>, event: Option<&T>) -> Result<String, String> {
        let Some(codec) = codec else {
            return Err("only local connectors lead there".to_owned());
        };
        let Some(event) = event else {
            return Err("the handler took it, and it could not be copied".to_owned());
        };
        let written = user::call(|| (codec.write)(event));
        let written = written.unwrap_or_else(|panic| Err(panic.to_string()));
        written.map_err(|why| format!("it cannot be written as JSON: {why}"))
    }

    /// Reports the failed events of a stage.
    pub(crate) fn reporter(codec: Option<Self>, stage: Arc<str>, call: OnFailure) -> Reporter<T> {
        Arc::new(move |reason, attempts, at, event| {
            let event = Codec::text(codec.as_ref(), event);
            let failed = FailedEvent { stage: &stage, reason, attempts, at, event };
            let _ = user::call(|| call(&failed));
        })
    }
}

impl App {
    /// Calls `call` for every event that fails for good, while the program runs, on the worker that
    /// failed it. So that the event itself can be reported, stages keep a copy of each event while
    /// they handle it, unless only local connectors lead to them.
    ///
    /// ```
    /// # mod comporta { pub use comporta_model::{error::Error, plan::Plan}; pub use comporta_runtime::App; }
    /// # use std::sync::{Arc, Mutex};
    /// # use comporta::{App, Error, Plan};
    /// let app = App::new("picky");
    /// let numbers = app.source("numbers", || 0..10_u64);
    /// let check = app.sink("check", |n: u64| match n {
    ///     7 => Err(Error::msg("no sevens")),
    ///     _ => Ok(()),
    /// });
    /// app.connect(numbers, check);
    /// let log = Arc::new(Mutex::new(Vec::new()));
    /// let own = log.clone();
    /// app.on_failure(move |failed| {
    ///     own.lock().unwrap().push(format!("{}: {}", failed.stage, failed.reason));
    ///     # #[cfg(feature = "json")]
    ///     assert_eq!(failed.event, Ok("7".to_owned())); // with the feature `json`
    /// });
    /// let _ = app.run(&Plan::new())?;
    /// assert_eq!(*log.lock().unwrap(), ["check: no sevens"]);
    /// # Ok::<(), comporta_runtime::StartError>(())
    /// ```
    pub fn on_failure(&self, call: impl Fn(&FailedEvent<'_>) + Send + Sync + 'static) {
        self.set_on_failure(Arc::new(call));
    }
}
