//! Runs one stage by itself: events in, what it sends out. [`KeyedTester`] is its neighbour for keyed stages.
//!
//! [`KeyedTester`]: crate::keyed_tester::KeyedTester

use std::any::Any;
use std::fmt;
use std::time::Duration;

use comporta_model::event::{Ev, Time};
use comporta_model::port::Ports;
use comporta_model::stage::{Cx, Host, Stage};

use crate::env::Clock;
use crate::failure::Reason;
use crate::sync::{Arc, Mutex};
use crate::user;

/// Tests one stage by itself: send it events, and look at the events that it sends.
///
/// ```
/// # use comporta_runtime::testing::StageTester;
/// # use comporta_model::{event::Ev, port::Out, stage::{Cx, Stage}, error::Result};
/// struct Double;
/// impl Stage for Double {
///     type In = u32;
///     type Ports = Out<u32>;
///     fn handle(&mut self, n: Ev<'_, u32>, out: &mut Out<u32>, _: &Cx) -> Result {
///         out.send(*n * 2);
///         Ok(())
///     }
/// }
/// let mut tester = StageTester::new(Double);
/// tester.send(21).unwrap();
/// assert_eq!(tester.out.drain().collect::<Vec<_>>(), [42]);
/// ```
pub struct StageTester<S: Stage> {
    /// The stage.
    pub stage: S,
    /// The events that it sent: `tester.out.drain()`, or `tester.out.port.drain()` for one port of several.
    pub out: S::Ports,
    cx: Cx,
    host: Arc<TesterHost>,
}

pub(crate) struct TesterHost {
    pub(crate) clock: Clock,
    quit: Mutex<Option<Box<dyn Any + Send>>>,
    pub(crate) problems: Mutex<Vec<String>>,
}

impl TesterHost {
    pub(crate) fn new() -> Arc<Self> {
        let clock = Clock::virtual_at_zero();
        Arc::new(TesterHost { clock, quit: Mutex::default(), problems: Mutex::default() })
    }
}

impl Host for TesterHost {
    fn now(&self) -> Time {
        self.clock.now()
    }
    fn quit(&self, result: Box<dyn Any + Send>) {
        *self.quit.lock() = Some(result);
    }
    // A stage that waits is tried in a program.
    fn wake_at(&self, _: Time, waker: std::task::Waker) -> u64 {
        waker.wake();
        0
    }
    fn forget_timer(&self, _: Time, _: u64) {}
    fn report(&self, problem: String) {
        self.problems.lock().push(problem);
    }
}

impl<S: Stage> StageTester<S> {
    /// Initialises a stage.
    ///
    /// # Panics
    /// Panics if `init` fails.
    pub fn new(mut stage: S) -> Self {
        let host = TesterHost::new();
        let cx = Cx::new("tester".into(), 0, host.clone());
        if let Err(error) = stage.init(&cx) {
            panic!("init failed: {error}");
        }
        StageTester { stage, out: S::Ports::new(), cx, host }
    }

    /// Sends an event to the stage. Events that a failing call sent are withdrawn, as in a program.
    ///
    /// # Errors
    /// Returns the error or the panic of the handler.
    pub fn send(&mut self, event: S::In) -> Result<(), Reason> {
        use crate::stage::ports::{Mark, Withdraw};
        let mut slot = Some(event);
        let StageTester { stage, out, cx, .. } = self;
        out.each(&mut Mark);
        let result = match user::call(|| stage.handle(Ev::lend(&mut slot), out, cx)) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(Reason::Error(user::text(error))),
            Err(reason) => Err(reason),
        };
        if result.is_err() {
            out.each(&mut Withdraw);
        }
        result
    }

    /// Calls `finish`, as after the last event.
    ///
    /// # Errors
    /// Returns the error or the panic of the handler.
    pub fn finish(&mut self) -> Result<(), Reason> {
        let StageTester { stage, out, cx, .. } = self;
        match user::call(|| stage.finish(out, cx)) {
            Ok(result) => result.map_err(|error| Reason::Error(error.to_string())),
            Err(reason) => Err(reason),
        }
    }

    /// Moves the clock of the stage forward.
    pub fn advance(&self, by: Duration) {
        self.host.clock.advance(by);
    }

    /// Sets the number of the attempt that the next call sees.
    pub fn set_attempt(&self, attempt: u32) {
        self.cx.set_attempt(attempt);
    }

    /// Returns the value that the stage passed to `quit`, if any.
    pub fn quit_with<R: Any>(&self) -> Option<R> {
        self.host.quit.lock().take()?.downcast().ok().map(|result| *result)
    }
}

impl<S: Stage> fmt::Debug for StageTester<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StageTester").field("cx", &self.cx).finish_non_exhaustive()
    }
}
