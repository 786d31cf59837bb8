//! `sources::scheduler`: an event scheduler as a source. Its coroutines wait for sockets, timers and callbacks, and
//! send events into the program.

use std::cell::Cell;
use std::fmt;
use std::rc::Rc;

use comporta_model::error::Outcome;
use comporta_model::port::Port;
use comporta_scheduler::{Scheduler, Step};

use super::event_loop::{report, wait_for};
use crate::app::App;
use crate::core::Core;
use crate::path::sender::{SendError, Sender};
use crate::sync::{Arc, AtomicBool, SeqCst};

/// An event scheduler as a source of a program: `body` runs in a coroutine on a thread of its own, may spawn others
/// and register sources, and sends events through the [`Emitter`]. The source ends when no coroutine is left.
///
/// Unlike other sources it is not pulled; it is declared with the program, under a name that plans know as that
/// of an input. A coroutine that finds no room for its event is suspended, and the others go on. A drain, and a coroutine
/// that stops the scheduler, end the source: what was being sent is sent, and the coroutines are cancelled. An error that
/// `body` returns, and an unobserved failure of another coroutine, is a problem of the run
/// ([`Summary::problems`](crate::Summary)); the source goes on.
///
/// ```
/// # mod comporta { pub use comporta_model::{error::Result, plan::Plan}; pub use comporta_runtime::{App, sources}; pub use comporta_scheduler as scheduler; }
/// use comporta::scheduler::{listen, sources::every};
/// use comporta::{App, Plan, Result, sources};
/// use std::time::Duration;
///
/// let app = App::new("clock");
/// let ticks = sources::scheduler(&app, "ticks", |out| -> Result {
///     let ticks = listen(every(Duration::from_millis(1)))?;
///     for number in 0..5_u32 {
///         ticks.next()?;
///         out.send(number)?;
///     }
///     Ok(())
/// });
/// let show = app.sink("show", |number: u32| println!("{number}"));
/// app.connect(ticks, show);
/// let summary = app.run(&Plan::new())?;
/// assert_eq!(summary.snapshot.stage("show").unwrap().counts.handled, 5);
/// # Ok::<(), comporta_runtime::StartError>(())
/// ```
pub fn scheduler<T, R>(
    app: &App,
    name: impl Into<String>,
    body: impl FnOnce(Emitter<T>) -> R + Send + 'static,
) -> Port<T>
where
    T: Send + 'static,
    R: Outcome + 'static,
{
    let name = name.into();
    let stopped = Arc::new(AtomicBool::new(false));
    let (at_stop, own) = (stopped.clone(), name.clone());
    let on_stop = move || at_stop.store(true, SeqCst);
    let key = app.add_loop(name, on_stop, move |sender, scheduler, core| {
        run(scheduler, core, &own, &stopped, sender, body);
    });
    Port::of(key, 0)
}

fn run<T: Send + 'static, R: Outcome + 'static>(
    scheduler: &mut Scheduler,
    core: &Core,
    name: &str,
    stopped: &AtomicBool,
    sender: Sender<T>,
    body: impl FnOnce(Emitter<T>) -> R + 'static,
) {
    let emitter =
        Emitter(Rc::new(Sending { sender, under_way: Cell::new(0), closed: Cell::new(false) }));
    let sending = emitter.0.clone();
    let started = scheduler
        .spawn_fallible(move || body(emitter).into_result().map_err(|error| error.to_string()));
    match started {
        Ok(unobserved) => drop(unobserved),
        Err(error) => return core.report(format!("the event loop `{name}`: {error}")),
    }
    loop {
        match scheduler.step() {
            Ok(Step::Failed(failure)) => report(core, name, &failure),
            Ok(Step::Resumed | Step::Idle) => {}
            Ok(Step::Stopped) => sending.closed.set(true),
            Ok(Step::Complete) => return,
            Err(error) => return core.report(format!("the event loop `{name}`: {error}")),
        }
        if sending.closed.get() && (sending.under_way.get() == 0 || stopped.load(SeqCst)) {
            return;
        }
    }
}

/// Sends events of a [`scheduler`] into the program, from its coroutines.
pub struct Emitter<T: Send + 'static>(Rc<Sending<T>>);

struct Sending<T: Send + 'static> {
    sender: Sender<T>,
    /// Coroutines that are in `send`.
    under_way: Cell<usize>,
    /// The source ends when there are none: it takes nothing more.
    closed: Cell<bool>,
}

impl<T: Send + 'static> Emitter<T> {
    /// Sends an event; suspends the coroutine while a queue it goes to is full.
    ///
    /// # Errors
    /// The event, when the program drains or has ended, its queue rejects it, or an admission controller does
    /// not let it in. [`SendError::Cancelled`] if the program stopped while the event waited, or the coroutine is unwinding.
    ///
    /// # Panics
    /// If it would have to wait outside of a coroutine.
    pub fn send(&self, event: T) -> Result<(), SendError<T>> {
        let Sending { sender, under_way, closed } = &*self.0;
        if closed.get() {
            return Err(SendError::Closed(event));
        }
        under_way.set(under_way.get() + 1);
        let _over = UnderWay(under_way);
        wait_for(sender.send_async(event)).unwrap_or(Err(SendError::Cancelled))
    }
}

struct UnderWay<'a>(&'a Cell<usize>);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

impl<T: Send + 'static> Clone for Emitter<T> {
    fn clone(&self) -> Self {
        Emitter(self.0.clone())
    }
}

impl<T: Send + 'static> fmt::Debug for Emitter<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Emitter").finish_non_exhaustive()
    }
}
