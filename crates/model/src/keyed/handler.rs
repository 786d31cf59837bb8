//! How a keyed stage becomes a handler. Before: `mod.rs`. After: the runtime, which calls it with an event and its lane.
//! Invariants: a call that fails sets no timer; event timers that the watermark had passed when an event arrived fire
//! before it is handled.

use std::any::Any;
use std::fmt;
use std::hash::Hash;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use super::lane::Typed;
use super::{Change, Clock, KeyedCx, KeyedStage, Keys, KeysBy, LaneRef};
use crate::column::Duty;
use crate::error::{Outcome, Result};
use crate::event::{Ev, Time};
use crate::kind;
use crate::port::{Out, PortVisitor, Ports};
use crate::stage::{Cx, Handler, IntoStage};

/// The keys of a keyed stage.
type KeysOf<S> = KeysBy<<S as KeyedStage>::In, <S as KeyedStage>::Key, <S as KeyedStage>::State, S>;

/// A keyed stage as the runtime calls it. Clones share the keys.
pub struct Keyed<S: KeyedStage> {
    stage: S,
    keys: Arc<KeysOf<S>>,
    /// Those of its replica of the stage.
    own: Arc<dyn Keys<S::In>>,
}

impl<S: KeyedStage> Clone for Keyed<S> {
    fn clone(&self) -> Self {
        Keyed { stage: self.stage.clone(), keys: self.keys.clone(), own: self.own.clone() }
    }
}

impl<S: KeyedStage> fmt::Debug for Keyed<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Keyed")
    }
}

impl<S: KeyedStage> Keyed<S> {
    fn new(stage: S) -> Self {
        let keys = Arc::new(KeysBy::new(stage.clone()));
        Keyed { stage, own: keys.clone(), keys }
    }

    /// Shows the state of a key.
    pub fn with_state<R>(&self, key: &S::Key, see: impl FnOnce(Option<&S::State>) -> R) -> R {
        match self.keys.directory.find(key) {
            Some(lane) => see(lane.typed().lend().peek()),
            None => see(None),
        }
    }

    /// Replaces the state of a key. Returns the one before.
    pub fn put_state(&self, key: S::Key, state: S::State) -> Option<S::State> {
        let lane = self.keys.directory.lane(key, |key| self.stage.weight(key));
        lane.typed().lend().put(state)
    }

    /// The event timers of a lane that the watermark had passed when the event to be handled next arrived: they come
    /// before it. One that fails costs what it sent.
    #[cold]
    fn catch_up(&mut self, lane: LaneOf<'_, S>, out: &mut S::Ports, cx: &Cx) {
        let mut fired = false;
        while let Some(at) = lane.take_due(Clock::Events, cx.watermark()) {
            if !fired {
                out.each(&mut Owes(&Duty::default())); // nobody waits for what a timer sends
                fired = true;
            }
            let call = AssertUnwindSafe(|| self.call_timer(Clock::Events, lane, at, out, cx));
            let failed = match catch_unwind(call) {
                Ok(Ok(())) => None,
                Ok(Err(error)) => Some(catch_unwind(AssertUnwindSafe(|| error.to_string()))),
                Err(panic) => Some(Ok(panic_text(&*panic))),
            };
            if let Some(message) = failed {
                out.each(&mut Withdraw);
                let message =
                    message.unwrap_or_else(|_| "an error that cannot be shown".to_owned());
                cx.report(format!("`{}`: a timer failed: {message}", cx.stage()));
            }
            out.each(&mut Mark);
        }
        if fired {
            cx.with_duty(|duty| out.each(&mut Owes(duty)));
        }
    }

    fn call_timer(
        &mut self,
        of: Clock,
        lane: LaneOf<'_, S>,
        at: Time,
        out: &mut S::Ports,
        cx: &Cx,
    ) -> Result {
        let mut loan = lane.lend();
        let cx = KeyedCx::new(cx, lane.key());
        match of {
            Clock::Program => self.stage.timer(loan.state(), at, out, &cx)?,
            Clock::Events => self.stage.event_timer(loan.state(), at, out, &cx)?,
        }
        if of == Clock::Events {
            // Time goes on: a timer cannot have itself called again, nor after the end.
            let over = cx.watermark() == Time::MAX;
            cx.timers.borrow_mut().retain(|timer| {
                timer.of != Clock::Events || !timer.set || (timer.at > at && !over)
            });
        }
        if comply(lane, cx) {
            drop(loan.take());
        }
        Ok(())
    }
}

/// What a panic said.
fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic".to_owned())
}

const LANE: &str = "the runtime gives each event of a keyed stage its lane";

/// A lane of a keyed stage.
type LaneOf<'a, S> = Typed<'a, <S as KeyedStage>::Key, <S as KeyedStage>::State>;

/// What a call asked for is done, now that it has succeeded. Returns whether it wants its state forgotten.
#[inline]
fn comply<K, S>(lane: Typed<'_, K, S>, mut cx: KeyedCx<'_, K>) -> bool {
    if cx.asks() { comply_in_full(lane, cx) } else { false }
}

#[cold]
fn comply_in_full<K, S>(lane: Typed<'_, K, S>, cx: KeyedCx<'_, K>) -> bool {
    for Change { of, at, set } in cx.timers.into_inner() {
        lane.set_timer(of, at, set);
    }
    let forget = cx.forget.get();
    if forget {
        lane.clear_timers();
    }
    forget
}

impl<S: KeyedStage> Handler for Keyed<S> {
    type Item = S::In;
    type Ports = S::Ports;
    type Kind = kind::Keyed<S::In, S::Ports>;
    const TAKES: bool = S::TAKES;
    const BOUNDS_ITSELF: bool = S::BOUNDS_ITSELF;

    fn keys(&self) -> Option<Arc<dyn Keys<S::In>>> {
        Some(self.keys.clone())
    }

    fn set_keys(&mut self, keys: Arc<dyn Keys<S::In>>) {
        self.own = keys;
    }

    fn init(&mut self, cx: &Cx) -> Result {
        self.stage.init(cx)
    }

    fn call(&mut self, slots: &mut [Option<S::In>], out: &mut S::Ports, cx: &Cx) -> Result {
        // In a test of the stage alone: there is no queue that knows lanes.
        let Some(event) = &slots[0] else { return Ok(()) };
        let lane = self.keys.lane_of(event);
        self.call_in(&lane, slots, out, cx)
    }

    #[inline(always)] // the loop over the events of a visit is in one piece with it
    fn call_in(
        &mut self,
        lane: &LaneRef,
        slots: &mut [Option<S::In>],
        out: &mut S::Ports,
        cx: &Cx,
    ) -> Result {
        let lane: LaneOf<'_, S> = lane.typed().expect(LANE);
        let mut late = false;
        if self.keys.event_time.is_some() {
            if lane.is_due(cx.watermark()) {
                self.catch_up(lane, out, cx);
            }
            let time = slots[0].as_ref().and_then(|event| self.stage.time(event));
            late = time.is_some_and(|time| time < cx.watermark());
        }
        let event = Ev::lend_of(&mut slots[0], cx.origin());
        let mut cx = KeyedCx { late, ..KeyedCx::new(cx, lane.key()) };
        let handled = lane.with_state(|state| self.stage.handle(state, event, out, &cx));
        if handled.is_ok() && cx.asks() {
            let mut loan = lane.lend();
            if comply_in_full(lane, cx) {
                drop(loan.take());
            }
        }
        handled
    }

    fn fire(&mut self, lane: &LaneRef, now: Time, out: &mut S::Ports, cx: &Cx) -> Result<bool> {
        let lane: LaneOf<'_, S> = lane.typed().expect(LANE);
        let watermark = cx.watermark();
        let Some((of, at)) = lane.take_first_due(now, watermark) else { return Ok(false) };
        self.call_timer(of, lane, at, out, cx)?;
        Ok(lane.may_be_due(watermark))
    }

    fn expire(&mut self, lane: &LaneRef, out: &mut S::Ports, cx: &Cx) -> Result {
        let lane: LaneOf<'_, S> = lane.typed().expect(LANE);
        lane.clear_timers();
        let state = lane.lend().take();
        let cx = KeyedCx::new(cx, lane.key());
        state.map_or(Ok(()), |state| self.stage.expired(state, out, &cx))
    }

    /// Each instance finishes keys until none are left. One key that fails costs what it sent, and no other.
    fn finish(&mut self, out: &mut S::Ports, cx: &Cx) -> Result {
        let mut failed = None;
        let mut lanes = Vec::new();
        while self.own.take_some(&mut lanes) {
            for lane in lanes.drain(..) {
                out.each(&mut Mark);
                let lane: LaneOf<'_, S> = lane.typed().expect(LANE);
                let Some(state) = lane.lend_at_last().take() else { continue };
                let stage = &mut self.stage;
                let cx = KeyedCx::new(cx, lane.key());
                let call = AssertUnwindSafe(|| stage.finish(state, out, &cx));
                let result = catch_unwind(call);
                if !matches!(result, Ok(Ok(()))) {
                    out.each(&mut Withdraw);
                    failed.get_or_insert(result);
                }
            }
        }
        out.each(&mut Mark);
        match failed {
            None => Ok(()),
            Some(Ok(result)) => result,
            Some(Err(panic)) => resume_unwind(panic),
        }
    }
}

/// What was sent so far stays.
struct Mark;
impl PortVisitor for Mark {
    fn port<T: Send + 'static>(&mut self, _: usize, out: &mut Out<T>) {
        out.set_mark();
    }
}

/// What is sent from now on owes this.
struct Owes<'a>(&'a Duty);
impl PortVisitor for Owes<'_> {
    fn port<T: Send + 'static>(&mut self, _: usize, out: &mut Out<T>) {
        out.set_duty(self.0);
    }
}

/// What was sent since the mark is taken back.
struct Withdraw;
impl PortVisitor for Withdraw {
    fn port<T: Send + 'static>(&mut self, _: usize, out: &mut Out<T>) {
        out.withdraw(|event| {
            let _ = catch_unwind(AssertUnwindSafe(|| drop(event)));
        });
    }
}

/// Marks types that implement [`KeyedStage`].
#[derive(Debug)]
pub struct IsKeyed;

impl<S: KeyedStage> IntoStage<IsKeyed> for S {
    type Handler = Keyed<S>;
    fn into_handler(self) -> Keyed<S> {
        Keyed::new(self)
    }
}

/// A keyed stage of two closures: one for the key, one that handles.
pub struct KeyedFn<KF, F, I, K, S, P, R> {
    key: KF,
    call: F,
    #[expect(clippy::type_complexity, reason = "it only names its parameters")]
    of: PhantomData<fn(I, K, S, P) -> R>,
}

impl<KF, F, I, K, S, P, R> KeyedFn<KF, F, I, K, S, P, R> {
    /// The closures as a stage.
    pub fn new(key: KF, call: F) -> Self {
        KeyedFn { key, call, of: PhantomData }
    }
}

impl<KF: Clone, F: Clone, I, K, S, P, R> Clone for KeyedFn<KF, F, I, K, S, P, R> {
    fn clone(&self) -> Self {
        KeyedFn::new(self.key.clone(), self.call.clone())
    }
}

impl<KF, F, I, K, S, P, R> fmt::Debug for KeyedFn<KF, F, I, K, S, P, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyedFn")
    }
}

impl<KF, F, I, K, S, P, R> KeyedStage for KeyedFn<KF, F, I, K, S, P, R>
where
    KF: Fn(&I) -> K + Clone + Send + Sync + 'static,
    F: FnMut(&mut S, I, &mut P) -> R + Clone + Send + Sync + 'static,
    I: Send + 'static,
    K: Hash + Eq + Send + Sync + 'static,
    S: Default + Send + 'static,
    P: Ports,
    R: Outcome + 'static,
{
    type In = I;
    type Key = K;
    type State = S;
    type Ports = P;
    const TAKES: bool = true;

    fn key(&self, event: &I) -> K {
        (self.key)(event)
    }

    #[inline]
    fn handle(
        &mut self,
        state: &mut S,
        event: Ev<'_, I>,
        out: &mut P,
        _: &KeyedCx<'_, K>,
    ) -> Result {
        (self.call)(state, event.take(), out).into_result()
    }
}
