//! How a coroutine takes the events of a source: [`Events`], which suspends it while there are none.
//! They wait in a `mailbox` if they are found on this thread, and behind the lock of a `notifier` if not.

use crate::core::{Core, Parked};
use crate::mailbox::Mailbox;
use crate::notifier::Notified;
use crate::observer::unwinding;
use crate::source::{EventSource, Registration};
use crate::table::Key;
use crate::wait_list::WaitList;
use std::cell::Cell;
use std::fmt;
use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// The readiness of a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// It can be read, or is at its end.
    pub readable: bool,
    /// It can be written, or is closed for writing.
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

/// Where the events of a source wait.
enum Waiting<E> {
    Here(Rc<Mailbox<E>>),
    Shared(Notified<E>),
}

/// The events of one source, made by [`listen`](crate::listen). Dropping it removes the source from the
/// scheduler.
pub struct Events<E> {
    waiting: Waiting<E>,
    core: Rc<Core>,
    /// `None` if the source ended before it began.
    key: Option<Key>,
}

impl<E: 'static> Events<E> {
    /// Registers a source, which is asked to begin.
    pub(crate) fn of<S>(core: &Rc<Core>, source: S, capacity: usize) -> io::Result<Events<E>>
    where
        S: EventSource<Event = E>,
    {
        let registered = Cell::new(None);
        source.attach(Registration::new(core, capacity, &registered))?;
        Ok(registered.take().unwrap_or_else(|| Events::ended(core)))
    }
}

impl<E> Events<E> {
    /// Of a source whose events are found on this thread.
    pub(crate) fn here(core: &Rc<Core>, key: Key, mailbox: Rc<Mailbox<E>>) -> Events<E> {
        Events { waiting: Waiting::Here(mailbox), core: core.clone(), key: Some(key) }
    }

    /// Of a source that has notifiers.
    pub(crate) fn shared(core: &Rc<Core>, key: Key, notified: Notified<E>) -> Events<E> {
        Events { waiting: Waiting::Shared(notified), core: core.clone(), key: Some(key) }
    }

    fn ended(core: &Rc<Core>) -> Events<E> {
        let mailbox = Mailbox::new(1);
        mailbox.end(None);
        Events { waiting: Waiting::Here(mailbox), core: core.clone(), key: None }
    }

    /// Returns the next event, or `None` after the last. Suspends the coroutine until there is one.
    ///
    /// # Errors
    /// Returns an error once if the source failed, which has ended then; and if the coroutine is unwinding and
    /// there is no event.
    ///
    /// # Panics
    /// Panics if there is no event and this is not a coroutine of the scheduler that listens to the source.
    #[inline]
    pub fn next(&self) -> io::Result<Option<E>> {
        self.next_before(None)
    }

    /// Like [`Events::next`], but waits no longer than `limit`.
    ///
    /// # Errors
    /// Like [`Events::next`], and [`TimedOut`](io::ErrorKind::TimedOut) if the limit has passed.
    ///
    /// # Panics
    /// Like [`Events::next`].
    pub fn next_timeout(&self, limit: Duration) -> io::Result<Option<E>> {
        self.next_before(self.core.deadline(Some(limit)))
    }

    #[inline]
    fn next_before(&self, deadline: Option<Instant>) -> io::Result<Option<E>> {
        match &self.waiting {
            Waiting::Here(mailbox) => {
                let is_empty = mailbox.is_empty();
                self.next_of(is_empty, mailbox.waiting(), deadline, || mailbox.take())
            }
            // Whether it is empty is seen by taking from it.
            Waiting::Shared(notified) => {
                self.next_of(false, notified.waiting(), deadline, || notified.take())
            }
        }
    }

    /// What `take` returns, as soon as it returns something. Inlined, so that each kind has code of its own.
    #[inline(always)]
    fn next_of(
        &self,
        is_empty: bool,
        waiting: &WaitList,
        deadline: Option<Instant>,
        take: impl Fn() -> Option<io::Result<Option<E>>>,
    ) -> io::Result<Option<E>> {
        if !is_empty {
            if self.core.runs_here() {
                self.core.spend();
            }
            if let Some(taken) = take() {
                return taken;
            }
        }
        loop {
            let parked = waiting.park(&self.core, deadline);
            if parked == Parked::Unwinding {
                return Err(unwinding());
            }
            if let Some(taken) = take() {
                return taken;
            }
            if parked == Parked::TimedOut {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
    }

    /// Takes what is there: an event, the source's error, or its end. `None` if there is only to wait.
    #[inline]
    pub(crate) fn take(&self) -> Option<io::Result<Option<E>>> {
        match &self.waiting {
            Waiting::Here(mailbox) => mailbox.take(),
            Waiting::Shared(notified) => notified.take(),
        }
    }

    #[inline]
    pub(crate) fn waiting(&self) -> &WaitList {
        match &self.waiting {
            Waiting::Here(mailbox) => mailbox.waiting(),
            Waiting::Shared(notified) => notified.waiting(),
        }
    }
}

impl<E> Drop for Events<E> {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            self.core.observer.remove(key);
        }
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
    use crate::{Notifier, Scheduler, listen, sources};

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
