//! The program: named stages and sources, and their connectors. How it runs is set by a plan.
//! `App` has interior mutability, and its handles are `Copy`, so that sub-graphs can be built by
//! functions.
//! Long because every way to declare and to join stages is a documented method of one type.

use std::any::{Any, TypeId, type_name};
use std::cell::RefCell;
use std::collections::HashSet;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use comporta_model::chunk::ChunkQueue;
use comporta_model::column::Columns;
use comporta_model::error::Result;
use comporta_model::event::{Event, Meta};
use comporta_model::failed::Failed;
use comporta_model::graph::{
    Connector, Graph, GraphFault, GraphWarning, Kind, Route, StageId, StageSpec, Topology,
};
use comporta_model::keyed::{EventTime, Keys, ordered_by};
use comporta_model::kind;
use comporta_model::plan::{self, Catalogue, Plan, Settings};
use comporta_model::port::{AsInput, AsPort, Out, Port, Ports, StageKey};
use comporta_model::replicas::{Part, replicate};
use comporta_model::source::{IntoSource, Source};
use comporta_model::stage::{Cx, Handler, IntoStage, Stage};
use comporta_policy::{Entry as PolicyEntry, Registry, admission};

use crate::core::Core;
use crate::env::{Clock, cpus};
use crate::failed_event::{AnyCodec, Codec, OnFailure};
use crate::log;
use crate::node::Node;
use crate::path::emit::Links;
use crate::path::route::{self, AnyParts, Edge, KeyedParts, Tap, key_hash};
use crate::path::sender::{InputNode, Sender};
use crate::path::source::{SourceLimits, SourceNode};
use crate::rehearse::{PolicyWarning, rehearse};
#[cfg(feature = "json")]
use crate::replay::Silent;
use crate::resource::{AnyResource, Resources};
use crate::running::Running;
use crate::stage::gate::Controller;
use crate::stage::groups::GroupSize;
use crate::stage::lanes::watermark::Watermark;
use crate::stage::lanes::{EventTimeParts, LaneRules, keyed_queue};
use crate::stage::queue::StageQueue;
use crate::stage::{self, Maker, Rules};
use crate::start_error::StartError;
use crate::sync::{Arc, AtomicUsize};
use crate::user;
use crate::wiring::Declared;

/// A program: stages joined into a graph.
///
/// Stages, sources and inputs are declared by name; the handles returned are `Copy` and are used to
/// connect them. [`run`](App::run) or [`start`](App::start) the program under a [`Plan`].
///
/// ```
/// # mod comporta { pub use comporta_model::{plan::Plan, port::{AsPort, Port}}; pub use comporta_runtime::App; }
/// use comporta::{App, AsPort, Plan, Port};
///
/// /// A part of a graph is built by a function.
/// fn odd_squares(app: &App, numbers: impl AsPort<u64>) -> Port<u64> {
///     let odd = app.filter("odd", |n: &u64| n % 2 == 1);
///     let square = app.map("square", |n: u64| n * n);
///     app.connect(numbers, odd);
///     app.connect(odd, square);
///     square.as_port()
/// }
///
/// let app = App::new("odd-squares");
/// let numbers = app.source("numbers", || 1..=5_u64);
/// let squares = odd_squares(&app, numbers);
/// let show = app.sink("show", |n: u64| println!("{n}"));
/// app.connect(squares, show);
/// assert!(app.check()?.is_empty()); // nothing that may surprise
/// let summary = app.run(&Plan::new())?;
/// assert_eq!(summary.snapshot.stage("show").unwrap().counts.handled, 3);
/// # Ok::<(), comporta_runtime::StartError>(())
/// ```
pub struct App {
    /// Keeps handles of two apps apart.
    identity: u64,
    inner: RefCell<Inner>,
}

#[derive(Default)]
struct Inner {
    graph: Graph,
    entries: Vec<Entry>,
    wiring: Declared,
    copies: HashSet<(u32, usize)>,
    plan: Plan,
    registry: Registry,
    admissions: admission::Registry,
    on_failure: Option<OnFailure>,
    /// The busiest keys are counted from the start.
    counts_keys: bool,
    resources: Vec<Box<dyn AnyResource>>,
}

/// What is known of the node of a stage before it is known how it runs.
struct Entry {
    build: Build,
    extras: Extras,
}

/// How to make the node of a stage.
enum Build {
    Once(BuildOnce),
    /// For each of its replicas.
    Each(BuildEach),
}

type BuildOnce = Box<dyn FnOnce(Site<'_>) -> Arc<dyn Node> + Send>;
type BuildEach = Box<dyn Fn(Site<'_>) -> Arc<dyn Node> + Send>;

pub(crate) struct Site<'a> {
    core: &'a Core,
    pub(crate) id: u32,
    /// Which replica of its stage this is.
    replica: Part,
    extras: Extras,
    /// Who is told of events that fail.
    on_failure: Option<OnFailure>,
}

impl Site<'_> {
    /// Gives a replica keys of its own, if the stage has keys and this is not the first.
    fn own_keys<T: 'static>(&mut self) -> Option<Arc<dyn Keys<T>>> {
        if self.replica.index() == 0 {
            return None;
        }
        let parts = self.extras.keys.as_ref()?.downcast_ref::<KeyedParts<T>>()?;
        let (keys, queue) = (parts.keys.replica(), parts.queue);
        self.extras.keys = Some(Arc::new(KeyedParts { keys: keys.clone(), queue }));
        Some(keys)
    }
}

/// What is said of a stage beside its handler, with its type erased.
#[derive(Default)]
struct Extras {
    /// The event it starts with: its first replica does.
    first: Option<Box<dyn Any + Send>>,
    /// How to copy an event.
    retain: Option<Arc<dyn Any + Send + Sync>>,
    /// The keys of its events and the queue that has lanes for them, if it is keyed.
    keys: Option<Arc<AnyParts>>,
}

impl Extras {
    fn for_replica(&mut self) -> Extras {
        let (retain, keys) = (self.retain.clone(), self.keys.clone());
        Extras { first: self.first.take(), retain, keys }
    }
}

/// A handle to a stage. A connector can end at it, and start at it if the stage has one port. The
/// ports of a stage with several are fields of the handle: `app.connect(parse.bad, log)`.
pub struct StageRef<'a, I, P: Ports> {
    app: &'a App,
    key: StageKey,
    refs: P::Refs,
    takes: PhantomData<fn(I)>,
}

impl<I, P: Ports> Clone for StageRef<'_, I, P> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<I, P: Ports> Copy for StageRef<'_, I, P> {}

impl<I, P: Ports> PartialEq for StageRef<'_, I, P> {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}
impl<I, P: Ports> Eq for StageRef<'_, I, P> {}

impl<I, P: Ports> Hash for StageRef<'_, I, P> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key.hash(state);
    }
}

/// The name of the stage.
impl<I, P: Ports> fmt::Display for StageRef<'_, I, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.app.inner.borrow().graph.stages[self.key.stage.index()].name)
    }
}

impl<I, P: Ports> Deref for StageRef<'_, I, P> {
    type Target = P::Refs;
    fn deref(&self) -> &P::Refs {
        &self.refs
    }
}

impl<I, P: Ports> fmt::Debug for StageRef<'_, I, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.app.inner.borrow().graph.stages[self.key.stage.index()].name.clone();
        f.debug_tuple("StageRef").field(&name).finish()
    }
}

impl<I, T: Send + 'static> AsPort<T> for StageRef<'_, I, Out<T>> {
    fn as_port(&self) -> Port<T> {
        self.refs
    }
}

impl<T, P: Ports> AsInput<T> for StageRef<'_, T, P> {
    fn as_input(&self) -> StageKey {
        self.key
    }
}

impl<'a, I, P: Ports> StageRef<'a, I, P> {
    /// The same stage with the type of its ports written as `Q`, which is the same type.
    pub(crate) fn sends<Q: Ports>(self) -> StageRef<'a, I, Q> {
        let StageRef { app, key, takes, .. } = self;
        debug_assert!(TypeId::of::<P>() == TypeId::of::<Q>(), "the type is another");
        StageRef { app, key, refs: Q::refs(key), takes }
    }
}

impl<I: Send + 'static, P: Ports> StageRef<'_, I, P> {
    pub(crate) fn id(&self) -> u32 {
        self.key.stage.0
    }

    /// Why it could not start, if that is known.
    pub(crate) fn refused(self, why: Option<String>) -> Self {
        self.say(|spec| spec.refused = why.map(String::into_boxed_str))
    }

    fn say(self, say: impl FnOnce(&mut StageSpec)) -> Self {
        say(&mut self.app.inner.borrow_mut().graph.stages[self.key.stage.index()]);
        self
    }

    /// Declares that events with one key are handled in the order of their arrival and never two at once, and those of
    /// different keys side by side. A key that fails or waits holds up no other. For state of each
    /// key, see [`App::keyed`].
    ///
    /// ```
    /// # mod comporta { pub use comporta_model::plan::Plan; pub use comporta_runtime::App; }
    /// use comporta::{App, Plan};
    ///
    /// let app = App::new("accounts");
    /// let orders = app.source("orders", || (0..100_u64).map(|n| (n % 7, n)));
    /// let book = app.sink("book", |(account, order): (u64, u64)| println!("{account}: {order}"));
    /// app.connect(orders, book.keyed(|(account, _)| *account));
    /// app.run(&Plan::new().threads(2).stage("book", |book| book.instances(4)))?; // each account in order
    /// # Ok::<(), comporta_runtime::StartError>(())
    /// ```
    pub fn keyed<K>(self, key: impl Fn(&I) -> K + Send + Sync + 'static) -> Self
    where
        K: Hash + Eq + Send + Sync + 'static,
    {
        let keys: Arc<dyn Keys<I>> = Arc::new(ordered_by(key));
        self.set_keys(keys)
    }

    /// It has so many instances, unless the plan says otherwise.
    pub(crate) fn with_instances(self, instances: usize) -> Self {
        self.say(|spec| spec.instances = instances)
    }

    fn set_keys(self, keys: Arc<dyn Keys<I>>) -> Self {
        let event_time = keys.event_time().is_some();
        let keyed = KeyedParts { keys, queue: keyed_queue::<I> };
        let keys: Arc<AnyParts> = Arc::new(keyed);
        let at = self.key.stage.index();
        let before = self.app.inner.borrow_mut().entries[at].extras.keys.replace(keys);
        self.say(|spec| {
            (spec.keyed, spec.event_time) = (true, event_time);
            spec.keys_refused = before.map(|_| ("keyed again", "it has keys already"));
        })
    }

    /// Declares that the stage keeps state that must see all events: it has one instance under every plan.
    pub fn stateful(self) -> Self {
        self.say(|spec| spec.stateful = true)
    }

    /// Declares that results leave the stage in the order in which its events arrived, however many
    /// instances it has.
    pub fn ordered(self) -> Self {
        self.say(|spec| spec.ordered = true)
    }

    /// Declares that the stage has side effects, such as writing files or sending mail. `compare`, which
    /// runs a program many times, repeats them only if that is allowed.
    pub fn effects(self) -> Self {
        self.say(|spec| spec.effects = true)
    }

    /// Its handler may wait for long, on a disk, a lock or a call to another program: it runs on threads of its own,
    /// and the workers of the other stages stay free. It is in the cluster `blocking`, unless the plan names it in
    /// another; the plan says how many threads that has (`blocking.threads`), and how many instances wait at once
    /// (`instances`).
    ///
    /// ```
    /// # mod comporta { pub use comporta_model::plan::Plan; pub use comporta_runtime::App; }
    /// use comporta::{App, Plan};
    ///
    /// let app = App::new("hosts");
    /// let names = app.source("names", || ["localhost"].map(String::from).into_iter());
    /// let look_up = app.try_map("look-up", |name: String| {
    ///     use std::net::ToSocketAddrs as _;
    ///     Ok((name.as_str(), 80).to_socket_addrs()?.count()) // waits for the network
    /// });
    /// let look_up = look_up.blocking();
    /// let show = app.sink("show", |addresses: usize| println!("{addresses}"));
    /// app.connect(names, look_up);
    /// app.connect(look_up, show);
    /// let plan = Plan::new().blocking_threads(4).stage("look-up", |s| s.instances(4));
    /// let summary = app.run(&plan)?;
    /// # assert!(summary.snapshot.pools.iter().any(|pool| pool.name == "blocking" && pool.threads == 4));
    /// # Ok::<(), comporta_runtime::StartError>(())
    /// ```
    pub fn blocking(self) -> Self {
        self.say(|spec| spec.blocking = true)
    }

    /// Puts `event` into the queue of the stage when the program starts.
    pub fn autostart(self, event: I) -> Self {
        self.app.inner.borrow_mut().entries[self.key.stage.index()].extras.first =
            Some(Box::new(event));
        self.say(|spec| spec.autostart = true)
    }

    /// Returns the error port: connected, it sends every event that fails for good as a [`Failed`], after the last
    /// try that the plan allows. Failed events then go on through the graph as any others: they find a full queue,
    /// are counted as sent, and leave an ordered stage in order; a source that asked for acknowledgement, or a
    /// client of a gateway, learns what became of the [`Failed`]. The stage keeps the reason, but not the event.
    ///
    /// ```
    /// # mod comporta { pub use comporta_model::{failed::Failed, plan::Plan}; pub use comporta_runtime::App; }
    /// # use std::sync::{Arc, Mutex};
    /// use comporta::{App, Failed, Plan};
    ///
    /// let app = App::new("parser");
    /// let texts = app.source("texts", || ["1", "two", "3"].map(String::from).into_iter());
    /// let parse = app.try_map("parse", |text: String| Ok(text.parse::<u64>()?));
    /// let show = app.sink("show", |n: u64| println!("{n}"));
    /// # let seen = Arc::new(Mutex::new(Vec::new()));
    /// # let own = seen.clone();
    /// let dead_letters = app.sink("dead-letters", move |failed: Failed<String>| {
    ///     println!("{failed}: {:?}", failed.event); // `parse`: invalid digit found in string: Some("two")
    ///     # own.lock().unwrap().push(failed);
    /// });
    /// app.connect(texts, parse);
    /// app.connect(parse, show);
    /// app.connect(parse.errors(), dead_letters);
    /// # let summary = app.run(&Plan::new())?;
    /// # let parse = summary.snapshot.stage("parse").unwrap();
    /// # assert_eq!((parse.counts.handled, parse.counts.failed, parse.counts.emitted), (2, 1, 3));
    /// # assert_eq!(seen.lock().unwrap()[0].event.as_deref(), Some("two"));
    /// # assert_eq!(seen.lock().unwrap()[0].to_string(), "`parse`: invalid digit found in string");
    /// # Ok::<(), comporta_runtime::StartError>(())
    /// ```
    ///
    /// The event is there if the handler did not [`take`](comporta_model::event::Ev::take) it. Of handlers that
    /// always take or change their events, as closures do, a copy is kept meanwhile, unless only local connectors
    /// lead to the stage; others keep one after [`retain`](Self::retain). A [`Failed`] has no deadline, and no key of a
    /// keyed stage waits for it.
    #[must_use]
    pub fn errors(&self) -> Port<Failed<I>> {
        let declared = &mut self.app.inner.borrow_mut().wiring;
        declared.errors.insert(self.id(), Links::open_errors::<Failed<I>>);
        Port::of(self.key, P::NAMES.len())
    }

    /// Keeps a copy of each event while it is handled, so that an event that the handler took can still
    /// be retried and replayed.
    pub fn retain(self) -> Self
    where
        I: Clone,
    {
        let copy: fn(&I) -> I = I::clone;
        self.app.inner.borrow_mut().entries[self.key.stage.index()].extras.retain =
            Some(Arc::new(copy));
        self.say(|spec| spec.retain = true)
    }
}

impl App {
    /// Creates a program without stages.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        let graph = Graph { name: name.into().into(), ..Graph::default() };
        static MADE: AtomicU64 = AtomicU64::new(0);
        let identity = MADE.fetch_add(1, Ordering::Relaxed);
        App { identity, inner: RefCell::new(Inner { graph, ..Inner::default() }) }
    }

    /// Adds a stage whose instances are clones of `stage`: a type that implements [`Stage`], or a closure
    /// `|event: In, out: &mut Out<T>| ...`.
    pub fn stage<M, S>(&self, name: impl Into<String>, stage: S) -> StageOf<'_, S::Handler>
    where
        S: IntoStage<M>,
        S::Handler: Replicate,
    {
        let model = stage.into_handler();
        let group = model.group();
        let keys = if <KindOf<S, M> as kind::Kind>::KEYED { model.keys() } else { None };
        let added = self.add_stage(name.into(), group, move |_| Ok(model.clone()));
        if <KindOf<S, M> as kind::Kind>::KEYED
            && let Some(keys) = keys
        {
            return added.set_keys(keys);
        }
        added
    }

    /// Adds a stage whose instances are made by a factory, for state that is not `Clone`.
    pub fn stage_with<M, S>(
        &self,
        name: impl Into<String>,
        factory: impl Fn(&Cx) -> Result<S> + Send + Sync + 'static,
    ) -> StageOf<'_, S::Handler>
    where
        S: IntoStage<M>,
        M: 'static,
    {
        let made = move |cx: &Cx| Ok(factory(cx)?.into_handler());
        let added = self.add_stage(name.into(), None, made);
        if !<KindOf<S, M> as kind::Kind>::KEYED {
            return added;
        }
        let why = "its instances would not share their keys: add it by `App::stage`";
        added.say(|spec| spec.keys_refused = Some(("made by a factory", why)))
    }

    /// A stage of a verb: its instances are copies of `stage`.
    pub(crate) fn plain<S: Stage + Clone + Sync>(
        &self,
        name: impl Into<String>,
        stage: S,
    ) -> StageRef<'_, S::In, S::Ports> {
        self.stage(name, stage)
    }

    /// Adds a source, which is opened when the program starts. `open` returns a [`Source`], an iterator, or
    /// a `Result` of one.
    pub fn source<M, S>(
        &self,
        name: impl Into<String>,
        open: impl FnOnce() -> S + Send + 'static,
    ) -> Port<<S::Source as Source>::Item>
    where
        S: IntoSource<M> + 'static,
    {
        let key = self.add(name.into(), Kind::Source, "()", &["out"], move |site| {
            source_node(&site, move || open().into_source())
        });
        Port::of(key, 0)
    }

    /// Adds a source in parts, whose events are those of all its parts together. The plan says how many there are
    /// (`replicas`), one unless it says more, and `open` is called for each when the program starts. Parts are pulled side by
    /// side, by different threads.
    ///
    /// ```
    /// # mod comporta { pub use comporta_model::{plan::Plan, replicas::Part}; pub use comporta_runtime::App; }
    /// use comporta::{App, Part, Plan};
    ///
    /// let app = App::new("squares");
    /// let numbers = app.source_parts("numbers", |part: Part| part.of(1_000_000));
    /// let square = app.map("square", |n: u64| n * n);
    /// let last = app.sink("last", |n: u64| assert!(n < 1_000_000_000_000));
    /// app.connect(numbers, square);
    /// app.connect(square, last);
    /// // Two of everything: the threads share nothing.
    /// let summary = app.run(&Plan::new().threads(2).every(|stage| stage.replicas(2)))?;
    /// assert_eq!(summary.snapshot.stage("last").unwrap().counts.handled, 1_000_000);
    /// # Ok::<(), comporta_runtime::StartError>(())
    /// ```
    pub fn source_parts<M, S>(
        &self,
        name: impl Into<String>,
        open: impl Fn(Part) -> S + Send + Sync + 'static,
    ) -> Port<<S::Source as Source>::Item>
    where
        S: IntoSource<M> + 'static,
    {
        let open = Arc::new(open);
        let build = move |site: Site<'_>| -> Arc<dyn Node> {
            let (open, part) = (open.clone(), site.replica);
            source_node(&site, move || open(part).into_source())
        };
        let key = self.add_each(name.into(), Kind::Source, "()", &["out"], build);
        self.inner.borrow_mut().graph.stages[key.stage.index()].in_parts = true;
        Port::of(key, 0)
    }

    /// Declares that a source has side effects, as [`StageRef::effects`] does for a stage: reading from it
    /// changes something, such as the messages of a broker, which are then gone.
    ///
    /// ```
    /// # use comporta_runtime::App;
    /// let app = App::new("mailbox");
    /// let mails = app.effects(app.source("mails", || ["one", "two"].map(String::from).into_iter()));
    /// app.connect(mails, app.sink("store", |_: String| ()).effects());
    /// assert!(app.graph().stages.iter().all(|stage| stage.effects));
    /// ```
    pub fn effects<T>(&self, source: Port<T>) -> Port<T> {
        let mut inner = self.inner.borrow_mut();
        let known = source.of.app == self.identity();
        match inner.graph.stages.get_mut(source.of.stage.index()).filter(|_| known) {
            Some(spec) => spec.effects = true,
            None => {
                let app = inner.graph.name.clone();
                inner.graph.faults.push(GraphFault::Foreign { app });
            }
        }
        source
    }

    /// Adds an input: events sent through the returned [`Sender`] leave through the returned port.
    pub fn input<T: Send + 'static>(&self, name: impl Into<String>) -> (Sender<T>, Port<T>) {
        self.add_input(name.into(), InputNode::new(self.next_id(), None))
    }

    pub(crate) fn add_input<T: Send + 'static>(
        &self,
        name: String,
        node: Arc<InputNode>,
    ) -> (Sender<T>, Port<T>) {
        let sender = Sender::new(node.clone());
        let key = self.add(name, Kind::Input, "()", &["out"], move |_| node);
        (sender, Port::of(key, 0))
    }

    /// The number of the stage that is declared next.
    pub(crate) fn next_id(&self) -> u32 {
        u32::try_from(self.inner.borrow().entries.len()).unwrap_or(u32::MAX)
    }

    /// An input is that of a gateway.
    pub(crate) fn mark_gateway<T>(&self, input: Port<T>) {
        self.inner.borrow_mut().graph.stages[input.of.stage.index()].gateway = true;
    }

    /// Connects a port to a stage. The event type can be copied and serialised, so that a plan may
    /// separate the two. A type that borrows, such as `&str`, cannot be deserialised (the compiler finds
    /// its `Deserialize` "not general enough"): send an owned type, such as `String`.
    ///
    /// A port that is connected to several stages sends a copy to each. Connecting it to one stage twice
    /// would send every event there twice; that is a mistake of the graph, unless
    /// [`connect_again`](Self::connect_again) is used.
    pub fn connect<T: Event>(&self, from: impl AsPort<T>, to: impl AsInput<T>) {
        self.join(from.as_port(), [to], Way::First, Some(Codec::new()));
    }

    /// Connects a port to a stage that it is already connected to: the stage receives another copy of
    /// every event.
    pub fn connect_again<T: Event>(&self, from: impl AsPort<T>, to: impl AsInput<T>) {
        self.join(from.as_port(), [to], Way::Again, Some(Codec::new()));
    }

    /// Connects a port to a stage in the same process. The event may be of any `Send` type, such as a
    /// socket.
    pub fn connect_local<T: Send + 'static>(&self, from: impl AsPort<T>, to: impl AsInput<T>) {
        self.join(from.as_port(), [to], Way::First, None);
    }

    /// Connects a port to several stages, which receive its events in turn.
    pub fn round_robin<T: Event, S: AsInput<T>>(
        &self,
        from: impl AsPort<T>,
        to: impl IntoIterator<Item = S>,
    ) {
        self.join(from.as_port(), to, Way::RoundRobin, Some(Codec::new()));
    }

    /// Connects a port to several stages, one of which is chosen by a key: events with equal keys go to the
    /// same stage.
    pub fn by_key<T: Event, S: AsInput<T>, K: Hash>(
        &self,
        from: impl AsPort<T>,
        key: impl Fn(&T) -> K + Send + Sync + 'static,
        to: impl IntoIterator<Item = S>,
    ) {
        let key = Arc::new(move |event: &T| key_hash(&key(event)));
        self.join(from.as_port(), to, Way::ByKey(key), Some(Codec::new()));
    }

    /// Like [`round_robin`](Self::round_robin), for events that cannot leave the process.
    pub fn round_robin_local<T: Send + 'static, S: AsInput<T>>(
        &self,
        from: impl AsPort<T>,
        to: impl IntoIterator<Item = S>,
    ) {
        self.join(from.as_port(), to, Way::RoundRobin, None);
    }

    /// Like [`by_key`](Self::by_key), for events that cannot leave the process.
    pub fn by_key_local<T: Send + 'static, S: AsInput<T>, K: Hash>(
        &self,
        from: impl AsPort<T>,
        key: impl Fn(&T) -> K + Send + Sync + 'static,
        to: impl IntoIterator<Item = S>,
    ) {
        let key = Arc::new(move |event: &T| key_hash(&key(event)));
        self.join(from.as_port(), to, Way::ByKey(key), None);
    }

    /// Has another node stand where a stage or a source would: for tests of links to other processes.
    #[cfg(all(test, not(shuttle)))]
    pub(crate) fn put_node(
        &self,
        at: StageKey,
        make: impl FnOnce(&Core, u32) -> Arc<dyn Node> + Send + 'static,
    ) {
        let build = Box::new(move |site: Site<'_>| make(site.core, site.id));
        self.inner.borrow_mut().entries[at.stage.index()].build = Build::Once(build);
    }

    /// Checks the graph. Returns warnings about parts that work but may surprise.
    ///
    /// # Errors
    /// Returns all mistakes of the graph.
    pub fn check(&self) -> std::result::Result<Vec<GraphWarning>, StartError> {
        self.topology().map(|topology| topology.warnings)
    }

    /// Returns the graph as data.
    #[must_use]
    pub fn graph(&self) -> Graph {
        self.inner.borrow().graph.clone()
    }

    /// Sets the plan of the program itself. A plan given to [`start`](Self::start), a file or a flag
    /// overrides it, setting by setting.
    pub fn set_plan(&self, plan: Plan) {
        self.inner.borrow_mut().plan = plan;
    }

    /// Returns the plan of the program itself, set by [`set_plan`](Self::set_plan).
    pub fn plan(&self) -> Plan {
        self.inner.borrow().plan.clone()
    }

    /// Registers a policy of the program, which plans can then choose by its name. It hides a policy of
    /// the library with the same name.
    pub fn register_policy(&self, entry: PolicyEntry) {
        self.inner.borrow_mut().registry.add(entry);
    }

    /// Registers an admission controller of the program, which plans can then choose by its name for the
    /// queue of a stage. It hides a controller of the library with the same name.
    ///
    /// ```
    /// # mod comporta { pub use comporta_model::plan::Plan; pub use comporta_policy as policy; pub use comporta_runtime::*; }
    /// use comporta::policy::Offer;
    /// use comporta::policy::admission::{Admission, Ask, Entry};
    /// use comporta::{App, Plan};
    ///
    /// /// Admits an event if the queue is empty.
    /// struct Shy;
    /// impl Admission for Shy {
    ///     fn admit(&mut self, ask: &Ask) -> usize {
    ///         usize::from(ask.queued == 0)
    ///     }
    /// }
    ///
    /// let app = App::new("shy");
    /// # let numbers = app.source("numbers", || 0..9_u64);
    /// # let show = app.sink("show", |_: u64| ());
    /// # app.connect(numbers, show);
    /// let about = "admits an event if the queue is empty";
    /// let offer = Offer { name: "shy", aliases: &[], about, cites: "", params: &[] };
    /// app.register_admission(Entry::new(offer, |_| Shy));
    /// let plan = Plan::new().stage("show", |show| show.admission("shy"));
    /// # let summary = app.run(&plan)?;
    /// # assert_eq!(summary.snapshot.stage("show").unwrap().counts.offered, 9);
    /// # Ok::<(), comporta::StartError>(())
    /// ```
    pub fn register_admission(&self, entry: admission::Entry) {
        self.inner.borrow_mut().admissions.add(entry);
    }

    /// Returns the policies and admission controllers that plans can choose by name.
    #[must_use]
    pub fn catalogue(&self) -> Catalogue {
        let mut catalogue = Catalogue::default();
        catalogue.policies = self.inner.borrow().registry.offers();
        catalogue.admissions = self.inner.borrow().admissions.offers();
        catalogue.controllers = comporta_policy::elastic::offers();
        catalogue
    }

    /// Checks whether the program could be [started](Self::start) under a plan, as far as possible without
    /// running anything: the graph is valid, the plan fits it, and every policy starts on a mock of its
    /// cluster. Returns warnings about policies that work but may surprise.
    ///
    /// ```
    /// # mod comporta { pub use comporta_model::plan::{Choice, Plan}; pub use comporta_runtime::*; }
    /// use comporta::{App, Choice, Plan};
    ///
    /// # let app = App::new("numbers");
    /// # let numbers = app.source("numbers", || 0..9_u64);
    /// # app.connect(numbers, app.sink("show", |_: u64| ()));
    /// assert!(app.rehearse(&Plan::new()).unwrap().is_empty());
    /// let surprises = app.rehearse(&Plan::new().policy("seda")).unwrap();
    /// assert!(surprises[0].to_string().starts_with("the policy `seda` gives `show` 2 instances"));
    /// let many = Plan::new().policy(Choice::new("seda").with("threads", 1_024));
    /// assert!(app.rehearse(&many).is_err()); // and one for the source
    /// ```
    ///
    /// # Errors
    /// Returns the mistakes of the graph, or else those of the plan, or else a refusal for every policy
    /// that does not start.
    pub fn rehearse(
        &self,
        plan: &Plan,
    ) -> std::result::Result<Vec<PolicyWarning>, Vec<StartError>> {
        let topology = self.topology().map_err(|error| vec![error])?;
        let settings = self.settings(plan).map_err(|error| vec![error])?;
        let inner = self.inner.borrow();
        rehearse(&inner.registry, &inner.graph, replicate(inner.graph.clone(), topology, settings))
    }

    /// Starts the program on threads of its own.
    ///
    /// # Errors
    /// Returns an error if the graph is not valid, the plan does not fit it, a stage cannot be made or a
    /// source cannot be opened. No event has been handled then.
    pub fn start(self, plan: &Plan) -> std::result::Result<Running, StartError> {
        let core = self.build(plan, Clock::real(), false)?;
        Running::start(core)
    }

    /// Starts the program and waits for its end.
    ///
    /// # Errors
    /// Like [`start`](Self::start).
    pub fn run(self, plan: &Plan) -> std::result::Result<crate::running::Summary, StartError> {
        Ok(self.start(plan)?.wait())
    }

    /// Joins what is fed back to a stage.
    #[cfg(feature = "json")]
    pub(crate) fn connect_coded<T: Send + 'static>(
        &self,
        from: Port<T>,
        to: StageKey,
        codec: Codec<T>,
    ) {
        self.join_all(from, vec![to], Way::First, Some(codec));
    }

    /// How the events of a stage are written and read.
    #[cfg(feature = "json")]
    pub(crate) fn codec(&self, stage: u32) -> Option<Arc<dyn AnyCodec>> {
        self.inner.borrow().wiring.codecs.get(&stage).cloned()
    }

    /// The sources declared so far are not opened, unless they are those of a replay.
    #[cfg(feature = "json")]
    pub(crate) fn silence_sources(&self) {
        let mut inner = self.inner.borrow_mut();
        if inner.wiring.opened_from == 0 {
            inner.wiring.opened_from = u32::try_from(inner.entries.len()).unwrap_or(u32::MAX);
        }
    }

    /// Has the busiest keys of every keyed stage counted from its first event on, as
    /// [`Control::count_keys`](crate::Control::count_keys) does for one stage of a running program.
    pub fn count_keys(&self) {
        self.inner.borrow_mut().counts_keys = true;
    }

    pub(crate) fn set_on_failure(&self, call: OnFailure) {
        self.inner.borrow_mut().on_failure = Some(call);
    }

    #[cfg(feature = "json")]
    pub(crate) fn key_of(&self, stage: StageId) -> StageKey {
        StageKey { app: self.identity(), stage }
    }

    /// Watches what a port sends; for tests.
    pub(crate) fn watch<T: Send + 'static>(&self, port: Port<T>, tap: Tap<T>) {
        let at = (port.of.stage.0, port.index);
        self.inner.borrow_mut().wiring.taps.insert(at, Arc::new(tap));
    }

    fn topology(&self) -> std::result::Result<Topology, StartError> {
        let inner = self.inner.borrow();
        let copies = |stage: StageId, port| inner.copies.contains(&(stage.0, port));
        inner.graph.check(copies).map_err(StartError::Graph)
    }

    fn settings(&self, plan: &Plan) -> std::result::Result<Settings, StartError> {
        let catalogue = self.catalogue();
        let inner = self.inner.borrow();
        let plan = plan.clone().over(&inner.plan);
        plan.validate(&inner.graph, &catalogue, cpus()).map_err(StartError::Plan)
    }

    /// Makes the nodes; nothing runs yet.
    pub(crate) fn build(
        self,
        plan: &Plan,
        clock: Clock,
        tested: bool,
    ) -> std::result::Result<Arc<Core>, StartError> {
        let topology = self.topology()?;
        let settings = self.settings(plan)?;
        let name = self.inner.borrow().graph.name.clone();
        topology.warnings.iter().for_each(|warning| log::warn(&name, warning));
        let Inner {
            graph,
            entries,
            mut wiring,
            registry,
            admissions,
            on_failure,
            counts_keys,
            resources,
            ..
        } = self.inner.into_inner();
        let named = (registry, admissions);
        let connectors = graph.clone();
        let replicated = replicate(graph, topology, settings);
        let keys = |stage: StageId| entries[stage.index()].extras.keys.clone();
        wiring.replicate(&connectors, &replicated.replicas, keys);
        let mut core = Core::new(replicated, named, wiring, clock, tested);
        core.resources = Resources::of(resources);
        let core = Arc::new(core);
        let nodes = make_nodes(&core, entries, on_failure);
        nodes.iter().filter(|_| counts_keys).for_each(|node| {
            node.count_keys(); // others have no keys
        });
        core.set_nodes(nodes);
        Ok(core)
    }

    pub(crate) fn add_stage<H: Handler>(
        &self,
        name: String,
        group: Option<(usize, Duration)>,
        make: impl Fn(&Cx) -> Result<H> + Send + Sync + 'static,
    ) -> StageOf<'_, H> {
        let takes = type_name::<H::Item>();
        let make = Arc::new(make);
        let info =
            HandlerInfo { takes: H::TAKES, bounds_itself: H::BOUNDS_ITSELF, flushes: H::FLUSHES };
        let build = move |mut site: Site<'_>| -> Arc<dyn Node> {
            let (make, keys) = (make.clone(), site.own_keys::<H::Item>());
            let maker: Maker<H::Kind> = Box::new(move |cx| {
                let mut handler = make(cx)?;
                keys.iter().for_each(|keys| handler.set_keys(keys.clone()));
                Ok(Box::new(handler))
            });
            stage_node(site, group, maker, info)
        };
        let key = self.add_each(name, Kind::Stage, takes, H::Ports::NAMES, build);
        let spec = &mut self.inner.borrow_mut().graph.stages[key.stage.index()];
        spec.batched = group;
        spec.stateful = H::STATEFUL;
        spec.waits = <H::Kind as kind::Kind>::WAITS;
        spec.flushes = H::FLUSHES;
        StageRef { app: self, key, refs: H::Ports::refs(key), takes: PhantomData }
    }

    pub(crate) fn add(
        &self,
        name: String,
        kind: Kind,
        takes: &'static str,
        ports: &'static [&'static str],
        build: impl FnOnce(Site<'_>) -> Arc<dyn Node> + Send + 'static,
    ) -> StageKey {
        self.add_entry(name, kind, takes, ports, Build::Once(Box::new(build)))
    }

    /// As [`add`](Self::add), of what may have replicas.
    fn add_each(
        &self,
        name: String,
        kind: Kind,
        takes: &'static str,
        ports: &'static [&'static str],
        build: impl Fn(Site<'_>) -> Arc<dyn Node> + Send + 'static,
    ) -> StageKey {
        self.add_entry(name, kind, takes, ports, Build::Each(Box::new(build)))
    }

    fn add_entry(
        &self,
        name: String,
        kind: Kind,
        takes: &'static str,
        ports: &'static [&'static str],
        build: Build,
    ) -> StageKey {
        let mut inner = self.inner.borrow_mut();
        let stage = StageId(u32::try_from(inner.entries.len()).expect("fewer than 2^32 stages"));
        inner.graph.stages.push(StageSpec::new(name, kind, takes, ports));
        inner.entries.push(Entry { build, extras: Extras::default() });
        StageKey { app: self.identity(), stage }
    }

    pub(crate) fn with_resources<T>(
        &self,
        with: impl FnOnce(&mut Vec<Box<dyn AnyResource>>) -> T,
    ) -> T {
        with(&mut self.inner.borrow_mut().resources)
    }

    /// Notes a mistake of the graph; [`check`](Self::check) returns it.
    pub(crate) fn fault(&self, fault: GraphFault) {
        self.inner.borrow_mut().graph.faults.push(fault);
    }

    /// Notes something that works but may surprise; [`check`](Self::check) returns it.
    pub(crate) fn warn(&self, warning: GraphWarning) {
        self.inner.borrow_mut().graph.warnings.push(warning);
    }

    fn identity(&self) -> u64 {
        self.identity
    }

    fn join<T: Send + 'static, S: AsInput<T>>(
        &self,
        from: Port<T>,
        to: impl IntoIterator<Item = S>,
        way: Way<T>,
        codec: Option<Codec<T>>,
    ) {
        let ends = to.into_iter().map(|end| end.as_input()).collect();
        self.join_all(from, ends, way, codec);
    }

    fn join_all<T: Send + 'static>(
        &self,
        from: Port<T>,
        ends: Vec<StageKey>,
        way: Way<T>,
        codec: Option<Codec<T>>,
    ) {
        let copy = codec.map(|codec| codec.copy);
        let mut inner = self.inner.borrow_mut();
        let own = self.identity();
        if from.of.app != own || ends.iter().any(|end| end.app != own) {
            let app = inner.graph.name.clone();
            inner.graph.faults.push(GraphFault::Foreign { app });
            return;
        }
        let to: Vec<StageId> = ends.iter().map(|end| end.stage).collect();
        let again = matches!(way, Way::Again);
        let (route, edge_route) = match way {
            Way::First | Way::Again => (Route::One, route::Route::First),
            Way::RoundRobin => {
                (Route::RoundRobin, route::Route::RoundRobin(Arc::new(AtomicUsize::new(1))))
            }
            Way::ByKey(key) => (Route::ByKey, route::Route::ByKey(key)),
        };
        let at = (from.of.stage.0, from.index);
        if copy.is_some() {
            inner.copies.insert(at);
        }
        if let Some(codec) = codec {
            let of = |end: &StageId| (end.0, Arc::new(codec) as Arc<dyn AnyCodec>);
            inner.wiring.codecs.extend(to.iter().map(of));
        }
        let edge = Edge { to: to.clone(), route: edge_route, copy };
        inner.wiring.edges.entry(at).or_default().push(Box::new(edge));
        let (stage, local) = (from.of.stage, copy.is_none());
        let connector = Connector { from: stage, port: from.index, to, route, local, again };
        inner.graph.connectors.push(connector);
    }
}

/// The bound of [`App::stage`], whose instances are clones. Every type that is `Clone` and `Sync`
/// implements it.
#[diagnostic::on_unimplemented(
    message = "a plan cannot make instances of this stage: `{Self}` is not `Clone` and `Sync`",
    note = "derive `Clone` for the stage, or have each instance made: `app.stage_with(name, |_| Ok(MyStage::new()))`"
)]
pub trait Replicate: Clone + Sync {}
#[diagnostic::do_not_recommend]
impl<T: Clone + Sync> Replicate for T {}

/// A handle to a stage run by `H`.
pub type StageOf<'a, H> = StageRef<'a, <H as Handler>::Item, <H as Handler>::Ports>;

enum Way<T> {
    First,
    /// As `First`, and there may be another of the same port and stage.
    Again,
    RoundRobin,
    ByKey(route::KeyFn<T>),
}

impl<T> KeyedParts<T> {
    /// The keys of a replica and its queue, as the plan has them; in a test, as in every run of it.
    fn open(&self, core: &Core, id: u32, waits: bool) -> (Arc<dyn Keys<T>>, StageQueue<T>) {
        let KeyedParts { keys, queue } = self;
        if core.is_tested() {
            keys.hash_alike();
        }
        let timed = keys.event_time().map(|rules| event_time_parts(core, id, rules));
        let queue = queue(lane_rules(core, id, waits), timed);
        (keys.clone(), StageQueue::Other(queue))
    }
}

/// What the plan says of the lanes of a stage.
fn lane_rules(core: &Core, id: u32, waits: bool) -> LaneRules {
    let settings = &core.settings.stages[id as usize];
    LaneRules {
        lane_max: settings.lane_max,
        idle: settings.idle,
        keys_max: settings.keys_max,
        holds: settings.on_failure == plan::OnFailure::HoldKey,
        waits,
    }
}

/// What a keyed stage with event time knows of it at the start.
fn event_time_parts(core: &Core, id: u32, rules: EventTime) -> EventTimeParts {
    let edges = core.wiring.origins(&core.graph, id);
    (Watermark::new(rules, edges), core.wiring.handed_on(id).clone())
}

/// Properties of a handler that are not those of its kind.
#[derive(Clone, Copy)]
struct HandlerInfo {
    /// As [`Stage::TAKES`].
    takes: bool,
    /// As `Stage::BOUNDS_ITSELF`.
    bounds_itself: bool,
    /// As [`Handler::FLUSHES`].
    flushes: bool,
}

/// The kind of the handler that a value becomes.
type KindOf<S, M> = <<S as IntoStage<M>>::Handler as Handler>::Kind;

/// The nodes of all replicas, by number.
fn make_nodes(
    core: &Core,
    entries: Vec<Entry>,
    on_failure: Option<OnFailure>,
) -> Vec<Arc<dyn Node>> {
    let places = core.replicas.places();
    let mut nodes = vec![None; places.len()];
    for (mut entry, replicas) in entries.into_iter().zip(core.replicas.all()) {
        let mut site = |id: StageId| Site {
            core,
            id: id.0,
            replica: places[id.index()].1,
            extras: entry.extras.for_replica(),
            on_failure: on_failure.clone(),
        };
        match entry.build {
            Build::Once(build) => nodes[replicas[0].index()] = Some(build(site(replicas[0]))),
            Build::Each(build) => {
                replicas.iter().for_each(|id| nodes[id.index()] = Some(build(site(*id))));
            }
        }
    }
    // A plan gives replicas only to what can be made more than once.
    nodes.into_iter().map(|node| node.expect("a node for every replica")).collect()
}

fn source_node<S: Source>(
    site: &Site<'_>,
    open: impl FnOnce() -> Result<S> + Send + 'static,
) -> Arc<dyn Node> {
    let settings = &site.core.settings.stages[site.id as usize];
    let spec = &site.core.graph.stages[site.id as usize];
    let (id, name) = (site.id, spec.name.clone());
    let limits = SourceLimits {
        batch: settings.batch,
        rate: Some(settings.rate).filter(|rate| rate.is_finite()),
        tier: settings.tier,
        within: settings.deadline,
    };
    #[cfg(feature = "json")]
    if !site.core.wiring.opens(site.core.replicas.stage_of(id)) {
        return SourceNode::new(id, name, limits, Box::new(|| Ok(Silent::<S::Item>::new())));
    }
    SourceNode::new(id, name, limits, Box::new(open))
}

fn stage_node<H: kind::Kind>(
    site: Site<'_>,
    group: Option<(usize, Duration)>,
    maker: Maker<H>,
    info: HandlerInfo,
) -> Arc<dyn Node> {
    let Site { core, id, replica, extras: Extras { first, retain, keys }, on_failure } = site;
    let settings = &core.settings.stages[id as usize];
    let spec = &core.graph.stages[id as usize];
    let keyed = keys.as_ref().and_then(|keys| keys.downcast_ref::<KeyedParts<H::Item>>());
    let (keys, mut queue) = match keyed {
        None => (None, StageQueue::Fifo(ChunkQueue::default())),
        Some(keyed) => {
            let (keys, queue) = keyed.open(core, id, H::WAITS);
            (Some(keys), queue)
        }
    };
    if let Some(event) = first.and_then(|first| first.downcast::<H::Item>().ok()) {
        let mut columns = Columns::default();
        if let Some(keys) = &keys {
            let lane = user::call(|| keys.lane_of(&event)).unwrap_or_else(|_| keys.keyless());
            columns.set_lane(Some(lane));
        }
        let _ = queue.push(&Meta::default(), columns, vec![Some(*event)], false);
    }
    let retain = retain.as_ref().and_then(|it| it.downcast_ref::<fn(&H::Item) -> H::Item>());
    let on_failed = on_failure
        .map(|call| Codec::reporter(core.wiring.codec_for::<H::Item>(id), spec.name.clone(), call));
    let sent_on =
        (info.takes || H::IN_PLACE) && core.wiring.errors(id, H::Ports::NAMES.len()).is_some();
    let again = settings.retry.tries > 1 || settings.on_failure == plan::OnFailure::HoldKey;
    let copies = sent_on || on_failed.is_some() || (info.takes && again);
    let retain = match retain {
        Some(copy) => Some(*copy),
        // What the handler takes, or changes, could not be tried again, nor be reported as it came.
        None => copies.then(|| core.wiring.copy_for::<H::Item>(id)).flatten(),
    };
    let controller = |choice| Controller::new(&core.admissions, choice);
    Arc::new(stage::Stage::new(stage::Parts {
        id,
        rules: Rules {
            name: spec.name.clone(),
            batch: settings.batch,
            retry: settings.retry,
            emit_max: if info.bounds_itself { usize::MAX } else { settings.emit_max },
            flushes: info.flushes,
            on_panic: settings.on_panic,
            timeout: settings.timeout,
            in_order: spec.ordered || spec.stateful || H::GROUPED,
            last: core.wiring.leads_nowhere(id, H::Ports::NAMES.len()) || settings.stub,
            stub: settings.stub,
            retain,
            on_failed,
            keys,
        },
        maker,
        group: group.map(|(events, wait)| GroupSize { events, wait }),
        ordered: spec.ordered,
        queue,
        capacity: settings.capacity,
        when_full: settings.when_full,
        cycle: core.wiring.cycle(id).cloned(),
        producers: core.wiring.producers(id),
        instances: settings.instances,
        replica,
        failures_max: settings.failures_max,
        controller: settings.admission.as_ref().and_then(controller),
    }))
}

impl fmt::Debug for App {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let graph = &self.inner.borrow().graph;
        let names: Vec<_> = graph.stages.iter().map(|stage| &*stage.name).collect();
        f.debug_struct("App").field("name", &graph.name).field("stages", &names).finish()
    }
}
