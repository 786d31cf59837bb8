//! `App::stage_coroutine`: a stage whose handlers are coroutines. It is a stage that waits (`stage::flight`), so
//! obligations, retries, time limits, order, drain and stop are what they are there: the future of an event hands it
//! to the loop, and is ready when its handler has ended.
//! Before: `stage::flight`, which polls the future. After: `stage_loop`, which runs the handler.
//!
//! Invariants: the future of an event is answered once, whatever becomes of its handler and of the loop. The handler of
//! a future that is dropped (a time limit, a stop) is cancelled.

use std::any::Any;
use std::panic::resume_unwind;
use std::pin::Pin;
use std::sync::OnceLock;
use std::task::{Context, Poll, Waker};

use comporta_model::async_stage::{AsyncCx, AsyncStage, Emissions};
use comporta_model::error::{Error, Outcome, Result};
use comporta_model::port::{Out, Ports};
use comporta_scheduler::Notifier;

use super::stage_loop::StageLoop;
use crate::app::{App, StageRef};
use crate::sync::{Arc, Mutex};
use crate::user;

impl App {
    /// Adds a stage whose handler may wait in the middle of what it does (feature `scheduler`): each event has a
    /// coroutine of its own, and all of them run on one thread, which belongs to this stage. A handler suspends in the
    /// operations of `comporta_scheduler`, also inside loops and other people's functions, while others go on.
    ///
    /// Up to `instances` events of the plan are in flight at once (at most 30,000); with one instance, the default, an
    /// event is begun when the one before it has ended. What the handler sent leaves when it returns. An error or a panic
    /// costs this event only: what it sent is withdrawn, it is retried if the plan says so, and then set aside with the
    /// reason. An event is acknowledged when its handler has ended. A handler is cancelled, which unwinds it, when the
    /// stage's `timeout` or the event's deadline passes, or the program stops.
    ///
    /// A handler that does not suspend holds up the others. A `stop` of the scheduler that it calls is ignored.
    ///
    /// ```
    /// # mod comporta { pub use comporta_model::{plan::Plan, port::Out}; pub use comporta_runtime::App; pub use comporta_scheduler as scheduler; }
    /// use comporta::scheduler::sleep;
    /// use comporta::{App, Out, Plan};
    /// use std::time::Duration;
    ///
    /// let app = App::new("polite");
    /// let numbers = app.source("numbers", || 0..100_u64);
    /// let greet = app.stage_coroutine("greet", |n: u64, out: &mut Out<String>| {
    ///     sleep(Duration::from_millis(20)); // all hundred of them at once
    ///     out.send(format!("hello {n}"));
    /// });
    /// let show = app.sink("show", |text: String| println!("{text}"));
    /// app.connect(numbers, greet);
    /// app.connect(greet, show);
    /// let summary = app.run(&Plan::new().stage("greet", |greet| greet.instances(100)))?;
    /// assert_eq!(summary.snapshot.stage("show").unwrap().counts.handled, 100);
    /// # Ok::<(), comporta_runtime::StartError>(())
    /// ```
    pub fn stage_coroutine<I, O, R>(
        &self,
        name: impl Into<String>,
        handler: impl Fn(I, &mut Out<O>) -> R + Send + 'static,
    ) -> StageRef<'_, I, Out<O>>
    where
        I: Send + 'static,
        O: Send + 'static,
        R: Outcome + 'static,
    {
        let name = name.into();
        let to_loop = Arc::new(OnceLock::new());
        let event_loop = StageLoop::new(&name, to_loop.clone(), handler);
        self.with_resources(|all| all.push(Box::new(event_loop)));
        self.stage(name, Coroutines { to_loop })
    }
}

/// What goes to the loop.
pub(super) enum Message<I: Send + 'static, O: Send + 'static> {
    /// An event is to be handled.
    Begin(Asked<I, O>),
    /// Nobody waits for this answer any more.
    Cancel(Arc<Answer<O>>),
}

/// An event that is to be handled, and the answer that is owed for it: wherever it is dropped, it is answered.
pub(super) struct Asked<I: Send + 'static, O: Send + 'static> {
    event: Option<I>,
    pub(super) answer: Arc<Answer<O>>,
}

impl<I: Send + 'static, O: Send + 'static> Asked<I, O> {
    /// Takes the event out. There is one the first time.
    pub(super) fn take(&mut self) -> Option<I> {
        self.event.take()
    }
}

impl<I: Send + 'static, O: Send + 'static> Drop for Asked<I, O> {
    fn drop(&mut self) {
        user::discard(self.event.take());
        self.answer.end(Ok(Err(loop_ended())));
    }
}

/// The way to the loop: known when the program has started.
pub(super) type ToLoop<I, O> = Arc<OnceLock<Notifier<Message<I, O>>>>;

/// What became of a handler: what it sent, its error, or the payload of its panic.
pub(super) type End<O> = std::result::Result<Result<Out<O>>, Box<dyn Any + Send>>;

/// Where the loop leaves the end of a handler for the future that waits for it.
pub(super) struct Answer<O>(Mutex<State<O>>);

enum State<O> {
    Awaited(Option<Waker>),
    Ended(End<O>),
    /// The future has it, or is gone.
    Over,
}

impl<O> Answer<O> {
    fn new() -> Arc<Self> {
        Arc::new(Answer(Mutex::new(State::Awaited(None))))
    }

    /// Whether it is of no use any more.
    pub(super) fn is_over(&self) -> bool {
        matches!(*self.0.lock(), State::Over)
    }

    /// The handler has ended. The first call counts.
    pub(super) fn end(&self, end: End<O>) {
        let mut state = self.0.lock();
        if !matches!(*state, State::Awaited(_)) {
            drop(state);
            return user::discard(end);
        }
        let before = std::mem::replace(&mut *state, State::Ended(end));
        drop(state);
        if let State::Awaited(Some(waker)) = before {
            waker.wake();
        }
    }

    fn poll(&self, waker: &Waker) -> Poll<End<O>> {
        let mut state = self.0.lock();
        let next = match &*state {
            State::Awaited(_) => State::Awaited(Some(waker.clone())),
            State::Ended(_) | State::Over => State::Over,
        };
        let before = std::mem::replace(&mut *state, next);
        drop(state);
        match before {
            State::Ended(end) => Poll::Ready(end),
            State::Awaited(_) | State::Over => Poll::Pending,
        }
    }

    /// The future is dropped. Returns whether it was not answered.
    fn give_up(&self) -> bool {
        let before = std::mem::replace(&mut *self.0.lock(), State::Over);
        match before {
            State::Awaited(_) => true,
            State::Over => false,
            State::Ended(end) => {
                user::discard(end);
                false
            }
        }
    }
}

/// The stage.
struct Coroutines<I: Send + 'static, O: Send + 'static> {
    to_loop: ToLoop<I, O>,
}

impl<I: Send + 'static, O: Send + 'static> AsyncStage for Coroutines<I, O> {
    type In = I;
    type Ports = Out<O>;

    async fn handle(&self, event: I, out: &mut Emissions<Out<O>>, _: &AsyncCx) -> Result {
        let answer = Answer::new();
        let asked = Asked { event: Some(event), answer: answer.clone() };
        if let Some(to_loop) = self.to_loop.get() {
            // If the loop has ended, it is refused, dropped and thereby answered.
            let _ = to_loop.notify(Message::Begin(asked));
        }
        let handled = Handled { answer, to_loop: self.to_loop.clone() }.await;
        let mut sent = handled.unwrap_or_else(|payload| resume_unwind(payload))?;
        Ports::append(&mut **out, &mut sent);
        Ok(())
    }
}

/// Of an event that comes to a loop that is not there any more.
pub(super) fn loop_ended() -> Error {
    Error::msg("its event loop has ended")
}

/// Waits for the end of a handler.
struct Handled<I: Send + 'static, O: Send + 'static> {
    answer: Arc<Answer<O>>,
    to_loop: ToLoop<I, O>,
}

impl<I: Send + 'static, O: Send + 'static> Future for Handled<I, O> {
    type Output = End<O>;
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<End<O>> {
        self.answer.poll(context.waker())
    }
}

impl<I: Send + 'static, O: Send + 'static> Drop for Handled<I, O> {
    fn drop(&mut self) {
        if self.answer.give_up()
            && let Some(to_loop) = self.to_loop.get()
        {
            // Refused if the loop has ended, and its handlers with it.
            let _ = to_loop.notify(Message::Cancel(self.answer.clone()));
        }
    }
}
