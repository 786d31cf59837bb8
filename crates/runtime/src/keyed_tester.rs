//! Tests one keyed stage by itself: events, state, and timers on both clocks, which the test moves. Used through
//! `testing`, where `StageTester` does the same for other stages.

use std::fmt;
use std::time::Duration;

use comporta_model::event::Time;
use comporta_model::keyed::{Clock, Keyed, KeyedStage, LaneRef};
use comporta_model::port::Ports;
use comporta_model::stage::{Cx, Handler, IntoStage};

use crate::failure::Reason;
use crate::stage::ports::{Mark, Withdraw};
use crate::sync::Arc;
use crate::testing::TesterHost;
use crate::user;

/// Tests one keyed stage by itself: send it events, move the clock and the watermark, and look at what it sends and
/// keeps.
///
/// ```
/// # mod comporta {
/// #     pub use comporta_model::{error::Result, event::{Ev, Time}, keyed::{KeyedCx, KeyedStage}, port::Out};
/// #     pub use comporta_runtime::testing;
/// # }
/// use std::time::Duration;
/// use comporta::testing::KeyedTester;
/// use comporta::{Ev, KeyedCx, KeyedStage, Out, Result, Time};
///
/// /// Sends the name of a device that has been silent for a minute.
/// #[derive(Clone)]
/// struct Silent;
///
/// impl KeyedStage for Silent {
///     type In = String;
///     type Key = String;
///     type State = Time;
///     type Ports = Out<String>;
///
///     fn key(&self, device: &String) -> String {
///         device.clone()
///     }
///
///     fn handle(
///         &mut self,
///         alarm: &mut Time,
///         _: Ev<'_, String>,
///         _: &mut Out<String>,
///         cx: &KeyedCx<'_, String>,
///     ) -> Result {
///         cx.clear_timer(*alarm);
///         *alarm = cx.now() + Duration::from_secs(60);
///         cx.set_timer(*alarm);
///         Ok(())
///     }
///
///     fn timer(
///         &mut self,
///         _: &mut Time,
///         _: Time,
///         out: &mut Out<String>,
///         cx: &KeyedCx<'_, String>,
///     ) -> Result {
///         out.send(cx.key().clone());
///         cx.forget();
///         Ok(())
///     }
/// }
///
/// let mut tester = KeyedTester::new(Silent);
/// tester.send("pump".to_owned()).unwrap();
/// tester.advance(Duration::from_secs(59));
/// tester.send("pump".to_owned()).unwrap();
/// tester.advance(Duration::from_secs(59));
/// assert!(tester.out.is_empty());
/// tester.advance(Duration::from_secs(1));
/// assert_eq!(tester.out.drain().collect::<Vec<_>>(), ["pump"]);
/// assert!(tester.with_state(&"pump".to_owned(), |alarm| alarm.is_none())); // forgotten
/// ```
pub struct KeyedTester<S: KeyedStage> {
    /// The events that it sent: `tester.out.drain()`, or `tester.out.port.drain()` for one port of several.
    pub out: S::Ports,
    handler: Keyed<S>,
    /// Those that have had events.
    lanes: Vec<LaneRef>,
    watermark: Time,
    cx: Cx,
    host: Arc<TesterHost>,
}

impl<S: KeyedStage> KeyedTester<S> {
    /// Initialises a stage.
    ///
    /// # Panics
    /// Panics if `init` fails.
    pub fn new(stage: S) -> Self {
        let host = TesterHost::new();
        let cx = Cx::new("tester".into(), 0, host.clone());
        let mut handler = stage.into_handler();
        handler.keys().into_iter().for_each(|keys| keys.hash_alike());
        if let Err(error) = handler.init(&cx) {
            panic!("init failed: {error}");
        }
        let (out, lanes, watermark) = (S::Ports::new(), Vec::new(), Time::ZERO);
        KeyedTester { out, handler, lanes, watermark, cx, host }
    }

    /// Sends an event to the stage. What a failing call sent, and the timers it set, are withdrawn, as in a program.
    ///
    /// # Errors
    /// Returns the error or the panic of the handler or of the key.
    pub fn send(&mut self, event: S::In) -> Result<(), Reason> {
        let keys = self.handler.keys();
        let lane = user::call(|| keys.map(|keys| keys.lane_of(&event)))?;
        let Some(lane) = lane else { return Ok(()) };
        if !self.lanes.contains(&lane) {
            self.lanes.push(lane.clone());
        }
        let mut slots = [Some(event)];
        self.call(|handler, out, cx| handler.call_in(&lane, &mut slots, out, cx))
    }

    /// Moves the program's clock forward, and fires the timers on the way, in the order of their times.
    ///
    /// # Panics
    /// Panics if a timer fails.
    pub fn advance(&mut self, by: Duration) {
        let end = self.cx.now() + by;
        while let Some((at, lane)) = self.first(Clock::Program, end) {
            self.host.clock.advance(at.duration_since(self.cx.now()));
            self.fire(&lane, at);
        }
        self.host.clock.advance(end.duration_since(self.cx.now()));
    }

    /// Moves the watermark forward, and fires the event timers on the way, in the order of their times. The events that
    /// are sent from now on find it there: nothing else moves it.
    ///
    /// # Panics
    /// Panics if a timer fails.
    pub fn advance_watermark(&mut self, to: Time) {
        while let Some((at, lane)) = self.first(Clock::Events, to) {
            self.watermark = self.watermark.max(at);
            self.fire(&lane, Time::ZERO);
        }
        self.watermark = self.watermark.max(to);
    }

    /// Calls `finish` for each key that has state, as after the last event.
    ///
    /// # Errors
    /// Returns the error or the panic of one of them.
    pub fn finish(&mut self) -> Result<(), Reason> {
        self.lanes.clear();
        self.call(|handler, out, cx| handler.finish(out, cx))
    }

    /// Shows the state of a key.
    pub fn with_state<R>(&self, key: &S::Key, see: impl FnOnce(Option<&S::State>) -> R) -> R {
        self.handler.with_state(key, see)
    }

    /// Sets the state of a key. Returns the one before.
    pub fn set_state(&mut self, key: S::Key, state: S::State) -> Option<S::State> {
        self.handler.put_state(key, state)
    }

    /// The first timer of all keys that is due by `end`.
    fn first(&self, of: Clock, end: Time) -> Option<(Time, LaneRef)> {
        let timers = self.lanes.iter().filter_map(|lane| Some((lane.first_timer(of)?, lane)));
        let first = timers.filter(|(at, _)| *at <= end).min_by_key(|(at, _)| *at);
        first.map(|(at, lane)| (at, lane.clone()))
    }

    fn fire(&mut self, lane: &LaneRef, now: Time) {
        let fired = self.call(|handler, out, cx| handler.fire(lane, now, out, cx).map(drop));
        if let Err(reason) = fired {
            panic!("a timer failed: {reason}");
        }
    }

    fn call(
        &mut self,
        call: impl FnOnce(&mut Keyed<S>, &mut S::Ports, &Cx) -> comporta_model::error::Result,
    ) -> Result<(), Reason> {
        let KeyedTester { handler, out, cx, .. } = self;
        cx.set_watermark(self.watermark);
        out.each(&mut Mark);
        let result = match user::call(|| call(handler, out, cx)) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(Reason::Error(user::text(error))),
            Err(reason) => Err(reason),
        };
        if result.is_err() {
            out.each(&mut Withdraw);
        }
        let failed = self.host.problems.lock().pop();
        assert!(failed.is_none(), "a timer failed: {}", failed.unwrap_or_default());
        result
    }
}

impl<S: KeyedStage> fmt::Debug for KeyedTester<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyedTester").field("cx", &self.cx).finish_non_exhaustive()
    }
}
