//! A stage: an event handler that names neither its consumers nor its threads.
//! `Stage` is the synchronous kind; closures become stages through `IntoStage`, whose marker
//! leaves room for asynchronous and keyed kinds.
//! Long because every shape of closure is a small stage of its own, and they are read together.

use std::any::Any;
use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use crate::chunk::Slots;
use crate::column::Duty;
use crate::error::{Outcome, Result};
use crate::event::{Ev, Origin, Time};
use crate::port::{Out, Ports};

/// An event handler, with the state of one instance.
///
/// ```
/// # mod comporta { pub use comporta_model::{error::Result, event::Ev, port::Out, stage::{Cx, Stage}}; }
/// use comporta::{Cx, Ev, Out, Result, Stage};
///
/// /// Sends on what differs from the event before.
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
/// `app.stage("changes", Changes::default()).stateful()` makes it a stage of a program. Without
/// `stateful` a plan may run several instances, each a copy with a `last` of its own.
pub trait Stage: Send + 'static {
    /// What it takes.
    type In: Send + 'static;
    /// Where it sends: `()`, `Out<T>`, or a struct with `#[derive(Ports)]`.
    type Ports: Ports;

    /// Whether its state must see all events: then it has one instance, whatever the plan says, as
    /// if its program had said `stateful` of it. For types that make no sense otherwise.
    const STATEFUL: bool = false;

    /// Whether it always takes its events, as closures do: a plan that has them tried again then has
    /// copies kept, where the events can be copied.
    const TAKES: bool = false;

    /// Whether it bounds by itself what one event makes it send, as windows do: what it gathered must
    /// not be lost to `emit_max`, which then does not hold.
    #[doc(hidden)]
    const BOUNDS_ITSELF: bool = false;

    /// Before the first event of an instance. An error keeps the program from starting.
    ///
    /// # Errors
    /// Whatever keeps this instance from working.
    fn init(&mut self, cx: &Cx) -> Result {
        let _ = cx;
        Ok(())
    }

    /// One event. A panic or an error costs this event only: what it sent is withdrawn, and it
    /// is retried or set aside with the reason.
    ///
    /// # Errors
    /// Whatever keeps this event from being handled.
    fn handle(&mut self, event: Ev<'_, Self::In>, out: &mut Self::Ports, cx: &Cx) -> Result;

    /// After the last event of an instance: everything that could send to it has ended.
    ///
    /// # Errors
    /// Whatever keeps this instance from finishing; reported, and nothing else stops.
    fn finish(&mut self, out: &mut Self::Ports, cx: &Cx) -> Result {
        let _ = (out, cx);
        Ok(())
    }

    /// The same stage, taking `Vec<T>`, handed the events `T` of its queue in groups of `events`,
    /// or of as many as came within `wait` of the first.
    fn batched(self, events: usize, wait: Duration) -> Batched<Self>
    where
        Self: Sized,
    {
        batched(events, wait, self)
    }
}

/// What the runtime offers to a handler; behind [`Cx`].
pub trait Host: Send + Sync {
    /// The clock; virtual in tests.
    fn now(&self) -> Time;
    /// Ends the program with a result.
    fn quit(&self, result: Box<dyn Any + Send>);
}

/// The context of a handler: where and when it runs.
pub struct Cx {
    stage: Arc<str>,
    instance: usize,
    attempt: Cell<u32>,
    origin: Origin,
    quitting: Cell<bool>,
    host: Arc<dyn Host>,
}

impl Cx {
    /// The context of one instance; the runtime calls this.
    #[must_use]
    pub fn new(stage: Arc<str>, instance: usize, host: Arc<dyn Host>) -> Self {
        Cx {
            stage,
            instance,
            attempt: Cell::new(1),
            origin: Origin::default(),
            quitting: Cell::new(false),
            host,
        }
    }

    /// The time now; virtual under test. A read costs some tens of nanoseconds.
    #[must_use]
    pub fn now(&self) -> Time {
        self.host.now()
    }

    /// The name of the stage.
    #[must_use]
    pub fn stage(&self) -> &str {
        &self.stage
    }

    /// The number of the instance, from 0.
    #[must_use]
    pub fn instance(&self) -> usize {
        self.instance
    }

    /// Which try at this event this is, from 1.
    #[inline]
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.attempt.get()
    }

    /// When the event, or the one it descends from, entered the program.
    #[must_use]
    pub fn ingress(&self) -> Time {
        self.origin.ingress.get()
    }

    /// When the event stops being of use, if ever.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        self.origin.deadline.get()
    }

    /// How much the event matters to admission: the higher, the more.
    #[must_use]
    pub fn tier(&self) -> u8 {
        self.origin.tier.get()
    }

    /// Ends the program: nothing new is handled, what is queued is cancelled, and `result` is
    /// what the run returns.
    pub fn quit<R: Any + Send>(&self, result: R) {
        self.quitting.set(true);
        self.host.quit(Box::new(result));
    }

    #[doc(hidden)]
    #[inline(always)]
    #[must_use]
    pub fn is_quitting(&self) -> bool {
        self.quitting.get()
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
            .field("stage", &self.stage)
            .field("instance", &self.instance)
            .field("attempt", &self.attempt.get())
            .finish_non_exhaustive()
    }
}

/// What can be made a handler. `Marker` is inferred; it keeps the kinds apart, and leaves room
/// for asynchronous and keyed ones.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a stage",
    note = "implement `Stage` for it, or use a closure `|event: In, out: &mut Out<T>| ...` with its types written out"
)]
pub trait IntoStage<Marker>: Send + 'static {
    /// The handler it becomes.
    type Handler: Handler;
    /// Becomes a handler.
    fn into_handler(self) -> Self::Handler;
}

/// What the runtime calls: a stage as it is handed events, one at a time or in groups.
pub trait Handler: Send + 'static {
    /// What its queue holds.
    type Item: Send + 'static;
    /// Where it sends.
    type Ports: Ports;
    /// Whether it is handed groups.
    const GROUPED: bool;
    /// As [`Stage::STATEFUL`].
    const STATEFUL: bool = false;
    /// As [`Stage::TAKES`].
    const TAKES: bool = false;
    /// As `Stage::BOUNDS_ITSELF`.
    const BOUNDS_ITSELF: bool = false;
    /// Whether it changes events in place and sends each on: then nothing is copied, and what it
    /// handled is given to [`pass_on`](Self::pass_on) when the visit ends.
    const IN_PLACE: bool = false;

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

    /// Handles all of `slots` as one: a single event unless `GROUPED`. What is still in the slots
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
    const GROUPED: bool = false;
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

/// A stage that takes `Vec<T>`, handed the events `T` of its queue in groups. While a group
/// gathers, its events are still queued: they are counted, bounded and acknowledged as such.
#[derive(Clone, Debug)]
pub struct Batched<S> {
    stage: S,
    events: usize,
    wait: Duration,
}

/// Hands `stage`, which takes `Vec<T>`, groups of `events` events, or of as many as came within
/// `wait` of the first.
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
    const GROUPED: bool = true;
    const STATEFUL: bool = H::STATEFUL;
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

/// A closure that changes an event and sends it on. The event stays where it is: whole chunks are
/// handed from queue to queue.
pub struct Updated<F, I, R> {
    call: F,
    of: PhantomData<fn(I) -> R>,
}

impl<F, I, R> Updated<F, I, R> {
    /// The closure as a handler.
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

impl<F, I, R> Handler for Updated<F, I, R>
where
    F: FnMut(&mut I) -> R + Send + 'static,
    I: Send + 'static,
    R: Outcome + 'static,
{
    type Item = I;
    type Ports = Out<I>;
    const GROUPED: bool = false;
    const IN_PLACE: bool = true;

    fn init(&mut self, _: &Cx) -> Result {
        Ok(())
    }

    #[inline(always)]
    fn call(&mut self, slots: &mut [Option<I>], _: &mut Out<I>, _: &Cx) -> Result {
        let mut event = Ev::lend(&mut slots[0]);
        (self.call)(&mut event).into_result()
    }

    fn finish(&mut self, _: &mut Out<I>, _: &Cx) -> Result {
        Ok(())
    }

    fn pass_on(&mut self, handled: Slots<I>, out: &mut Out<I>) {
        out.give(handled);
    }

    fn pass_one(&mut self, event: I, out: &mut Out<I>) {
        out.send(event);
    }

    fn allowance(&self, out: &Out<I>) -> usize {
        out.allowance().saturating_sub(out.len())
    }
}
