//! How events reach a handler: a source's [`Notifier`] puts them into a bounded mailbox, and
//! [`Events`] takes them out, suspending its coroutine while there are none.
//!
//! Invariant: under the lock of a mailbox events are moved, never dropped, cloned or compared.

use crate::core::{Core, Parked};
use crate::observer::{Signal, unwinding};
use crate::source::{EventSource, Registration};
use crate::table::Key;
use crate::wait_list::WaitList;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::rc::Rc;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use thiserror::Error;

/// What a descriptor is ready for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// It can be read, or has come to its end.
    pub readable: bool,
    /// It can be written, or will not take any more.
    pub writable: bool,
}

impl Ready {
    pub(crate) fn of(event: &mio::event::Event) -> Ready {
        let over = event.is_error();
        Ready {
            readable: event.is_readable() || event.is_read_closed() || over,
            writable: event.is_writable() || event.is_write_closed() || over,
        }
    }
}

/// Why an event was not taken; it is given back.
#[derive(Debug, Error)]
pub enum NotifyError<E> {
    /// The mailbox of the source is full.
    #[error("the mailbox of the source is full")]
    Full(E),
    /// Nobody listens to the source any more, or it has failed ([`Notifier::fail`]).
    #[error("nobody listens to the source any more, or it has failed")]
    Closed(E),
}

struct Mail<E> {
    queue: VecDeque<E>,
    capacity: usize,
    /// Those that may still put something in.
    notifiers: usize,
    /// Whether there is somebody to take it out.
    open: bool,
    /// Whether the source has failed: it takes nothing more, though notifiers are left.
    failed: bool,
    /// Why, until it was told.
    error: Option<io::Error>,
    /// Threads that wait for room.
    waiting: usize,
}

impl<E> Mail<E> {
    fn takes_more(&self) -> bool {
        self.open && !self.failed
    }

    fn is_full(&self) -> bool {
        self.queue.len() >= self.capacity
    }
}

struct Mailbox<E> {
    mail: Mutex<Mail<E>>,
    room: Condvar,
    signal: Arc<Signal>,
}

impl<E> Mailbox<E> {
    fn lock(&self) -> MutexGuard<'_, Mail<E>> {
        self.mail.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reports events of one source, from any thread if they are [`Send`]. The source ends when every
/// clone is dropped, or one of them reports that it failed.
pub struct Notifier<E> {
    mailbox: Arc<Mailbox<E>>,
}

impl<E> Notifier<E> {
    /// Reports an event, without waiting.
    ///
    /// # Errors
    /// If the mailbox is full, nobody listens any more, or the source has failed. The event is given
    /// back.
    pub fn notify(&self, event: E) -> Result<(), NotifyError<E>> {
        self.deliver(event)?;
        self.mailbox.signal.raise();
        Ok(())
    }

    /// Puts an event into the mailbox; the caller sees to it that the handler is woken.
    pub(crate) fn deliver(&self, event: E) -> Result<(), NotifyError<E>> {
        let mut mail = self.mailbox.lock();
        if !mail.takes_more() {
            return Err(NotifyError::Closed(event));
        }
        if mail.is_full() {
            return Err(NotifyError::Full(event));
        }
        mail.queue.push_back(event);
        Ok(())
    }

    /// Reports an event, blocking the thread while the mailbox is full. Returns `false` if nobody
    /// listens any more, or the source has failed.
    pub(crate) fn notify_blocking(&self, event: E) -> bool {
        let mut mail = self.mailbox.lock();
        while mail.takes_more() && mail.is_full() {
            mail.waiting += 1;
            mail = self.mailbox.room.wait(mail).unwrap_or_else(PoisonError::into_inner);
            mail.waiting -= 1;
        }
        if !mail.takes_more() {
            drop(mail);
            return false;
        }
        mail.queue.push_back(event);
        drop(mail);
        self.mailbox.signal.raise();
        true
    }

    /// Ends the source with an error, after the events that were reported before. What its other
    /// notifiers report from now on is given back to them; the first failure counts.
    pub fn fail(self, error: io::Error) {
        let mut mail = self.mailbox.lock();
        if !mail.takes_more() {
            drop(mail);
            return drop(error);
        }
        mail.failed = true;
        mail.error = Some(error);
        drop(mail);
        self.mailbox.room.notify_all();
        self.mailbox.signal.raise();
    }

    /// Returns `true` if an event would find room now.
    pub fn has_room(&self) -> bool {
        let mail = self.mailbox.lock();
        mail.takes_more() && !mail.is_full()
    }

    pub(crate) fn set_capacity(&self, capacity: usize) {
        self.mailbox.lock().capacity = capacity.max(1);
    }
}

impl<E> Clone for Notifier<E> {
    fn clone(&self) -> Self {
        self.mailbox.lock().notifiers += 1;
        Notifier { mailbox: self.mailbox.clone() }
    }
}

impl<E> Drop for Notifier<E> {
    fn drop(&mut self) {
        let mut mail = self.mailbox.lock();
        mail.notifiers -= 1;
        // If nobody listens, the observer has forgotten the source, and nobody is to be woken.
        let ended = mail.notifiers == 0 && mail.open;
        drop(mail);
        if ended {
            self.mailbox.signal.raise();
        }
    }
}

impl<E> fmt::Debug for Notifier<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Notifier").finish_non_exhaustive()
    }
}

/// The events of one source, as they come; made by [`listen`](crate::listen). Dropping it takes the
/// source out of the scheduler.
pub struct Events<E> {
    mailbox: Arc<Mailbox<E>>,
    waiting: Rc<WaitList>,
    core: Rc<Core>,
    key: Key,
}

impl<E: 'static> Events<E> {
    /// Registers a source, which is asked to begin.
    pub(crate) fn of<S>(core: &Rc<Core>, source: S, capacity: usize) -> io::Result<Events<E>>
    where
        S: EventSource<Event = E>,
    {
        let (key, signal, waiting) = core.observer.add_mailbox();
        let mail = Mail {
            queue: VecDeque::new(),
            capacity,
            notifiers: 1,
            open: true,
            failed: false,
            error: None,
            waiting: 0,
        };
        let mailbox = Arc::new(Mailbox { mail: Mutex::new(mail), room: Condvar::new(), signal });
        let notifier = Notifier { mailbox: mailbox.clone() };
        let events = Events { mailbox, waiting, core: core.clone(), key };
        source.attach(Registration::new(core, key, notifier))?;
        Ok(events)
    }
}

impl<E> Events<E> {
    /// Returns the next event; suspends the coroutine until there is one. `None` after the last.
    ///
    /// # Errors
    /// If the source failed, once; it has ended then. If the coroutine is unwinding and there is no
    /// event.
    ///
    /// # Panics
    /// If there is no event and this is not a coroutine of the scheduler that listens to the source.
    pub fn next(&self) -> io::Result<Option<E>> {
        self.next_before(None)
    }

    /// As [`Events::next`], but waits no longer than `limit`.
    ///
    /// # Errors
    /// As [`Events::next`], and [`TimedOut`](io::ErrorKind::TimedOut) if the limit has passed.
    ///
    /// # Panics
    /// As [`Events::next`].
    pub fn next_timeout(&self, limit: Duration) -> io::Result<Option<E>> {
        self.next_before(self.core.deadline(Some(limit)))
    }

    fn next_before(&self, deadline: Option<Instant>) -> io::Result<Option<E>> {
        let here = self.core.runs_here();
        if here {
            self.core.spend();
        }
        loop {
            if let Some(taken) = self.take() {
                return taken;
            }
            assert!(here, "`Events::next` would wait outside of a coroutine of its scheduler");
            match self.waiting.park(&self.core, deadline) {
                Parked::Woken => {}
                Parked::TimedOut => {
                    return self.take().unwrap_or_else(|| Err(io::ErrorKind::TimedOut.into()));
                }
                Parked::Unwinding => return Err(unwinding()),
            }
        }
    }

    /// Takes what is there: an event, the source's error, or its end. `None` if there is only to wait.
    pub(crate) fn take(&self) -> Option<io::Result<Option<E>>> {
        let mut mail = self.mailbox.lock();
        if let Some(event) = mail.queue.pop_front() {
            if mail.waiting > 0 {
                self.mailbox.room.notify_one();
            }
            return Some(Ok(Some(event)));
        }
        if let Some(error) = mail.error.take() {
            return Some(Err(error));
        }
        (mail.failed || mail.notifiers == 0).then_some(Ok(None))
    }

    pub(crate) fn waiting(&self) -> &WaitList {
        &self.waiting
    }
}

impl<E> Drop for Events<E> {
    fn drop(&mut self) {
        let mut mail = self.mailbox.lock();
        mail.open = false;
        let left = (std::mem::take(&mut mail.queue), mail.error.take());
        drop(mail);
        self.mailbox.room.notify_all();
        self.core.observer.remove(self.key);
        // Dropped under no lock: it is what users made.
        drop(left);
    }
}

impl<E> fmt::Debug for Events<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Scheduler, listen, sources};

    #[test]
    fn notifiers_dropped_after_their_handler_leave_nothing_in_the_inbox() {
        let left = Scheduler::new().unwrap().block_on(|| {
            for _ in 0..100 {
                let mut kept = None;
                let source = sources::callback(|notifier: Notifier<()>| {
                    kept = Some(notifier);
                    Ok(())
                });
                drop(listen(source).unwrap());
                drop(kept);
            }
            Core::current().unwrap().observer.inbox().len()
        });
        assert_eq!(left.unwrap(), 0);
    }
}
