//! The stage of keyed windows. Before: `panes`, which it keeps for each key. After: `keyed`, which calls it.
//! Invariant: for each open window of a key a timer is set, for its end or earlier; the one that finds windows still open
//! sets the next.

use std::fmt;
use std::hash::Hash;
use std::marker::PhantomData;
use std::time::Duration;

use super::panes::{Panes, Result as Closed};
use super::{Aggregate, Shape, TIME_MAX, Windowed, Windows};
use crate::error::{Error, Result};
use crate::event::{Ev, Held, Time};
use crate::keyed::{EventTime, KeyedCx, KeyedStage};
use crate::window::Timed;

/// Windows of each key; see [`keyed`] and [`keyed_on_clock`].
pub struct KeyedWindows<T, KF, TF, A> {
    key: KF,
    time: TF,
    windows: Windows,
    /// Known once it is known to make sense.
    shape: Option<Shape>,
    aggregate: A,
    of: PhantomData<fn(T)>,
}

/// Returns a stage that gathers the events of each key in windows of event time, and sends what `aggregate` makes of
/// them. `time` returns when an event happened, in nanoseconds since any moment.
///
/// A window is sent when the watermark of the stage ([`EventTime`]) has come to its end. Which events are in a window is
/// decided by the order in which they arrive at the stage, not by threads, batches or instances. An event that arrives
/// when all windows it belongs to have been sent is *late*, and leaves through the port `late`. A key without open
/// windows costs nothing. An acknowledged source is informed of an event when the windows it is in have been handled.
///
/// ```
/// use std::time::Duration;
/// # mod comporta { pub use comporta_model::{event::Time, window as windows}; }
/// use comporta::Time;
/// use comporta::windows::{self, Windows};
///
/// struct Bid {
///     auction: u64,
///     price: u64,
///     time: Time,
/// }
///
/// // The dearest bid of each auction, minute by minute.
/// let dearest = windows::keyed(
///     |bid: &Bid| bid.auction,
///     |bid: &Bid| bid.time,
///     Windows::tumbling(Duration::from_secs(60)).lateness(Duration::from_secs(2)),
///     windows::max(|bid: &Bid| bid.price),
/// );
/// ```
pub fn keyed<T, K, KF, TF, A>(
    key: KF,
    time: TF,
    windows: Windows,
    aggregate: A,
) -> KeyedWindows<T, KF, ByEvents<TF>, A>
where
    KF: Fn(&T) -> K,
    TF: Fn(&T) -> Time,
    A: Aggregate<T>,
{
    let time = ByEvents(time);
    KeyedWindows { key, time, windows, shape: None, aggregate, of: PhantomData }
}

/// As [`keyed`], over the program's clock: an event is in the windows of the moment at which it is handled, and a window
/// is sent when the clock has come to its end. No event is late.
pub fn keyed_on_clock<T, K, KF, A>(
    key: KF,
    windows: Windows,
    aggregate: A,
) -> KeyedWindows<T, KF, OnClock, A>
where
    KF: Fn(&T) -> K,
    A: Aggregate<T>,
{
    KeyedWindows { key, time: OnClock, windows, shape: None, aggregate, of: PhantomData }
}

/// Windows go by the times of events.
#[derive(Clone, Debug)]
pub struct ByEvents<F>(F);

/// Windows go by the program's clock.
#[derive(Clone, Debug)]
pub struct OnClock;

/// When an event happened, if windows go by that.
pub trait Times<T>: Clone + Send + Sync + 'static {
    /// Whether they do.
    const BY_EVENTS: bool;
    /// When an event happened.
    fn time(&self, event: &T) -> Option<Time>;
}

impl<T, F: Fn(&T) -> Time + Clone + Send + Sync + 'static> Times<T> for ByEvents<F> {
    const BY_EVENTS: bool = true;
    #[inline]
    fn time(&self, event: &T) -> Option<Time> {
        Some((self.0)(event))
    }
}

impl<T> Times<T> for OnClock {
    const BY_EVENTS: bool = false;
    fn time(&self, _: &T) -> Option<Time> {
        None
    }
}

impl<T, KF: Clone, TF: Clone, A: Clone> Clone for KeyedWindows<T, KF, TF, A> {
    fn clone(&self) -> Self {
        let (key, time, aggregate) = (self.key.clone(), self.time.clone(), self.aggregate.clone());
        let KeyedWindows { windows, shape, of, .. } = *self;
        KeyedWindows { key, time, windows, shape, aggregate, of }
    }
}

impl<T, KF, TF, A> fmt::Debug for KeyedWindows<T, KF, TF, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyedWindows").field("windows", &self.windows).finish_non_exhaustive()
    }
}

const CHECKED: &str = "`init` has checked the windows";

impl<T, K, KF, TF, A> KeyedWindows<T, KF, TF, A>
where
    K: Clone,
    KF: Fn(&T) -> K,
    TF: Times<T>,
    A: Aggregate<T>,
{
    fn shape(&self) -> Shape {
        self.shape.expect(CHECKED)
    }

    fn send(closed: Closed<A::Out>, early: bool, out: &mut Sent<T, K, A>, cx: &KeyedCx<'_, K>) {
        let Closed { start, end, value, owed } = closed;
        let windowed = Windowed { key: cx.key().clone(), start, end, value, early };
        if early { out.windows.send(windowed) } else { out.windows.send_for(owed, windowed) }
    }

    /// Sends the windows that end by `now`.
    fn close(
        &self,
        panes: &mut Panes<A::Acc>,
        now: Time,
        out: &mut Sent<T, K, A>,
        cx: &KeyedCx<'_, K>,
    ) {
        while let Some(closed) = panes.close(self.shape(), &self.aggregate, now) {
            Self::send(closed, false, out, cx);
        }
    }

    fn set_timer(cx: &KeyedCx<'_, K>, at: Time) {
        if TF::BY_EVENTS { cx.set_event_timer(at) } else { cx.set_timer(at) }
    }

    /// A timer of the end of a window: sends those that have ended, and waits for the next.
    fn ended(
        &self,
        panes: &mut Panes<A::Acc>,
        at: Time,
        out: &mut Sent<T, K, A>,
        cx: &KeyedCx<'_, K>,
    ) {
        // All that the watermark has passed at once: at the end of the stream, the rest.
        let now = if TF::BY_EVENTS { at.max(cx.watermark()) } else { at };
        self.close(panes, now, out, cx);
        match panes.next_end(self.shape()) {
            Some(next) => Self::set_timer(cx, next),
            None => cx.forget(),
        }
    }

    fn set_early(&self, panes: &mut Panes<A::Acc>, every: Duration, cx: &KeyedCx<'_, K>) {
        let due = cx.now() + every;
        panes.early = Some(due);
        cx.set_timer(due);
    }
}

/// The ports of keyed windows.
type Sent<T, K, A> = Timed<T, Windowed<K, <A as Aggregate<T>>::Out>>;

impl<T, K, KF, TF, A> KeyedStage for KeyedWindows<T, KF, TF, A>
where
    T: Send + 'static,
    K: Hash + Eq + Clone + Send + Sync + 'static,
    KF: Fn(&T) -> K + Clone + Send + Sync + 'static,
    TF: Times<T>,
    A: Aggregate<T>,
{
    type In = T;
    type Key = K;
    type State = Panes<A::Acc>;
    type Ports = Sent<T, K, A>;
    const BOUNDS_ITSELF: bool = true;

    fn key(&self, event: &T) -> K {
        (self.key)(event)
    }

    fn event_time(&self) -> Option<EventTime> {
        TF::BY_EVENTS.then_some(self.windows.time)
    }

    fn time(&self, event: &T) -> Option<Time> {
        self.time.time(event)
    }

    fn init(&mut self, _: &crate::stage::Cx) -> Result {
        self.shape = Some(self.windows.shape().map_err(Error::msg)?);
        Ok(())
    }

    fn handle(
        &mut self,
        panes: &mut Self::State,
        event: Ev<'_, T>,
        out: &mut Self::Ports,
        cx: &KeyedCx<'_, K>,
    ) -> Result {
        let shape = self.shape();
        let time = self.time.time(&event).unwrap_or_else(|| cx.now());
        let time = time.min(Time::from_nanos(TIME_MAX));
        if TF::BY_EVENTS {
            if panes.is_over(shape, time, cx.watermark()) {
                out.late.send(event.take());
                if panes.is_empty() {
                    cx.forget();
                }
                return Ok(());
            }
            panes.have_closed(cx.watermark());
        }
        let (pane, look) = panes.add(shape, &self.aggregate, time, &*event);
        let Held { obligation, .. } = event.hold();
        panes.owe(pane, obligation);
        if let Some(at) = look {
            Self::set_timer(cx, at);
        }
        if let Some(every) = self.windows.early
            && panes.early.is_none()
        {
            self.set_early(panes, every, cx);
        }
        Ok(())
    }

    fn timer(
        &mut self,
        panes: &mut Self::State,
        at: Time,
        out: &mut Self::Ports,
        cx: &KeyedCx<'_, K>,
    ) -> Result {
        if !TF::BY_EVENTS {
            self.ended(panes, at, out, cx);
        }
        let due = panes.early.is_some_and(|early| early <= at) && !panes.is_empty();
        if let Some(every) = self.windows.early.filter(|_| due) {
            if std::mem::take(&mut panes.changed) {
                for so_far in panes.so_far(self.shape(), &self.aggregate) {
                    Self::send(so_far, true, out, cx);
                }
            }
            self.set_early(panes, every, cx);
        }
        Ok(())
    }

    fn event_timer(
        &mut self,
        panes: &mut Self::State,
        at: Time,
        out: &mut Self::Ports,
        cx: &KeyedCx<'_, K>,
    ) -> Result {
        self.ended(panes, at, out, cx);
        Ok(())
    }

    /// What the plan expires is sent as far as it has come.
    fn expired(
        &mut self,
        panes: Self::State,
        out: &mut Self::Ports,
        cx: &KeyedCx<'_, K>,
    ) -> Result {
        self.finish(panes, out, cx)
    }

    fn finish(
        &mut self,
        mut panes: Self::State,
        out: &mut Self::Ports,
        cx: &KeyedCx<'_, K>,
    ) -> Result {
        self.close(&mut panes, Time::MAX, out, cx);
        Ok(())
    }
}
