//! The handler repository (the document's *Routine Pool*): a table of handler objects, and the ready queue
//! of those that can go on.
//!
//! A [`Handler`] is a coroutine, which is the handler with its parameters and wherever it stands, and what
//! its handle, its wakers and the scheduler know of it. `Core::take_next` and `Core::get_ready_object` take from
//! here, and ask the observer when the queue is empty.
//!
//! Invariant: a handler stands in the ready queue at most once, and exactly when it is `Ready`; so the
//! queue is no longer than the table. The queue is first in, first out: a handler in it is resumed
//! before any that becomes ready later. One that is resumed without it was `Suspended` while it was empty.

use crate::Failure;
use crate::coroutine::{Coroutine, Stack};
use crate::fifo::Fifo;
use crate::table::{Key, Table};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Why a handler goes on: what it is resumed with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    Event,
    Deadline,
    /// It is to unwind.
    Cancelled,
}

pub(crate) type Finalizer = Box<dyn FnOnce(Result<(), &Failure>)>;

/// The finalizers that one handler may have.
pub(crate) const FINALIZERS_MAX: usize = 1024;

/// Why a finalizer was not taken; it is given back.
pub(crate) enum Refused {
    /// All have run.
    Late(Finalizer),
    /// There are [`FINALIZERS_MAX`].
    Full(Finalizer),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Ready,
    Running,
    Suspended,
    Ended,
}

/// Whether a stack may hold pages that it does not use.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Trim {
    /// It ran since the last sweep.
    Ran,
    /// It did not run since the last sweep, and was not trimmed.
    Due,
    Done,
}

/// A handler object.
pub(crate) struct Handler {
    /// Borrowed while it runs; empty after its end.
    coroutine: RefCell<Option<Coroutine>>,
    ready: Rc<Fifo<Rc<Handler>>>,
    key: Cell<Option<Key>>,
    // What a resumption sets together, side by side, and what a suspension does.
    trim: Cell<Trim>,
    state: Cell<State>,
    cause: Cell<Cause>,
    cancelled: Cell<bool>,
    /// `None` after they have run.
    finalizers: RefCell<Option<Vec<Finalizer>>>,
}

impl Handler {
    /// Returns `true` if it can be woken: it does not run, and does not go on for another reason.
    #[inline]
    pub(crate) fn is_suspended(&self) -> bool {
        self.state.get() == State::Suspended
    }

    /// The running handler suspends next, until it is woken, or resumed with an event.
    #[inline]
    pub(crate) fn suspends(&self) {
        debug_assert!(self.state.get() == State::Running, "it calls this itself");
        self.state.set(State::Suspended);
        self.cause.set(Cause::Event);
    }

    /// Makes a suspended handler ready.
    #[inline]
    pub(crate) fn wake(self: Rc<Handler>, cause: Cause) {
        debug_assert!(self.is_suspended(), "a handler stands in the ready queue once");
        self.make_ready(cause);
    }

    /// Makes the running handler ready again: it suspends only to let others go first.
    #[inline]
    pub(crate) fn requeue(self: Rc<Handler>) {
        debug_assert!(self.state.get() == State::Running, "it calls this itself");
        self.make_ready(Cause::Event);
    }

    #[inline]
    fn make_ready(self: Rc<Handler>, cause: Cause) {
        self.state.set(State::Ready);
        self.cause.set(cause);
        let ready = self.ready.clone();
        ready.push(self);
    }

    #[inline]
    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancelled.get()
    }

    /// Has it unwind from where it is suspended, or suspends next.
    pub(crate) fn cancel(self: &Rc<Handler>) {
        self.cancelled.set(true);
        self.cause.set(Cause::Cancelled);
        if self.is_suspended() {
            self.clone().wake(Cause::Cancelled);
        }
    }

    /// Runs it until it suspends or ends. Returns its stack if it has ended.
    #[inline(always)]
    pub(crate) fn resume(&self) -> Option<Stack> {
        self.state.set(State::Running);
        self.trim.set(Trim::Ran);
        let mut coroutine = self.coroutine.borrow_mut();
        let running = coroutine.as_mut().expect("what has ended is not ready");
        if running.resume(self.cause.get()) {
            return self.end(coroutine.take());
        }
        None
    }

    #[cold]
    fn end(&self, coroutine: Option<Coroutine>) -> Option<Stack> {
        self.state.set(State::Ended);
        coroutine.map(Coroutine::into_stack)
    }

    /// Adds a finalizer.
    pub(crate) fn push_finalizer(&self, finalizer: Finalizer) -> Result<(), Refused> {
        match &mut *self.finalizers.borrow_mut() {
            None => Err(Refused::Late(finalizer)),
            Some(finalizers) if finalizers.len() >= FINALIZERS_MAX => Err(Refused::Full(finalizer)),
            Some(finalizers) => {
                finalizers.push(finalizer);
                Ok(())
            }
        }
    }

    /// Takes the last finalizer out. After the first `None` no more are added.
    pub(crate) fn pop_finalizer(&self) -> Option<Finalizer> {
        let mut finalizers = self.finalizers.borrow_mut();
        let last = finalizers.as_mut().and_then(Vec::pop);
        if last.is_none() {
            *finalizers = None;
        }
        last
    }
}

pub(crate) struct Repository {
    handlers: RefCell<Table<Rc<Handler>>>,
    /// How many there are.
    len: Cell<usize>,
    ready: Rc<Fifo<Rc<Handler>>>,
}

impl Repository {
    pub(crate) fn new() -> Repository {
        Repository {
            handlers: RefCell::new(Table::new()),
            len: Cell::new(0),
            ready: Rc::new(Fifo::new()),
        }
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len.get()
    }

    pub(crate) fn handlers(&self) -> Vec<Rc<Handler>> {
        self.handlers.borrow().iter().cloned().collect()
    }

    #[inline]
    pub(crate) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Puts a handler that has not begun into the table and the ready queue. `begin` makes its coroutine.
    pub(crate) fn create_object(
        &self,
        begin: impl FnOnce(Rc<Handler>) -> Coroutine,
    ) -> Rc<Handler> {
        let handler = Rc::new(Handler {
            coroutine: RefCell::new(None),
            ready: self.ready.clone(),
            key: Cell::new(None),
            state: Cell::new(State::Ready),
            cause: Cell::new(Cause::Event),
            cancelled: Cell::new(false),
            trim: Cell::new(Trim::Ran),
            finalizers: RefCell::new(Some(Vec::new())),
        });
        handler.coroutine.replace(Some(begin(handler.clone())));
        handler.key.set(Some(self.handlers.borrow_mut().insert(handler.clone())));
        self.len.set(self.len.get() + 1);
        self.ready.push(handler.clone());
        handler
    }

    /// Takes the first handler of the ready queue out, to be resumed.
    #[inline]
    pub(crate) fn pop_ready(&self) -> Option<Rc<Handler>> {
        self.ready.pop()
    }

    /// Takes a handler that ended out of the table.
    pub(crate) fn remove(&self, handler: &Handler) {
        let key = handler.key.take().expect("a handler ends once");
        let removed = self.handlers.borrow_mut().remove(key);
        self.len.set(self.len.get() - 1);
        drop(removed);
    }

    /// Trims up to `most` stacks of handlers that have not run since the last sweep, or of all that
    /// are suspended if the scheduler `idles`. Returns whether there are some left to trim.
    pub(crate) fn sweep(&self, most: usize, idles: bool) -> bool {
        let (mut trimmed, mut left) = (0, false);
        for handler in self.handlers.borrow().iter() {
            if handler.state.get() != State::Suspended {
                continue;
            }
            match handler.trim.get() {
                Trim::Done => {}
                Trim::Ran if !idles => {
                    handler.trim.set(Trim::Due);
                    left = true;
                }
                _ if trimmed < most => {
                    if let Some(coroutine) = &mut *handler.coroutine.borrow_mut() {
                        coroutine.trim();
                    }
                    handler.trim.set(Trim::Done);
                    trimmed += 1;
                }
                _ => left = true,
            }
        }
        left
    }
}
