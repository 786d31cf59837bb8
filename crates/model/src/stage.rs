//! A stage: an event handler that names neither its consumers nor its threads.
//! `Stage` is the synchronous kind, `async_stage` has those that wait; closures become stages through
//! `IntoStage`, whose marker tells the kinds apart.
//! Long because every shape of closure is a small stage of its own, and they are read together.

use std::any::{Any, TypeId};
use std::cell::{Cell, RefCell};
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::Waker;
use std::time::Duration;

use crate::async_stage::Flight;
use crate::chunk::Slots;
use crate::column::Duty;
use crate::error::{Outcome, Result};
use crate::event::{Ev, Origin, Time};
use crate::keyed::{Keys, LaneRef};
use crate::kind::{self, Kind};
use crate::port::{Out, Ports};

/// An event handler, with the state of one instance.
///
/// ```
/// # mod comporta { pub use comporta_model::{error::Result, event::Ev, port::Out, stage::{Cx, Stage}}; }
/// use comporta::{Cx, Ev, Out, Result, Stage};
///
/// /// Sends on the readings that differ from the one before.
/// #[derive(Clone, Default)]
/// struct Changes {
///     last: Option<u64>,
/// }
///
/// impl Stage for Changes {
///     type In = u64;
///     type Ports = Out<u64>;
///
///     fn handle(&mut self, reading: Ev<'_, u64>, out: &mut Out<u64>, _cx: &Cx) -> Result {
///         if self.last.replace(*reading) != Some(*reading) {
///             out.send(*reading);
///         }
///         Ok(())
///     }
/// }
/// ```
///
/// `app.stage("changes", Changes::default()).stateful()` adds it to a program. Without `stateful`, a plan may
/// run several instances, each a clone with its own `last`.
pub trait Stage: Send + 'static {
    /// The type of its events.
    type In: Send + 'static;
    /// Where it sends: `()`, `Out<T>`, or a struct with `#[derive(Ports)]`.
    type Ports: Ports;

    /// Whether its state must see all events: the stage then has one instance under every plan, as if it
    /// were declared `stateful`. For types that make no sense otherwise.
    const STATEFUL: bool = false;

    /// Whether it always takes its events, as closures do. A plan that retries them then keeps copies, if
    /// the events can be copied.
    const TAKES: bool = false;

    /// Whether it bounds by itself how many events it sends for one event, as windows do. `emit_max` then
    /// does not apply, so that gathered events are not lost to it.
    #[doc(hidden)]
    const BOUNDS_ITSELF: bool = false;

    /// Called before the first event of an instance.
    ///
    /// # Errors
    /// An error keeps the program from starting.
    fn init(&mut self, cx: &Cx) -> Result {
        let _ = cx;
        Ok(())
    }

    /// Handles an event. A panic or an error costs this event only: what the call sent is withdrawn, and the
    /// event is retried, or kept with the reason.
    ///
    /// # Errors
    /// An error fails the event.
    fn handle(&mut self, event: Ev<'_, Self::In>, out: &mut Self::Ports, cx: &Cx) -> Result;

    /// Called after the last event of an instance, when everything that could send to it has ended.
    ///
    /// # Errors
    /// An error is reported as a problem of the run; the other stages go on.
    fn finish(&mut self, out: &mut Self::Ports, cx: &Cx) -> Result {
        let _ = (out, cx);
        Ok(())
    }

    /// Makes a stage that takes `Vec<T>` handle the events `T` of its queue in groups of `events`, or of those
    /// that arrived within `wait` of the first.
    fn batched(self, events: usize, wait: Duration) -> Batched<Self>
    where
        Self: Sized,
    {
        batched(events, wait, self)
    }
}

/// The services of the runtime behind [`Cx`].
pub trait Host: Send + Sync {
    /// The clock; virtual in tests.
    fn now(&self) -> Time;
    /// Ends the program with a result.
    fn quit(&self, result: Box<dyn Any + Send>);
    /// Has `waker` called at `due`, unless [`forget_timer`](Self::forget_timer) is called with that time and
    /// the number that is returned.
    fn wake_at(&self, due: Time, waker: Waker) -> u64;
    /// Takes a timer back; one that is gone is ignored.
    fn forget_timer(&self, due: Time, timer: u64);
    /// Reports a problem of the run that costs no event.
    fn report(&self, problem: String);
}

/// What the contexts of an instance and of its events have in common.
pub(crate) struct CxShared {
    pub(crate) stage: Arc<str>,
    pub(crate) host: Arc<dyn Host>,
    /// A handler that waits has ended the program.
    pub(crate) quitting: AtomicBool,
}

/// The context of a handler: where and when it runs.
pub struct Cx {
    shared: Arc<CxShared>,
    instance: usize,
    attempt: Cell<u32>,
    origin: Origin,
    quitting: Cell<bool>,
    /// Of a handler that waits: what it is woken by, and whether it waits for the event it was called with.
    waker: RefCell<Waker>,
    waiting: Cell<bool>,
    emit_max: Cell<usize>,
    /// Of a stage with event time: how far it had come when the event arrived.
    watermark: Cell<Time>,
}

impl Cx {
    /// The context of one instance; the runtime calls this.
    #[must_use]
    pub fn new(stage: Arc<str>, instance: usize, host: Arc<dyn Host>) -> Self {
        Cx {
            shared: Arc::new(CxShared { stage, host, quitting: AtomicBool::new(false) }),
            instance,
            attempt: Cell::new(1),
            origin: Origin::default(),
            quitting: Cell::new(false),
            waker: RefCell::new(Waker::noop().clone()),
            waiting: Cell::new(false),
            emit_max: Cell::new(usize::MAX),
            watermark: Cell::new(Time::ZERO),
        }
    }

    /// Returns the time, which is virtual in tests. A read costs some tens of nanoseconds.
    #[must_use]
    pub fn now(&self) -> Time {
        self.shared.host.now()
    }

    /// Returns the name of the stage.
    #[must_use]
    pub fn stage(&self) -> &str {
        &self.shared.stage
    }

    /// Returns the number of the instance, from 0: no other of the stage has it, also of another replica.
    #[must_use]
    pub fn instance(&self) -> usize {
        self.instance
    }

    /// Returns the number of the attempt at this event, from 1.
    #[inline]
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.attempt.get()
    }

    /// Returns when the event, or the one that it descends from, entered the program.
    #[must_use]
    pub fn ingress(&self) -> Time {
        self.origin.ingress.get()
    }

    /// Returns the deadline of the event, if it has one.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        self.origin.deadline.get()
    }

    /// Returns how important the event is to admission controllers, from 0 to 255.
    #[must_use]
    pub fn tier(&self) -> u8 {
        self.origin.tier.get()
    }

    /// Ends the program: no further event is handled, queued events are cancelled, and `result` is kept for
    /// `Summary::take_result`.
    pub fn quit<R: Any + Send>(&self, result: R) {
        self.quitting.set(true);
        self.shared.host.quit(Box::new(result));
    }

    #[doc(hidden)]
    #[inline(always)]
    #[must_use]
    pub fn is_quitting(&self) -> bool {
        self.quitting.get()
    }

    /// Notes whether the handler, which waits, has ended the program.
    pub(crate) fn note_quit(&self) {
        self.quitting.set(self.shared.quitting.load(Relaxed));
    }

    pub(crate) fn shared(&self) -> &Arc<CxShared> {
        &self.shared
    }

    pub(crate) fn with_waker<R>(&self, call: impl FnOnce(&Waker) -> R) -> R {
        call(&self.waker.borrow())
    }

    /// What the next event is woken by that waits. Returns what was there.
    #[doc(hidden)]
    pub fn set_waker(&self, waker: Waker) -> Waker {
        self.waker.replace(waker)
    }

    pub(crate) fn emit_max(&self) -> usize {
        self.emit_max.get()
    }

    /// How many events one event may lead to that waits.
    #[doc(hidden)]
    pub fn set_emit_max(&self, emit_max: usize) {
        self.emit_max.set(emit_max);
    }

    #[doc(hidden)]
    pub fn set_waiting(&self, waiting: bool) {
        self.waiting.set(waiting);
    }

    /// Whether the handler was called with an event that waits now.
    #[doc(hidden)]
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.waiting.get()
    }

    pub(crate) fn origin(&self) -> &Origin {
        &self.origin
    }

    /// What is owed for the event that is being handled.
    pub(crate) fn with_duty(&self, see: impl FnOnce(&Duty)) {
        see(&self.origin.duty());
    }

    pub(crate) fn report(&self, problem: String) {
        self.shared.host.report(problem);
    }

    pub(crate) fn watermark(&self) -> Time {
        self.watermark.get()
    }

    #[doc(hidden)]
    #[inline]
    pub fn set_watermark(&self, watermark: Time) {
        self.watermark.set(watermark);
    }

    #[doc(hidden)]
    #[inline]
    pub fn set_attempt(&self, attempt: u32) {
        self.attempt.set(attempt);
    }

    #[doc(hidden)]
    #[inline]
    pub fn set_origin(&self, ingress: Time, tier: u8) {
        self.origin.ingress.set(ingress);
        self.origin.tier.set(tier);
    }

    /// Nothing is owed for the events that are handled next.
    #[doc(hidden)]
    #[inline(always)]
    pub fn set_free(&self) {
        self.origin.set_free();
    }

    /// What is owed for the event, or the group of events, that is handled next.
    #[doc(hidden)]
    #[inline]
    pub fn set_duty(&self, duty: &Duty) {
        self.origin.set_duty(duty);
    }
}

impl fmt::Debug for Cx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cx")
            .field("stage", &self.shared.stage)
            .field("instance", &self.instance)
            .field("attempt", &self.attempt.get())
            .finish_non_exhaustive()
    }
}

/// Conversion into a handler. `Marker` is inferred; it keeps the kinds apart.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a stage",
    note = "implement `Stage` for it, or use a closure `|event: In, out: &mut Out<T>| ...` with its types written out"
)]
pub trait IntoStage<Marker>: Send + 'static {
    /// The handler it becomes.
    type Handler: Handler;
    /// Converts it into a handler.
    fn into_handler(self) -> Self::Handler;
}

/// The interface of a stage to the runtime, for stages of single events and of groups.
pub trait Handler: Send + 'static {
    /// What its queue holds.
    type Item: Send + 'static;
    /// Where it sends.
    type Ports: Ports;
    /// What it has in common with others.
    type Kind: Kind<Item = Self::Item, Ports = Self::Ports>;
    /// As [`Stage::STATEFUL`].
    const STATEFUL: bool = false;
    /// As [`Stage::TAKES`].
    const TAKES: bool = false;
    /// As `Stage::BOUNDS_ITSELF`.
    const BOUNDS_ITSELF: bool = false;
    /// Whether it sends before it has handled an event.
    const FLUSHES: bool = false;

    /// The keys of its events, if it has state for each.
    fn keys(&self) -> Option<Arc<dyn Keys<Self::Item>>> {
        None
    }

    /// It belongs to a replica of the stage that has these keys.
    fn set_keys(&mut self, keys: Arc<dyn Keys<Self::Item>>) {
        let _ = keys;
    }

    /// As [`call`](Self::call), with an event of this lane.
    ///
    /// # Errors
    /// As [`Stage::handle`].
    #[inline(always)]
    fn call_in(
        &mut self,
        lane: &LaneRef,
        slots: &mut [Option<Self::Item>],
        out: &mut Self::Ports,
        cx: &Cx,
    ) -> Result {
        let _ = lane;
        self.call(slots, out, cx)
    }

    /// Fires the first timer of a lane that is due: by the clock at `now`, or by the watermark of `cx`. Returns
    /// `false` if no other is.
    ///
    /// # Errors
    /// As [`KeyedStage::timer`](crate::keyed::KeyedStage::timer).
    fn fire(&mut self, lane: &LaneRef, now: Time, out: &mut Self::Ports, cx: &Cx) -> Result<bool> {
        let _ = (lane, now, out, cx);
        Ok(false)
    }

    /// The state of a lane has expired.
    ///
    /// # Errors
    /// As [`KeyedStage::expired`](crate::keyed::KeyedStage::expired).
    fn expire(&mut self, lane: &LaneRef, out: &mut Self::Ports, cx: &Cx) -> Result {
        let _ = (lane, out, cx);
        Ok(())
    }

    /// The flight of the event that it was called with last, and that waits.
    fn take_flight(&mut self) -> Option<Box<dyn Flight<Self::Item, Self::Ports>>> {
        None
    }

    /// A flight that has ended, for another event.
    fn put_by(&mut self, flight: Box<dyn Flight<Self::Item, Self::Ports>>) {
        let _ = flight;
    }

    /// Sends on what was handled in place.
    fn pass_on(&mut self, handled: Slots<Self::Item>, out: &mut Self::Ports) {
        let _ = (handled, out);
    }

    /// Sends on one event that was handled in place.
    fn pass_one(&mut self, event: Self::Item, out: &mut Self::Ports) {
        let _ = (event, out);
    }

    /// How many events a visit in place may take before it should stop.
    fn allowance(&self, out: &Self::Ports) -> usize {
        let _ = out;
        usize::MAX
    }

    /// The size and the patience of a group, if it is handed groups.
    fn group(&self) -> Option<(usize, Duration)> {
        None
    }

    /// As [`Stage::init`].
    ///
    /// # Errors
    /// As [`Stage::init`].
    fn init(&mut self, cx: &Cx) -> Result;

    /// Handles all of `slots` as one: a single event unless it is handed groups. What is still in the slots
    /// after a failure can be retried.
    ///
    /// # Errors
    /// As [`Stage::handle`].
    fn call(&mut self, slots: &mut [Option<Self::Item>], out: &mut Self::Ports, cx: &Cx) -> Result;

    /// As [`Stage::finish`].
    ///
    /// # Errors
    /// As [`Stage::finish`].
    fn finish(&mut self, out: &mut Self::Ports, cx: &Cx) -> Result;
}

/// Handed one event at a time.
#[derive(Clone, Debug)]
pub struct Single<S>(S);

impl<S: Stage> Handler for Single<S> {
    type Item = S::In;
    type Ports = S::Ports;
    type Kind = kind::Plain<S::In, S::Ports>;
    const STATEFUL: bool = S::STATEFUL;
    const TAKES: bool = S::TAKES;
    const BOUNDS_ITSELF: bool = S::BOUNDS_ITSELF;

    fn init(&mut self, cx: &Cx) -> Result {
        self.0.init(cx)
    }

    #[inline(always)]
    fn call(&mut self, slots: &mut [Option<S::In>], out: &mut S::Ports, cx: &Cx) -> Result {
        self.0.handle(Ev::lend_of(&mut slots[0], &cx.origin), out, cx)
    }

    fn finish(&mut self, out: &mut S::Ports, cx: &Cx) -> Result {
        self.0.finish(out, cx)
    }
}

/// Marks types that implement [`Stage`].
#[derive(Debug)]
pub struct IsStage;

impl<S: Stage> IntoStage<IsStage> for S {
    type Handler = Single<S>;
    fn into_handler(self) -> Single<S> {
        Single(self)
    }
}

/// A stage that takes `Vec<T>` and handles the events `T` of its queue in groups. While a group gathers, its
/// events are still queued: they are counted, bounded and acknowledged as such.
#[derive(Clone, Debug)]
pub struct Batched<S> {
    stage: S,
    events: usize,
    wait: Duration,
}

/// Makes `stage`, which takes `Vec<T>`, handle its events in groups of `events`, or of those that arrived
/// within `wait` of the first.
pub fn batched<S>(events: usize, wait: Duration, stage: S) -> Batched<S> {
    Batched { stage, events, wait }
}

/// Marks [`Batched`] stages.
#[derive(Debug)]
pub struct IsBatched<M, T>(PhantomData<fn(M) -> T>);

impl<S, M, T, H> IntoStage<IsBatched<M, T>> for Batched<S>
where
    S: IntoStage<M, Handler = H>,
    H: Handler<Item = Vec<T>>,
    M: 'static,
    T: Send + 'static,
{
    type Handler = Grouped<H, T>;
    fn into_handler(self) -> Grouped<H, T> {
        let group = (self.events, self.wait);
        Grouped { inner: self.stage.into_handler(), group, of: PhantomData }
    }
}

/// Handed groups of events.
pub struct Grouped<H, T> {
    inner: H,
    group: (usize, Duration),
    of: PhantomData<fn(T)>,
}

impl<H: Clone, T> Clone for Grouped<H, T> {
    fn clone(&self) -> Self {
        Grouped { inner: self.inner.clone(), group: self.group, of: PhantomData }
    }
}

impl<H, T> fmt::Debug for Grouped<H, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grouped").field("group", &self.group).finish_non_exhaustive()
    }
}

impl<H: Handler<Item = Vec<T>>, T: Send + 'static> Handler for Grouped<H, T> {
    type Item = T;
    type Ports = H::Ports;
    type Kind = kind::Grouped<T, H::Ports>;
    const STATEFUL: bool = {
        let waits = <H::Kind as Kind>::WAITS;
        assert!(!waits, "a stage that waits cannot be `batched`: gather in a stage before it");
        H::STATEFUL
    };
    const TAKES: bool = H::TAKES;

    fn group(&self) -> Option<(usize, Duration)> {
        Some(self.group)
    }

    fn init(&mut self, cx: &Cx) -> Result {
        self.inner.init(cx)
    }

    fn call(&mut self, slots: &mut [Option<T>], out: &mut H::Ports, cx: &Cx) -> Result {
        // Gives the events back to their slots however the call ends, so that a panic too leaves
        // what was not taken with the runtime.
        struct Lent<'a, T> {
            slots: &'a mut [Option<T>],
            group: [Option<Vec<T>>; 1],
        }
        impl<T> Drop for Lent<'_, T> {
            fn drop(&mut self) {
                if let [Some(group)] = &mut self.group {
                    for (slot, event) in self.slots.iter_mut().zip(group.drain(..)) {
                        *slot = Some(event);
                    }
                }
            }
        }
        let group = slots.iter_mut().filter_map(Option::take).collect();
        let mut lent = Lent { slots, group: [Some(group)] };
        self.inner.call(&mut lent.group, out, cx)
    }

    fn finish(&mut self, out: &mut H::Ports, cx: &Cx) -> Result {
        self.inner.finish(out, cx)
    }
}

/// Marks closures that take an event and a set of ports.
#[derive(Debug)]
pub struct IsFn<I, P, R>(PhantomData<fn(I, P) -> R>);

impl<F, I, P, R> IntoStage<IsFn<I, P, R>> for F
where
    F: FnMut(I, &mut P) -> R + Send + 'static,
    I: Send + 'static,
    P: Ports,
    R: Outcome + 'static,
{
    type Handler = Single<Each<F, I, P, R>>;
    fn into_handler(self) -> Self::Handler {
        Single(Each { call: self, of: PhantomData })
    }
}

/// A closure that takes an event and sends any number.
pub struct Each<F, I, P, R> {
    call: F,
    of: PhantomData<fn(I, P) -> R>,
}

impl<F: Clone, I, P, R> Clone for Each<F, I, P, R> {
    fn clone(&self) -> Self {
        Each { call: self.call.clone(), of: PhantomData }
    }
}

impl<F, I, P, R> fmt::Debug for Each<F, I, P, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Each")
    }
}

impl<F, I, P, R> Stage for Each<F, I, P, R>
where
    F: FnMut(I, &mut P) -> R + Send + 'static,
    I: Send + 'static,
    P: Ports,
    R: Outcome + 'static,
{
    type In = I;
    type Ports = P;
    const TAKES: bool = true;
    #[inline]
    fn handle(&mut self, event: Ev<'_, I>, out: &mut P, _: &Cx) -> Result {
        (self.call)(event.take(), out).into_result()
    }
}

/// A closure that takes an event and returns what to send: one event, or any `IntoIterator`.
pub struct Mapped<F, I, O, Shape> {
    call: F,
    of: PhantomData<fn(I) -> (O, Shape)>,
}

/// Marks a closure that returns one event.
#[derive(Debug)]
pub struct One;
/// Marks a closure that returns any number of events.
#[derive(Debug)]
pub struct Many;

impl<F, I, O, Shape> Mapped<F, I, O, Shape> {
    /// The closure as a stage.
    pub fn new(call: F) -> Self {
        Mapped { call, of: PhantomData }
    }
}

impl<F: Clone, I, O, Shape> Clone for Mapped<F, I, O, Shape> {
    fn clone(&self) -> Self {
        Mapped::new(self.call.clone())
    }
}

impl<F, I, O, Shape> fmt::Debug for Mapped<F, I, O, Shape> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mapped")
    }
}

impl<F, I, O> Stage for Mapped<F, I, O, One>
where
    F: FnMut(I) -> O + Send + 'static,
    I: Send + 'static,
    O: Send + 'static,
{
    type In = I;
    type Ports = Out<O>;
    const TAKES: bool = true;
    #[inline]
    fn handle(&mut self, event: Ev<'_, I>, out: &mut Out<O>, _: &Cx) -> Result {
        out.send((self.call)(event.take()));
        Ok(())
    }
}

impl<F, I, O> Stage for Mapped<F, I, O, Many>
where
    F: FnMut(I) -> O + Send + 'static,
    I: Send + 'static,
    O: IntoIterator + 'static,
    O::Item: Send + 'static,
{
    type In = I;
    type Ports = Out<O::Item>;
    const TAKES: bool = true;
    #[inline]
    fn handle(&mut self, event: Ev<'_, I>, out: &mut Out<O::Item>, _: &Cx) -> Result {
        for emitted in (self.call)(event.take()) {
            out.send(emitted);
        }
        Ok(())
    }
}

/// A closure that takes an event and sends nothing.
pub struct Sunk<F, I, R> {
    call: F,
    of: PhantomData<fn(I) -> R>,
}

impl<F, I, R> Sunk<F, I, R> {
    /// The closure as a stage.
    pub fn new(call: F) -> Self {
        Sunk { call, of: PhantomData }
    }
}

impl<F: Clone, I, R> Clone for Sunk<F, I, R> {
    fn clone(&self) -> Self {
        Sunk::new(self.call.clone())
    }
}

impl<F, I, R> fmt::Debug for Sunk<F, I, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sunk")
    }
}

impl<F, I, R> Stage for Sunk<F, I, R>
where
    F: FnMut(I) -> R + Send + 'static,
    I: Send + 'static,
    R: Outcome + 'static,
{
    type In = I;
    type Ports = ();
    const TAKES: bool = true;
    #[inline]
    fn handle(&mut self, event: Ev<'_, I>, _: &mut (), _: &Cx) -> Result {
        (self.call)(event.take()).into_result()
    }
}

/// What changes an event where it is, in its slot.
pub trait Change: Send + 'static {
    /// Its events.
    type Event: Send + 'static;
    /// As [`Stage::TAKES`].
    const TAKES: bool = false;

    /// Changes the event. One that is taken and not put back is gone.
    ///
    /// # Errors
    /// As [`Stage::handle`].
    fn change(&mut self, slot: &mut Option<Self::Event>) -> Result;
}

/// Changes events where they are, and sends them on: whole chunks are handed from queue to queue.
#[derive(Clone, Debug)]
pub struct InPlace<C>(pub C);

impl<C: Change> Handler for InPlace<C> {
    type Item = C::Event;
    type Ports = Out<C::Event>;
    type Kind = kind::InPlace<C::Event, Out<C::Event>>;
    const TAKES: bool = C::TAKES;

    fn init(&mut self, _: &Cx) -> Result {
        Ok(())
    }

    #[inline(always)]
    fn call(&mut self, slots: &mut [Option<C::Event>], _: &mut Out<C::Event>, _: &Cx) -> Result {
        self.0.change(&mut slots[0])
    }

    fn finish(&mut self, _: &mut Out<C::Event>, _: &Cx) -> Result {
        Ok(())
    }

    #[inline(always)]
    fn pass_on(&mut self, handled: Slots<C::Event>, out: &mut Out<C::Event>) {
        out.give(handled);
    }

    fn pass_one(&mut self, event: C::Event, out: &mut Out<C::Event>) {
        out.send(event);
    }

    fn allowance(&self, out: &Out<C::Event>) -> usize {
        out.allowance().saturating_sub(out.len())
    }
}

/// A closure that takes an event and returns one of the same type, which goes where the event was.
pub struct Replaced<F, I, O> {
    call: F,
    of: PhantomData<fn(I) -> O>,
}

impl<F, I: 'static, O: 'static> Replaced<F, I, O> {
    /// The closure, if its types are the same.
    ///
    /// # Errors
    /// Gives the closure back if they are not.
    pub fn new(call: F) -> Result<Self, F> {
        let same = TypeId::of::<I>() == TypeId::of::<O>();
        if same { Ok(Replaced { call, of: PhantomData }) } else { Err(call) }
    }
}

impl<F: Clone, I, O> Clone for Replaced<F, I, O> {
    fn clone(&self) -> Self {
        Replaced { call: self.call.clone(), of: PhantomData }
    }
}

impl<F, I, O> fmt::Debug for Replaced<F, I, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Replaced")
    }
}

/// A value as one of the type that it has.
#[inline(always)]
fn same<A: 'static, B: 'static>(value: A) -> Option<B> {
    let mut value = Some(value);
    let any: &mut dyn Any = &mut value;
    any.downcast_mut::<Option<B>>().and_then(Option::take)
}

impl<F, I, O> Change for Replaced<F, I, O>
where
    F: FnMut(I) -> O + Send + 'static,
    I: Send + 'static,
    O: Send + 'static,
{
    type Event = I;
    const TAKES: bool = true;

    #[inline(always)]
    fn change(&mut self, slot: &mut Option<I>) -> Result {
        if let Some(event) = slot.take() {
            *slot = same((self.call)(event));
        }
        Ok(())
    }
}

/// A closure that changes an event that it borrows.
pub struct Updated<F, I, R> {
    call: F,
    of: PhantomData<fn(I) -> R>,
}

impl<F, I, R> Updated<F, I, R> {
    /// The closure.
    pub fn new(call: F) -> Self {
        Updated { call, of: PhantomData }
    }
}

impl<F: Clone, I, R> Clone for Updated<F, I, R> {
    fn clone(&self) -> Self {
        Updated::new(self.call.clone())
    }
}

impl<F, I, R> fmt::Debug for Updated<F, I, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Updated")
    }
}

impl<F, I, R> Change for Updated<F, I, R>
where
    F: FnMut(&mut I) -> R + Send + 'static,
    I: Send + 'static,
    R: Outcome + 'static,
{
    type Event = I;

    #[inline(always)]
    fn change(&mut self, slot: &mut Option<I>) -> Result {
        let mut event = Ev::lend(slot);
        (self.call)(&mut event).into_result()
    }
}
