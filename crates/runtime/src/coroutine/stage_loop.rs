//! The loop of a stage of coroutines: a scheduler on a thread of its own, which has a coroutine for each event.
//! Before: `stage`, whose futures send it events. After: the future of each, which hears what became of it.
//!
//! Opened and closed as resources are: before the first event, and after the last, however the run ends.
//! Invariant: a coroutine that has not ended has an entry in [`Begun`], by which it can be cancelled.

use std::any::Any;
use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::mpsc;
use std::time::Duration;

use comporta_model::error::{Error, Outcome};
use comporta_model::port::Out;
use comporta_scheduler::{
    EventSource, Failure, Handle, JoinHandle, Notifier, Registration, Scheduler, Step, spawn,
};

use super::stage::{Answer, Asked, Message, ToLoop, loop_ended};
use crate::core::Core;
use crate::resource::AnyResource;
use crate::sync::{self, Arc, AtomicBool, Mutex, SeqCst};
use crate::user;

/// How long the end of the program waits for a handler that does not suspend.
const GRACE: Duration = Duration::from_secs(1);
/// Problems that are kept: coroutines may fail without end.
const PROBLEMS_MAX: usize = 16;

/// The loop of a stage, as the program knows it.
pub(super) struct StageLoop {
    name: String,
    state: State,
}

enum State {
    /// Runs a scheduler on the loop's thread.
    Declared(Box<dyn FnOnce(Began) + Send>),
    Open(Open),
    Closed,
}

struct Open {
    handle: Handle,
    shared: Arc<Shared>,
    /// Disconnected when the thread has ended.
    thread: mpsc::Receiver<()>,
}

#[derive(Default)]
struct Shared {
    stopped: AtomicBool,
    problems: Mutex<Vec<String>>,
}

/// What the thread is given.
struct Began {
    shared: Arc<Shared>,
    opened: mpsc::Sender<io::Result<Handle>>,
}

impl StageLoop {
    pub(super) fn new<I, O, R>(
        stage: &str,
        to_loop: ToLoop<I, O>,
        handler: impl Fn(I, &mut Out<O>) -> R + Send + 'static,
    ) -> Self
    where
        I: Send + 'static,
        O: Send + 'static,
        R: Outcome + 'static,
    {
        let body = move |began: Began| run(began, &to_loop, handler);
        let name = format!("{stage} (event loop)");
        StageLoop { name, state: State::Declared(Box::new(body)) }
    }
}

impl AnyResource for StageLoop {
    fn name(&self) -> &str {
        &self.name
    }

    fn open(&mut self, core: &Core) -> std::result::Result<(), String> {
        let State::Declared(body) = std::mem::replace(&mut self.state, State::Closed) else {
            return Ok(());
        };
        if core.is_tested() {
            return Err("an event loop has a thread of its own and cannot be stepped".to_owned());
        }
        let shared = Arc::new(Shared::default());
        let (alive, thread) = mpsc::channel();
        let (opened, heard) = mpsc::channel();
        let began = Began { shared: shared.clone(), opened };
        let named = format!("{}-{}", core.graph.name, self.name);
        let spawned = sync::spawn(named, move || {
            let _alive: mpsc::Sender<()> = alive;
            body(began);
        });
        let heard = spawned.and_then(|_| heard.recv().unwrap_or_else(|_| Err(broken())));
        let handle = heard.map_err(|error| error.to_string())?;
        self.state = State::Open(Open { handle, shared, thread });
        Ok(())
    }

    fn close(&mut self) -> Option<String> {
        let State::Open(open) = std::mem::replace(&mut self.state, State::Closed) else {
            return None;
        };
        open.shared.stopped.store(true, SeqCst);
        open.handle.stop();
        let ended = open.thread.recv_timeout(GRACE);
        let mut problems = std::mem::take(&mut *open.shared.problems.lock());
        if ended == Err(mpsc::RecvTimeoutError::Timeout) {
            problems.push("a handler does not return: its thread is left behind".to_owned());
        }
        (!problems.is_empty()).then(|| format!("`{}`: {}", self.name, problems.join("; ")))
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}

fn broken() -> io::Error {
    io::Error::other("its thread ended before it began")
}

/// What is sent to the loop, as a source of its scheduler.
struct Messages<'a, I: Send + 'static, O: Send + 'static>(&'a ToLoop<I, O>);

impl<I: Send + 'static, O: Send + 'static> EventSource for Messages<'_, I, O> {
    type Event = Message<I, O>;
    fn attach(self, to: Registration<'_, Message<I, O>>) -> io::Result<()> {
        // Bounded by the events in flight: each is begun once, and cancelled once.
        let notifier: Notifier<_> = to.capacity(usize::MAX).notifier();
        let _ = self.0.set(notifier);
        Ok(())
    }
}

/// The life of the thread.
fn run<I, O, R>(
    began: Began,
    to_loop: &ToLoop<I, O>,
    handler: impl Fn(I, &mut Out<O>) -> R + 'static,
) where
    I: Send + 'static,
    O: Send + 'static,
    R: Outcome + 'static,
{
    let Began { shared, opened } = began;
    let begun = Begun::<O>::default();
    let begin = take_messages(handler, begun.clone());
    let made = Scheduler::new().and_then(|mut scheduler| {
        drop(scheduler.register_source(Messages(to_loop), begin)?);
        Ok(scheduler)
    });
    let mut scheduler = match made {
        Ok(scheduler) => scheduler,
        Err(error) => return drop(opened.send(Err(error))),
    };
    let _ = opened.send(Ok(scheduler.handle()));
    loop {
        match scheduler.step() {
            Ok(Step::Resumed | Step::Idle) => {}
            Ok(Step::Failed(failure)) => note(&shared, *failure),
            // A handler may ask for a stop, too, but the others are not its own to end.
            Ok(Step::Stopped) if !shared.stopped.load(SeqCst) => {}
            Ok(Step::Stopped | Step::Complete) => break,
            Err(error) => {
                shared.problems.lock().push(error.to_string());
                break;
            }
        }
    }
    // Before they unwind, which is no panic of theirs.
    for (_, answer) in begun.borrow().values() {
        answer.end(Ok(Err(loop_ended())));
    }
}

/// A failure of a coroutine that a handler spawned; of a handler itself, its event hears.
fn note(shared: &Shared, failure: Failure) {
    let text = user::text(&failure);
    user::discard(failure);
    let mut problems = shared.problems.lock();
    if problems.len() < PROBLEMS_MAX {
        problems.push(text);
    }
}

/// The handlers that have begun and not ended, by the addresses of their answers.
type Begun<O> = Rc<RefCell<HashMap<usize, (JoinHandle<()>, Arc<Answer<O>>)>>>;

fn address<O>(answer: &Arc<Answer<O>>) -> usize {
    Arc::as_ptr(answer).addr()
}

/// Begins a handler for each event, and cancels those that nobody waits for any more.
fn take_messages<I, O, R>(
    handler: impl Fn(I, &mut Out<O>) -> R + 'static,
    begun: Begun<O>,
) -> impl FnMut(Message<I, O>) + 'static
where
    I: Send + 'static,
    O: Send + 'static,
    R: Outcome + 'static,
{
    let handler = Rc::new(handler);
    move |message| match message {
        Message::Begin(asked) if asked.answer.is_over() => drop(asked),
        Message::Begin(asked) => {
            let answer = asked.answer.clone();
            let in_flight = InFlight { asked, begun: begun.clone() };
            let handler = handler.clone();
            match spawn(move || in_flight.handle(&*handler)) {
                Ok(handle) => {
                    let entry = (handle, answer.clone());
                    drop(begun.borrow_mut().insert(address(&answer), entry));
                }
                Err(error) => answer.end(Ok(Err(none_left(&error)))),
            }
        }
        Message::Cancel(answer) => {
            if let Some((handle, _)) = begun.borrow().get(&address(&answer)) {
                handle.cancel();
            }
        }
    }
}

fn none_left(error: &io::Error) -> Error {
    Error::msg(format!("no coroutine for its handler: {error}"))
}

/// A handler that was spawned and has not ended.
struct InFlight<I: Send + 'static, O: Send + 'static> {
    asked: Asked<I, O>,
    begun: Begun<O>,
}

impl<I: Send + 'static, O: Send + 'static> InFlight<I, O> {
    /// Calls the handler; what it sent is withdrawn if it fails.
    fn handle<R: Outcome>(mut self, handler: &impl Fn(I, &mut Out<O>) -> R) {
        let Some(event) = self.asked.take() else { return };
        let mut out = Out::default();
        let handled = catch_unwind(AssertUnwindSafe(|| handler(event, &mut out).into_result()));
        if !matches!(handled, Ok(Ok(()))) {
            out.drain().for_each(user::discard);
        }
        self.asked.answer.end(handled.map(|result| result.map(|()| out)));
    }
}

impl<I: Send + 'static, O: Send + 'static> Drop for InFlight<I, O> {
    fn drop(&mut self) {
        let ended = self.begun.borrow_mut().remove(&address(&self.asked.answer));
        drop(ended);
    }
}
