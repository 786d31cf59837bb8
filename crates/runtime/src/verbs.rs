//! The verbs: stages made of a closure. Each is a method of [`App`] that names what the closure does
//! with an event. Before: `app`, which adds the stage to the graph.
//!
//! | verb | the closure | sends |
//! |---|---|---|
//! | `map` | `In -> T` | its return value |
//! | `try_map` | `In -> Result<T>` | its return value, unless it fails |
//! | `filter` | `&In -> bool` | the event, if `true` |
//! | `filter_map` | `In -> Option<T>` | its return value, if it is `Some` |
//! | `flat_map` | `In -> IntoIterator` | every item |
//! | `try_flat_map` | `In -> Result<IntoIterator>` | every item, unless it fails |
//! | `inspect` | `&In` | the event |
//! | `map_in_place` | `&mut In` | the event |
//! | `process` | `In, &mut Out<T>` | whatever it sends through the port |
//! | `sink` | `In` | nothing |
//! | `keyed` | `&mut State, In, &mut Out<T>`, with the state of the event's key | whatever it sends through the port |
//! | `window`, `window_on_clock` | the key and the time of an event, and an aggregate | the result of each window |
//! | `map_async`, `try_map_async`, `sink_async` | as without `_async`, by a future | as without |
//!
//! `sink` stands beside `process` because a closure whose port type nothing determines does not compile.

use std::any::type_name;
use std::hash::Hash;

use comporta_model::async_stage::{SendsNothing, SendsResult, TriesResult, WaitingFn};
use comporta_model::error::{Outcome, Result};
use comporta_model::event::Time;
use comporta_model::graph::GraphWarning;
use comporta_model::keyed::KeyedFn;
use comporta_model::port::{Out, Ports};
use comporta_model::stage::{InPlace, Many, Mapped, One, Replaced, Sunk, Updated};
use comporta_model::verbs::{Filtered, TryMapped};
use comporta_model::window::{self, Aggregate, Timed, Windowed, Windows};

use crate::app::{App, StageRef};

/// Stages made of a closure. The closure names the type of its event; everything else is inferred.
///
/// ```
/// # mod comporta { pub use comporta_model::plan::Plan; pub use comporta_runtime::App; }
/// use comporta::{App, Plan};
///
/// let app = App::new("squares");
/// let texts = app.source("texts", || ["4", "five", "6", "7"].map(String::from).into_iter());
/// let parse = app.try_map("parse", |text: String| Ok(text.trim().parse::<u64>()?));
/// let even = app.filter("even", |n: &u64| n % 2 == 0);
/// let square = app.map("square", |n: u64| n * n);
/// let show = app.sink("show", |n: u64| println!("{n}"));
/// app.connect(texts, parse);
/// app.connect(parse, even);
/// app.connect(even, square);
/// app.connect(square, show);
/// let summary = app.run(&Plan::new())?;
/// assert_eq!(summary.snapshot.stage("parse").unwrap().counts.failed, 1); // "five"
/// assert_eq!(summary.snapshot.stage("show").unwrap().counts.handled, 2);
/// # Ok::<(), comporta_runtime::StartError>(())
/// ```
///
/// The closure of a `try_` verb returns a `comporta::Result`, so that `?` takes any error without
/// an annotation. [`process`](Self::process), [`sink`](Self::sink), [`inspect`](Self::inspect) and
/// [`map_in_place`](Self::map_in_place) take closures that return nothing or a `Result`; one that
/// uses `?` says which: `|n: u64| -> comporta::Result { ... }`.
impl App {
    /// Adds a stage that sends the return value of the closure for each event. Where that is of the type of the event, it
    /// takes its place, which costs little more than [`map_in_place`](Self::map_in_place).
    pub fn map<I, O, F>(&self, name: impl Into<String>, call: F) -> StageRef<'_, I, Out<O>>
    where
        I: Send + 'static,
        O: Send + 'static,
        F: FnMut(I) -> O + Clone + Send + Sync + 'static,
    {
        match Replaced::<F, I, O>::new(call) {
            Ok(replaced) => {
                self.add_stage(name.into(), None, move |_| Ok(InPlace(replaced.clone()))).sends()
            }
            Err(call) => self.plain(name, Mapped::<F, I, O, One>::new(call)),
        }
    }

    /// Adds a stage that sends the return value of the closure for each event. An event fails if the
    /// closure returns an error.
    pub fn try_map<I, O, F>(&self, name: impl Into<String>, call: F) -> StageRef<'_, I, Out<O>>
    where
        I: Send + 'static,
        O: Send + 'static,
        F: FnMut(I) -> Result<O> + Clone + Send + Sync + 'static,
    {
        self.plain(name, TryMapped::<F, I, O, One>::new(call))
    }

    /// Adds a stage that sends on the events for which the closure returns `true`.
    pub fn filter<I, F>(&self, name: impl Into<String>, keep: F) -> StageRef<'_, I, Out<I>>
    where
        I: Send + 'static,
        F: FnMut(&I) -> bool + Clone + Send + Sync + 'static,
    {
        self.plain(name, Filtered::<F, I>::new(keep))
    }

    /// Adds a stage that sends the value for each event for which the closure returns `Some`.
    pub fn filter_map<I, O, F>(&self, name: impl Into<String>, call: F) -> StageRef<'_, I, Out<O>>
    where
        I: Send + 'static,
        O: Send + 'static,
        F: FnMut(I) -> Option<O> + Clone + Send + Sync + 'static,
    {
        self.plain(name, Mapped::<F, I, Option<O>, Many>::new(call))
    }

    /// Adds a stage that sends every item of the closure's return value: a `Vec`, an iterator, ...
    ///
    /// A `Result` is an iterator too, of one item or none: its errors would be dropped, and
    /// [`check`](Self::check) warns about it with the name of the stage. Use
    /// [`try_map`](Self::try_map) or [`try_flat_map`](Self::try_flat_map) instead.
    pub fn flat_map<I, O, F>(
        &self,
        name: impl Into<String>,
        call: F,
    ) -> StageRef<'_, I, Out<O::Item>>
    where
        I: Send + 'static,
        O: IntoIterator + 'static,
        O::Item: Send + 'static,
        F: FnMut(I) -> O + Clone + Send + Sync + 'static,
    {
        let name = name.into();
        if type_name::<O>().starts_with("core::result::Result<") {
            self.warn(GraphWarning::FlatMapOfResult(name.as_str().into()));
        }
        self.plain(name, Mapped::<F, I, O, Many>::new(call))
    }

    /// Adds a stage that sends every item of the closure's return value. An event fails if the closure
    /// returns an error.
    pub fn try_flat_map<I, O, F>(
        &self,
        name: impl Into<String>,
        call: F,
    ) -> StageRef<'_, I, Out<O::Item>>
    where
        I: Send + 'static,
        O: IntoIterator + 'static,
        O::Item: Send + 'static,
        F: FnMut(I) -> Result<O> + Clone + Send + Sync + 'static,
    {
        self.plain(name, TryMapped::<F, I, O, Many>::new(call))
    }

    /// Adds a stage that calls the closure with each event and sends the event on, as cheaply as
    /// [`map_in_place`](Self::map_in_place). An event fails if the closure returns an error.
    pub fn inspect<I, R, F>(&self, name: impl Into<String>, mut call: F) -> StageRef<'_, I, Out<I>>
    where
        I: Send + 'static,
        R: Outcome + 'static,
        F: FnMut(&I) -> R + Clone + Send + Sync + 'static,
    {
        self.map_in_place(name, move |event: &mut I| call(event))
    }

    /// Adds a stage that changes events in place and sends them on: the cheapest kind, since whole
    /// chunks travel on without being copied. An event fails if the closure returns an error.
    pub fn map_in_place<I, R, F>(&self, name: impl Into<String>, call: F) -> StageRef<'_, I, Out<I>>
    where
        I: Send + 'static,
        R: Outcome + 'static,
        F: FnMut(&mut I) -> R + Clone + Send + Sync + 'static,
    {
        let model = Updated::<F, I, R>::new(call);
        self.add_stage(name.into(), None, move |_| Ok(InPlace(model.clone())))
    }

    /// Adds a stage that takes an event and sends any number through one port. An event fails if
    /// the closure returns an error; events that the closure sent for it are then withdrawn.
    pub fn process<I, O, R, F>(&self, name: impl Into<String>, call: F) -> StageRef<'_, I, Out<O>>
    where
        I: Send + 'static,
        O: Send + 'static,
        R: Outcome + 'static,
        F: FnMut(I, &mut Out<O>) -> R + Clone + Send + Sync + 'static,
    {
        self.stage(name, call)
    }

    /// Adds a stage that takes events and sends none. An event fails if the closure returns an error.
    pub fn sink<I, R, F>(&self, name: impl Into<String>, call: F) -> StageRef<'_, I, ()>
    where
        I: Send + 'static,
        R: Outcome + 'static,
        F: FnMut(I) -> R + Clone + Send + Sync + 'static,
    {
        self.plain(name, Sunk::<F, I, R>::new(call))
    }

    /// Adds a stage that handles events with the state of their key. Events with one key are handled in the order of
    /// their arrival, one at a time; those of different keys side by side, as many as the plan has instances.
    ///
    /// ```
    /// # mod comporta { pub use comporta_model::{plan::Plan, port::Out}; pub use comporta_runtime::App; }
    /// use comporta::{App, Out, Plan};
    ///
    /// let app = App::new("words");
    /// let words = app.source("words", || ["a", "b", "a"].map(String::from).into_iter());
    /// let count = app.keyed(
    ///     "count",
    ///     |word: &String| word.clone(),
    ///     |n: &mut u64, word: String, out: &mut Out<(String, u64)>| {
    ///         *n += 1;
    ///         out.send((word, *n));
    ///     },
    /// );
    /// let show = app.sink("show", |(word, n): (String, u64)| println!("{n} {word}"));
    /// app.connect(words, count);
    /// app.connect(count, show);
    /// app.run(&Plan::new().stage("count", |count| count.instances(4)))?;
    /// # Ok::<(), comporta_runtime::StartError>(())
    /// ```
    pub fn keyed<I, K, S, P, R, KF, F>(
        &self,
        name: impl Into<String>,
        key: KF,
        call: F,
    ) -> StageRef<'_, I, P>
    where
        I: Send + 'static,
        K: Hash + Eq + Send + Sync + 'static,
        S: Default + Send + 'static,
        P: Ports,
        R: Outcome + 'static,
        KF: Fn(&I) -> K + Clone + Send + Sync + 'static,
        F: FnMut(&mut S, I, &mut P) -> R + Clone + Send + Sync + 'static,
    {
        self.stage(name, KeyedFn::<KF, F, I, K, S, P, R>::new(key, call))
    }

    /// Adds a stage that gathers the events of each key in windows of event time, and sends what `aggregate` makes of
    /// each window through the port `windows`. Late events leave through the port `late`. See
    /// [`windows::keyed`](comporta_model::window::keyed).
    ///
    /// ```
    /// # mod comporta {
    /// #     pub use comporta_model::{event::Time, plan::Plan, window as windows};
    /// #     pub use comporta_runtime::App;
    /// # }
    /// use std::time::Duration;
    /// use comporta::windows::{Count, Windowed, Windows};
    /// use comporta::{App, Plan, Time};
    ///
    /// let app = App::new("errors");
    /// let errors = app.source("errors", || {
    ///     [("db", 1), ("web", 2), ("db", 3), ("db", 12)].map(|(of, s)| (of.to_owned(), s)).into_iter()
    /// });
    /// let rates = app.window(
    ///     "rates",
    ///     |error: &(String, u64)| error.0.clone(),
    ///     |error: &(String, u64)| Time::from_millis(1_000 * error.1),
    ///     Windows::tumbling(Duration::from_secs(10)),
    ///     Count,
    /// );
    /// let show = app.sink("show", |rate: Windowed<String, u64>| println!("{} {}", rate.key, rate.value));
    /// app.connect(errors, rates);
    /// app.connect(rates.windows, show);
    /// let summary = app.run(&Plan::new().stage("rates", |rates| rates.instances(4)))?;
    /// # assert_eq!(summary.snapshot.stage("show").unwrap().counts.handled, 3);
    /// # Ok::<(), comporta_runtime::StartError>(())
    /// ```
    pub fn window<I, K, A, KF, TF>(
        &self,
        name: impl Into<String>,
        key: KF,
        time: TF,
        windows: Windows,
        aggregate: A,
    ) -> StageRef<'_, I, Timed<I, Windowed<K, A::Out>>>
    where
        I: Send + 'static,
        K: Hash + Eq + Clone + Send + Sync + 'static,
        A: Aggregate<I>,
        KF: Fn(&I) -> K + Clone + Send + Sync + 'static,
        TF: Fn(&I) -> Time + Clone + Send + Sync + 'static,
    {
        self.stage(name, window::keyed(key, time, windows, aggregate)).refused(windows.fault())
    }

    /// As [`window`](Self::window), over the program's clock: an event is in the windows of the moment at which it is
    /// handled. No event is late.
    pub fn window_on_clock<I, K, A, KF>(
        &self,
        name: impl Into<String>,
        key: KF,
        windows: Windows,
        aggregate: A,
    ) -> StageRef<'_, I, Timed<I, Windowed<K, A::Out>>>
    where
        I: Send + 'static,
        K: Hash + Eq + Clone + Send + Sync + 'static,
        A: Aggregate<I>,
        KF: Fn(&I) -> K + Clone + Send + Sync + 'static,
    {
        self.stage(name, window::keyed_on_clock(key, windows, aggregate)).refused(windows.fault())
    }

    /// Adds a stage that sends what the future returns for each event. While it waits it holds no thread;
    /// up to `instances` events of the plan are in flight at once.
    ///
    /// ```
    /// # mod comporta { pub use comporta_model::plan::Plan; pub use comporta_runtime::App; }
    /// use comporta::{App, Plan};
    ///
    /// let app = App::new("lengths");
    /// let names = app.source("names", || ["a", "bc", "def"].map(String::from).into_iter());
    /// let length = app.map_async("length", |name: String| async move { name.len() });
    /// let show = app.sink("show", |length: usize| println!("{length}"));
    /// app.connect(names, length);
    /// app.connect(length, show);
    /// let summary = app.run(&Plan::new().stage("length", |length| length.instances(100)))?;
    /// # assert_eq!(summary.snapshot.stage("show").unwrap().counts.handled, 3);
    /// # Ok::<(), comporta_runtime::StartError>(())
    /// ```
    pub fn map_async<I, O, F, Fut>(
        &self,
        name: impl Into<String>,
        call: F,
    ) -> StageRef<'_, I, Out<O>>
    where
        I: Send + 'static,
        O: Send + 'static,
        F: Fn(I) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = O> + Send + 'static,
    {
        self.stage(name, WaitingFn::<F, I, Fut, SendsResult>::new(call))
    }

    /// As [`map_async`](Self::map_async); an event fails if the future returns an error.
    pub fn try_map_async<I, O, F, Fut>(
        &self,
        name: impl Into<String>,
        call: F,
    ) -> StageRef<'_, I, Out<O>>
    where
        I: Send + 'static,
        O: Send + 'static,
        F: Fn(I) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<O>> + Send + 'static,
    {
        self.stage(name, WaitingFn::<F, I, Fut, TriesResult>::new(call))
    }

    /// Adds a stage that takes events and sends none, as [`map_async`](Self::map_async) waits for its
    /// future. An event fails if the future returns an error.
    pub fn sink_async<I, R, F, Fut>(&self, name: impl Into<String>, call: F) -> StageRef<'_, I, ()>
    where
        I: Send + 'static,
        R: Outcome + 'static,
        F: Fn(I) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = R> + Send + 'static,
    {
        self.stage(name, WaitingFn::<F, I, Fut, SendsNothing>::new(call))
    }
}
