//! The handler repository (the document's *Routine Pool*): a table from identifiers to handler
//! objects, and the ready queue of those that can go on.
//!
//! A handler object is a coroutine, which is the handler with its parameters and wherever it stands,
//! and its [`Control`], which others may hold too. `Core::get_ready_object` takes from here, and asks
//! the observer when the queue is empty.
//!
//! Invariant: an object stands in the ready queue at most once, and exactly when it is `Ready`; so the
//! queue is no longer than the table. The queue is first in, first out: whoever is in it is resumed
//! before whatever comes to be ready later.

use crate::Failure;
use crate::coroutine::Coroutine;
use crate::table::{Key, Table};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

/// Wakes a suspended handler. Whoever keeps one forgets it when the handler goes on: a list of those
/// that wait, a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Waker(Key);

/// What ran out or came first, for the handler that is resumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    Event,
    Deadline,
}

pub(crate) type Finalizer = Box<dyn FnOnce(Result<(), &Failure>)>;

/// What a handler, its handle and the scheduler share.
pub(crate) struct Control {
    key: Cell<Option<Key>>,
    cause: Cell<Cause>,
    cancelled: Cell<bool>,
    /// `None` after they have run.
    finalizers: RefCell<Option<Vec<Finalizer>>>,
}

impl Control {
    pub(crate) fn new() -> Rc<Control> {
        Rc::new(Control {
            key: Cell::new(None),
            cause: Cell::new(Cause::Event),
            cancelled: Cell::new(false),
            finalizers: RefCell::new(Some(Vec::new())),
        })
    }

    /// Wakes it from the suspension that comes next.
    #[inline]
    pub(crate) fn waker(&self) -> Waker {
        Waker(self.key.get().expect("a handler runs only after it was put in the table"))
    }

    pub(crate) fn key(&self) -> Option<Key> {
        self.key.get()
    }

    #[inline]
    pub(crate) fn cause(&self) -> Cause {
        self.cause.get()
    }

    #[inline]
    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancelled.get()
    }

    pub(crate) fn cancel(&self) {
        self.cancelled.set(true);
    }

    /// Adds a finalizer; gives it back if all have run.
    pub(crate) fn push_finalizer(&self, finalizer: Finalizer) -> Result<(), Finalizer> {
        match &mut *self.finalizers.borrow_mut() {
            Some(finalizers) => {
                finalizers.push(finalizer);
                Ok(())
            }
            None => Err(finalizer),
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

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Ready,
    Running,
    Suspended,
}

pub(crate) struct HandlerObject {
    /// Not here while it runs.
    coroutine: Option<Coroutine>,
    control: Rc<Control>,
    state: State,
    trim: Trim,
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

/// A handler on its way to be resumed.
pub(crate) struct ReadyObject {
    pub(crate) key: Key,
    pub(crate) coroutine: Coroutine,
    pub(crate) control: Rc<Control>,
}

pub(crate) struct Repository {
    objects: Table<HandlerObject>,
    ready: VecDeque<Key>,
}

impl Repository {
    pub(crate) fn new() -> Repository {
        Repository { objects: Table::new(), ready: VecDeque::new() }
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.objects.len()
    }

    pub(crate) fn keys(&self) -> Vec<Key> {
        self.objects.keys().collect()
    }

    #[inline]
    pub(crate) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Puts a handler that has not begun into the table and the ready queue.
    pub(crate) fn create_object(&mut self, coroutine: Coroutine, control: Rc<Control>) {
        let object = HandlerObject {
            coroutine: Some(coroutine),
            control: control.clone(),
            state: State::Ready,
            trim: Trim::Ran,
        };
        let key = self.objects.insert(object);
        control.key.set(Some(key));
        self.ready.push_back(key);
    }

    /// Takes the first handler of the ready queue out, to be resumed.
    #[inline]
    pub(crate) fn pop_ready(&mut self) -> Option<ReadyObject> {
        let key = self.ready.pop_front()?;
        let object = self.objects.get_mut(key).expect("what ended stands in no queue");
        object.state = State::Running;
        object.trim = Trim::Ran;
        let coroutine = object.coroutine.take().expect("a ready handler does not run");
        Some(ReadyObject { key, coroutine, control: object.control.clone() })
    }

    /// Puts a handler that suspended back. It is ready if it was woken, or yielded, meanwhile.
    #[inline]
    pub(crate) fn put_back(&mut self, key: Key, coroutine: Coroutine) {
        let object = self.objects.get_mut(key).expect("only `remove` takes it out of the table");
        object.coroutine = Some(coroutine);
        if object.state == State::Running {
            object.state = State::Suspended;
        }
    }

    /// Takes a handler that ended out of the table. To be dropped when nothing is borrowed: what it
    /// holds may be the user's.
    pub(crate) fn remove(&mut self, key: Key) -> Option<HandlerObject> {
        let object = self.objects.remove(key)?;
        object.control.key.set(None);
        Some(object)
    }

    /// Makes the running handler ready again: it suspends only to let others go first.
    pub(crate) fn requeue(&mut self, Waker(key): Waker) {
        let object = self.objects.get_mut(key).expect("it runs");
        if object.state == State::Running {
            object.state = State::Ready;
            self.ready.push_back(key);
        }
    }

    /// Makes a suspended handler ready. Returns `false` if it was woken already.
    #[inline]
    pub(crate) fn wake(&mut self, Waker(key): Waker, cause: Cause) -> bool {
        match self.objects.get_mut(key) {
            Some(object) if object.state == State::Suspended => {
                object.state = State::Ready;
                object.control.cause.set(cause);
                self.ready.push_back(key);
                true
            }
            _ => false,
        }
    }

    /// Wakes a handler whatever it waits for; one that runs or is ready needs no waking.
    pub(crate) fn interrupt(&mut self, key: Key) {
        self.wake(Waker(key), Cause::Event);
    }

    pub(crate) fn control(&self, key: Key) -> Option<&Rc<Control>> {
        self.objects.get(key).map(|object| &object.control)
    }

    /// Trims up to `most` stacks of handlers that have not run since the last sweep, or of all that
    /// are suspended if the scheduler `idles`. Returns whether there are some left to trim.
    pub(crate) fn sweep(&mut self, most: usize, idles: bool) -> bool {
        let (mut trimmed, mut left) = (0, false);
        for object in self.objects.iter_mut().filter(|object| object.state == State::Suspended) {
            match (object.trim, &mut object.coroutine) {
                (Trim::Done, _) | (_, None) => {}
                (Trim::Ran, _) if !idles => {
                    object.trim = Trim::Due;
                    left = true;
                }
                (_, Some(coroutine)) if trimmed < most => {
                    coroutine.trim();
                    object.trim = Trim::Done;
                    trimmed += 1;
                }
                _ => left = true,
            }
        }
        left
    }
}
