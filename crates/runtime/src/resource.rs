//! Resources: what the handlers of a program share, such as a pool of connections. Opened before instances are made
//! and sources are opened, and closed after the last event, however the run ends.
//! Before: `app`, where they are declared. After: `running`, which opens and closes them.
//!
//! Invariants: a resource is opened at most once, in the order declared, and closed once if it was opened, in the
//! reverse order, when nobody holds it any more. `open` and `close` are user code, and run under no lock.

use std::any::Any;
use std::fmt;
use std::ops::Deref;
use std::sync::Weak;

use comporta_model::error::{Outcome, Result};
use comporta_model::graph::GraphFault;

use crate::app::App;
use crate::core::Core;
use crate::log;
use crate::start_error::StartError;
use crate::sync::{Arc, Mutex, OnceLock};
use crate::user;

/// A handle to a resource of a program, as [`App::resource`] returns it: for handlers, which
/// [`get`](Self::get) the resource by it. Clone it for each.
pub struct Resource<R> {
    shared: Arc<Shared<R>>,
}

struct Shared<R> {
    name: Box<str>,
    /// Set when it is opened.
    open: OnceLock<Weak<Held<R>>>,
}

/// A resource that is open. While a handler has one, the resource is not closed: drop it when the event is handled.
pub struct Opened<R>(Arc<Held<R>>);

/// A resource that is open, and how to close it.
struct Held<R> {
    app: Arc<str>,
    name: Box<str>,
    value: Option<R>,
    close: Mutex<Option<Closer<R>>>,
}

type Opener<R> = Box<dyn FnOnce() -> Result<R> + Send>;
type Closer<R> = Box<dyn FnOnce(R) -> Result + Send>;

impl<R> Resource<R> {
    /// The resource. In handlers, `init`, `finish`, factories and sources it is open.
    ///
    /// # Panics
    /// If the program has not been started, or has ended.
    #[must_use]
    #[track_caller]
    pub fn get(&self) -> Opened<R> {
        match self.try_get() {
            Some(opened) => opened,
            None => {
                panic!("the resource `{}` is not open: its program does not run", self.shared.name)
            }
        }
    }

    /// The resource, if it is open.
    #[must_use]
    pub fn try_get(&self) -> Option<Opened<R>> {
        self.shared.open.get()?.upgrade().map(Opened)
    }
}

impl<R> Clone for Resource<R> {
    fn clone(&self) -> Self {
        Resource { shared: self.shared.clone() }
    }
}

impl<R> fmt::Debug for Resource<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Resource").field(&self.shared.name).finish()
    }
}

impl<R> Clone for Opened<R> {
    fn clone(&self) -> Self {
        Opened(self.0.clone())
    }
}

impl<R> Deref for Opened<R> {
    type Target = R;
    fn deref(&self) -> &R {
        self.0
            .value
            .as_ref()
            .expect("what is open has not been closed: only its last owner does that")
    }
}

impl<R: fmt::Debug> fmt::Debug for Opened<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<R> Held<R> {
    fn close(&mut self) -> std::result::Result<(), String> {
        let close = self.close.lock().take();
        match (self.value.take(), close) {
            (Some(value), Some(close)) => user::try_call(|| close(value)),
            _ => Ok(()),
        }
    }
}

/// Held beyond the end of its run, by a handler that did not return: it is closed now.
impl<R> Drop for Held<R> {
    fn drop(&mut self) {
        if let Err(message) = self.close() {
            log::warn(&self.app, &not_closed(&self.name, &message));
        }
    }
}

fn not_closed(name: &str, message: &str) -> String {
    format!("the resource `{name}` could not be closed: {message}")
}

/// A resource as it is declared, and as it is while its program runs.
struct Declared<R> {
    shared: Arc<Shared<R>>,
    state: State<R>,
}

enum State<R> {
    Declared(Opener<R>, Closer<R>),
    Open(Arc<Held<R>>),
    Closed,
}

/// A declared resource, whatever it is.
pub(crate) trait AnyResource: Any + Send {
    fn name(&self) -> &str;
    fn open(&mut self, core: &Core) -> std::result::Result<(), String>;
    /// Closes it, if it is open. Returns what is to be reported.
    fn close(&mut self) -> Option<String>;
    fn as_any(&mut self) -> &mut dyn Any;
}

impl<R: Send + Sync + 'static> AnyResource for Declared<R> {
    fn name(&self) -> &str {
        &self.shared.name
    }

    fn open(&mut self, core: &Core) -> std::result::Result<(), String> {
        let State::Declared(open, close) = std::mem::replace(&mut self.state, State::Closed) else {
            return Ok(());
        };
        let opened = user::try_call(open);
        let value = match opened {
            Ok(value) => value,
            Err(message) => {
                user::discard(close);
                return Err(message);
            }
        };
        let (app, name) = (core.graph.name.clone(), self.shared.name.clone());
        let held = Arc::new(Held { app, name, value: Some(value), close: Mutex::new(Some(close)) });
        let _ = self.shared.open.set(Arc::downgrade(&held));
        self.state = State::Open(held);
        Ok(())
    }

    fn close(&mut self) -> Option<String> {
        let State::Open(held) = std::mem::replace(&mut self.state, State::Closed) else {
            return None;
        };
        match Arc::try_unwrap(held) {
            Ok(mut held) => held.close().err().map(|message| not_closed(self.name(), &message)),
            Err(held) => {
                drop(held);
                let name = self.name();
                Some(format!(
                    "the resource `{name}` is still in use: it is closed when it is let go"
                ))
            }
        }
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}

/// The resources of a program, in the order declared.
#[derive(Default)]
pub(crate) struct Resources(Mutex<Vec<Box<dyn AnyResource>>>);

impl Resources {
    pub(crate) fn of(declared: Vec<Box<dyn AnyResource>>) -> Self {
        Resources(Mutex::new(declared))
    }

    fn take(&self) -> Vec<Box<dyn AnyResource>> {
        std::mem::take(&mut *self.0.lock())
    }

    /// Opens all, or as many as there are before one that cannot be opened.
    fn open(&self, core: &Core) -> std::result::Result<(), StartError> {
        let mut all = self.take();
        let refused = all.iter_mut().find_map(|resource| {
            let message = resource.open(core).err()?;
            Some(StartError::Resource { name: resource.name().to_owned(), message })
        });
        *self.0.lock() = all;
        refused.map_or(Ok(()), Err)
    }

    /// Closes those that are open, the last first.
    fn close(&self, mut report: impl FnMut(String)) {
        let mut all = self.take();
        while let Some(mut resource) = all.pop() {
            resource.close().into_iter().for_each(&mut report);
            user::discard(resource); // the closures of one that was not opened
        }
    }
}

/// The run was let go on one of its own workers, which cannot wait for its end.
impl Drop for Resources {
    fn drop(&mut self) {
        self.close(|_| ());
    }
}

impl Core {
    /// Opens the resources of the program.
    ///
    /// # Errors
    /// One cannot be opened: those before it stay open until [`close_resources`](Self::close_resources).
    pub(crate) fn open_resources(&self) -> std::result::Result<(), StartError> {
        self.resources.open(self)
    }

    /// Closes the resources of the program, once it has stopped.
    pub(crate) fn close_resources(&self) {
        self.resources.close(|problem| self.report(problem));
    }
}

impl App {
    /// Adds a resource, which handlers share: a pool of connections, a file, a client of a service. It is opened once,
    /// when the program starts, before any instance is made and any source opened; `close` takes it after the last
    /// event, however the run ends. Resources are opened in the order declared, and closed in the reverse order. If
    /// `open` fails, the program does not start; a failure of `close` is reported ([`Summary::problems`]).
    ///
    /// ```
    /// # mod comporta { pub use comporta_model::plan::Plan; pub use comporta_runtime::App; }
    /// use comporta::{App, Plan};
    /// use std::collections::HashMap;
    ///
    /// let app = App::new("greetings");
    /// let words = app.resource("words", || Ok(HashMap::from([("en", "hello"), ("de", "hallo")])), drop);
    /// let codes = app.source("codes", || ["en", "de", "xx"].map(String::from).into_iter());
    /// let greet = app.filter_map("greet", move |code: String| {
    ///     words.get().get(code.as_str()).map(|word| word.to_string())
    /// });
    /// let show = app.sink("show", |word: String| println!("{word}"));
    /// app.connect(codes, greet);
    /// app.connect(greet, show);
    /// let summary = app.run(&Plan::new())?;
    /// assert_eq!(summary.snapshot.stage("show").unwrap().counts.handled, 2);
    /// # Ok::<(), comporta_runtime::StartError>(())
    /// ```
    ///
    /// Tests put another in its place ([`testing::replace_resource`]).
    ///
    /// [`Summary::problems`]: crate::Summary::problems
    /// [`testing::replace_resource`]: crate::testing::replace_resource
    pub fn resource<R, C>(
        &self,
        name: impl Into<String>,
        open: impl FnOnce() -> Result<R> + Send + 'static,
        close: impl FnOnce(R) -> C + Send + 'static,
    ) -> Resource<R>
    where
        R: Send + Sync + 'static,
        C: Outcome,
    {
        let name: Box<str> = name.into().into();
        let shared = Arc::new(Shared { name: name.clone(), open: OnceLock::new() });
        let close = Box::new(move |value| close(value).into_result());
        let state = State::Declared(Box::new(open), close);
        let declared = Box::new(Declared { shared: shared.clone(), state });
        let again = self.with_resources(|all| {
            let again = all.iter().any(|known| known.name() == &*name);
            all.push(declared);
            again
        });
        if again {
            self.fault(GraphFault::SameResource { name: (*name).into() });
        }
        Resource { shared }
    }

    /// Has a resource be opened in another way, and dropped at the end; for tests. Returns whether there is one
    /// of that name and type.
    pub(crate) fn replace_resource<R: Send + Sync + 'static>(
        &self,
        name: &str,
        open: impl FnOnce() -> Result<R> + Send + 'static,
    ) -> bool {
        let replaced = self.with_resources(|all| {
            let known = all.iter_mut().find(|known| known.name() == name)?;
            let known = known.as_any().downcast_mut::<Declared<R>>()?;
            let close: Closer<R> = Box::new(|value| {
                drop(value);
                Ok(())
            });
            Some(std::mem::replace(&mut known.state, State::Declared(Box::new(open), close)))
        });
        replaced.is_some()
    }
}
