//! Stages whose handlers wait: each event is handled by a future. `AsyncStage` handles several events at
//! once (`&self`), `AsyncStageMut` one after the other (`&mut self`).
//!
//! 1. this file: what a program implements, and what its handlers are lent;
//! 2. `closures`: stages of closures that return futures;
//! 3. `keyed`: stages with state for each key (`AsyncKeyedStage`);
//! 4. `flight`: the futures, and how stages become handlers (`stage::Handler`) that the runtime calls.
//!
//! Invariant: what a handler sent stands in its `Emissions` until it returns, or flushes.

mod closures;
mod keyed;
mod flight;

use std::fmt;
use std::future::poll_fn;
use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

pub use closures::{SendsNothing, SendsResult, TriesResult, WaitingFn};
pub use flight::{Flight, IsAsync, IsAsyncMut, Lent, Shared, Waiting, Waits};
pub use keyed::{AsyncKeyedStage, IsAsyncKeyed, SharedKeyed};

use crate::error::Result;
use crate::event::Time;
use crate::keyed::LaneRef;
use crate::port::{Out, PortVisitor, Ports};
use crate::stage::{Cx, CxShared};

/// An event handler that waits without holding a thread: for a socket, a timer, a database.
///
/// Up to `instances` events of the plan are in flight at once; with one instance, the default, an event
/// is begun when the one before it has ended.
///
/// ```
/// # mod comporta { pub use comporta_model::{async_stage::{AsyncCx, AsyncStage, Emissions}, error::Result, port::Out}; }
/// use std::time::Duration;
/// use comporta::{AsyncCx, AsyncStage, Emissions, Out, Result};
///
/// /// Sends each number on after so many milliseconds.
/// struct Later;
///
/// impl AsyncStage for Later {
///     type In = u64;
///     type Ports = Out<u64>;
///
///     async fn handle(&self, ms: u64, out: &mut Emissions<Out<u64>>, cx: &AsyncCx) -> Result {
///         cx.sleep(Duration::from_millis(ms)).await;
///         out.send(ms);
///         Ok(())
///     }
/// }
/// ```
///
/// `app.stage("later", Later)` makes it a stage of a program.
pub trait AsyncStage: Send + Sync + 'static {
    /// What it takes.
    type In: Send + 'static;
    /// Where it sends: `()`, `Out<T>`, or a struct with `#[derive(Ports)]`.
    type Ports: Ports;
    /// Whether it calls [`Emissions::flush`]. A stage that must keep order cannot.
    const FLUSHES: bool = false;

    /// Handles one event. A panic or an error costs this event only: what it sent and did not flush is
    /// withdrawn, and it is retried or set aside with the reason.
    ///
    /// The future may be dropped at any `await`: when the stage's `timeout` or the event's deadline
    /// passes, or the program stops.
    ///
    /// # Errors
    /// Whatever keeps this event from being handled.
    fn handle(
        &self,
        event: Self::In,
        out: &mut Emissions<Self::Ports>,
        cx: &AsyncCx,
    ) -> impl Future<Output = Result> + Send;
}

/// As [`AsyncStage`], with state: one event is handled at a time, and the next one begins when it has
/// ended. A future that is dropped leaves the state as it was at its last `await`.
pub trait AsyncStageMut: Send + 'static {
    /// What it takes.
    type In: Send + 'static;
    /// Where it sends.
    type Ports: Ports;
    /// As [`AsyncStage::FLUSHES`].
    const FLUSHES: bool = false;

    /// As [`AsyncStage::handle`].
    ///
    /// # Errors
    /// Whatever keeps this event from being handled.
    fn handle(
        &mut self,
        event: Self::In,
        out: &mut Emissions<Self::Ports>,
        cx: &AsyncCx,
    ) -> impl Future<Output = Result> + Send;

    /// As [`Stage::finish`](crate::stage::Stage::finish).
    ///
    /// # Errors
    /// Whatever keeps the stage from finishing; it is reported, and nothing else stops.
    fn finish(&mut self, out: &mut Self::Ports, cx: &Cx) -> Result {
        let _ = (out, cx);
        Ok(())
    }
}

/// The context of a handler that waits: which event it handles, when, and a timer.
#[derive(Clone)]
pub struct AsyncCx {
    shared: Arc<CxShared>,
    attempt: u32,
    ingress: Time,
    deadline: Option<Time>,
    tier: u8,
    /// How many events the event may lead to.
    emit_max: usize,
    /// Of a handler with state for each key: the lane of its event, until the handler has begun.
    lane: Option<LaneRef>,
}

impl AsyncCx {
    pub(crate) fn in_lane(self, lane: LaneRef) -> Self {
        AsyncCx { lane: Some(lane), ..self }
    }

    pub(crate) fn take_lane(&mut self) -> Option<LaneRef> {
        self.lane.take()
    }

    pub(crate) fn of(cx: &Cx) -> Self {
        AsyncCx {
            emit_max: cx.emit_max(),
            shared: cx.shared().clone(),
            attempt: cx.attempt(),
            ingress: cx.ingress(),
            deadline: cx.deadline(),
            tier: cx.tier(),
            lane: None,
        }
    }

    /// The time now; virtual under test.
    #[must_use]
    pub fn now(&self) -> Time {
        self.shared.host.now()
    }

    /// The name of the stage.
    #[must_use]
    pub fn stage(&self) -> &str {
        &self.shared.stage
    }

    /// Which try at this event this is, from 1.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// When the event, or the one it descends from, entered the program.
    #[must_use]
    pub fn ingress(&self) -> Time {
        self.ingress
    }

    /// When the event stops being of use, if ever. Its handler is then dropped.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        self.deadline
    }

    /// How much the event matters to admission: the higher, the more.
    #[must_use]
    pub fn tier(&self) -> u8 {
        self.tier
    }

    /// Waits, on the program's clock: virtual under test. It needs no tokio. Tokio's own timers pass in real time
    /// under test, too: its clock can be paused only by a runtime of one thread that it drives itself.
    ///
    /// The program's clock stands still when the program has ended: a task that a handler spawned, and that may outlive
    /// the program, sleeps by tokio's timers.
    pub async fn sleep(&self, wait: Duration) {
        /// Takes the timer back if the sleep is dropped.
        struct Set<'a> {
            cx: &'a AsyncCx,
            due: Time,
            timer: Option<(u64, Waker)>,
        }
        impl Drop for Set<'_> {
            fn drop(&mut self) {
                if let Some((timer, _)) = self.timer.take() {
                    self.cx.shared.host.forget_timer(self.due, timer);
                }
            }
        }
        let due = self.now() + wait;
        let mut set = Set { cx: self, due, timer: None };
        poll_fn(|context| {
            let host = &self.shared.host;
            if host.now() >= due {
                return Poll::Ready(());
            }
            if set.timer.as_ref().is_none_or(|(_, waker)| !waker.will_wake(context.waker())) {
                let waker = context.waker().clone();
                let timer = host.wake_at(due, waker.clone());
                if let Some((before, _)) = set.timer.replace((timer, waker)) {
                    host.forget_timer(due, before);
                }
            }
            Poll::Pending
        })
        .await;
    }

    /// Ends the program, as [`Cx::quit`] does.
    pub fn quit<R: std::any::Any + Send>(&self, result: R) {
        self.shared.quitting.store(true, Relaxed);
        self.shared.host.quit(Box::new(result));
    }
}

impl fmt::Debug for AsyncCx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AsyncCx")
            .field("stage", &self.shared.stage)
            .field("attempt", &self.attempt)
            .finish_non_exhaustive()
    }
}

/// The ports of a handler that waits, and what it sent through them: `out.send(event)`, or
/// `out.good.send(event)` of a struct of ports. It is kept until the handler returns; a failure withdraws
/// it.
pub struct Emissions<P: Ports>(Box<Kept<P>>); // boxed: it moves into the future and back with each event

struct Kept<P: Ports> {
    ports: P,
    emit_max: usize,
    exchange: Arc<Exchange<P>>,
}

/// What one event may send; the next visit says anew how much room there is.
struct Allow(usize);
impl PortVisitor for Allow {
    fn port<T: Send + 'static>(&mut self, _: usize, out: &mut Out<T>) {
        out.allow(usize::MAX, usize::MAX, self.0);
    }
}

/// Where a handler leaves what it flushes for the runtime, which sends it.
struct Exchange<P>(Mutex<Flushed<P>>);

struct Flushed<P> {
    /// Left by the handler.
    ports: Option<P>,
    /// The stage may not flush.
    refused: bool,
}

impl<P> Exchange<P> {
    fn lock(&self) -> MutexGuard<'_, Flushed<P>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<P: Ports> Emissions<P> {
    fn new(flushes: bool) -> Self {
        let flushed = Flushed { ports: None, refused: !flushes };
        let exchange = Arc::new(Exchange(Mutex::new(flushed)));
        Emissions(Box::new(Kept { ports: P::new(), emit_max: usize::MAX, exchange }))
    }

    /// The next event may send so many.
    fn allow(&mut self, emit_max: usize) {
        if self.0.emit_max != emit_max {
            self.0.emit_max = emit_max;
            self.0.ports.each(&mut Allow(emit_max));
        }
    }

    /// Commits what was sent so far: it moves on at once, and this waits until it has found room. A failure
    /// afterwards does not withdraw it; the failure is marked `partial`, and a retry may send it again.
    ///
    /// While it waits for room it occupies one of the instances that poll the stage, as every sender does;
    /// neither the stage's `timeout` nor the event's deadline ends that wait.
    ///
    /// # Errors
    /// The stage does not say that it flushes ([`AsyncStage::FLUSHES`]), or the event has sent more than
    /// `emit_max` allows.
    pub async fn flush(&mut self) -> Result {
        {
            let Kept { ports, emit_max, exchange } = &mut *self.0;
            let mut flushed = exchange.lock();
            if flushed.refused {
                let said = "a stage that flushes says so: `const FLUSHES: bool = true`";
                return Err(crate::error::Error::msg(said));
            }
            let mut flooded = Flooded(false);
            ports.each(&mut flooded);
            // What a flush before this left that was not waited for counts, too.
            let mut sent = Sent::default();
            flushed.ports.iter_mut().for_each(|before| before.each(&mut sent));
            if !sent.0.is_empty() {
                ports.each(&mut sent);
            }
            if flooded.0 || sent.0.iter().any(|n| n > emit_max) {
                return Err(crate::error::Error::msg("emitted more than `emit_max` events"));
            }
            match &mut flushed.ports {
                Some(before) => before.append(ports),
                None => {
                    let mut fresh = P::new();
                    fresh.each(&mut Allow(*emit_max));
                    flushed.ports = Some(std::mem::replace(ports, fresh));
                }
            }
        }
        // The runtime takes it when the handler waits, and polls that again when all of it has found room, not before.
        // Whoever polls this again within the handler has it wait on.
        let exchange = &self.0.exchange;
        poll_fn(|cx| {
            if exchange.lock().ports.is_none() {
                return Poll::Ready(());
            }
            cx.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
        Ok(())
    }
}

/// Whether one event sent more than it may.
struct Flooded(bool);
impl PortVisitor for Flooded {
    fn port<T: Send + 'static>(&mut self, _: usize, out: &mut Out<T>) {
        self.0 |= out.is_flooded();
    }
}

/// How many each port was sent.
#[derive(Default)]
struct Sent(Vec<usize>);
impl PortVisitor for Sent {
    fn port<T: Send + 'static>(&mut self, index: usize, out: &mut Out<T>) {
        if self.0.len() <= index {
            self.0.resize(index + 1, 0);
        }
        self.0[index] += out.len();
    }
}

/// Drops what was sent one by one: of two events whose `Drop` panics, the second would abort the process, and
/// so would the first, if the handler has panicked.
struct Discard;
impl PortVisitor for Discard {
    fn port<T: Send + 'static>(&mut self, _: usize, out: &mut Out<T>) {
        if std::mem::needs_drop::<T>() {
            for event in out.drain() {
                let _ = catch_unwind(AssertUnwindSafe(|| drop(event)));
            }
        }
    }
}

impl<P: Ports> Drop for Emissions<P> {
    fn drop(&mut self) {
        self.0.ports.each(&mut Discard);
    }
}

impl<P: Ports> Deref for Emissions<P> {
    type Target = P;
    fn deref(&self) -> &P {
        &self.0.ports
    }
}

impl<P: Ports> DerefMut for Emissions<P> {
    fn deref_mut(&mut self) -> &mut P {
        &mut self.0.ports
    }
}

impl<P: Ports> fmt::Debug for Emissions<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Emissions")
    }
}
