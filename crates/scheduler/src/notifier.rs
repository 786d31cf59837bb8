//! How events are reported from anywhere: a [`Notifier`] puts them into a bounded mailbox behind a lock, and
//! raises a signal in the inbox of the scheduler, which wakes the handler. [`Events`](crate::Events) takes them out.
//!
//! Invariant: under the lock of a mailbox events are moved, never dropped, cloned or compared.

use crate::failure::discard;
use crate::observer::Signal;
use crate::sync::{Condvar, Mutex, MutexGuard};
use crate::wait_list::WaitList;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::rc::Rc;
use std::sync::{Arc, PoisonError};
use thiserror::Error;

/// The reason why an event was not taken, with the event.
#[derive(Debug, Error)]
pub enum NotifyError<E> {
    /// The mailbox of the source is full.
    #[error("the mailbox of the source is full")]
    Full(E),
    /// The source has no listener any more, or it has failed ([`Notifier::fail`]).
    #[error("the source is not listened to any more, or it has failed")]
    Closed(E),
}

struct Mail<E> {
    queue: VecDeque<E>,
    capacity: usize,
    /// Those that may still put something in.
    notifiers: usize,
    /// Whether the events are still listened to.
    open: bool,
    /// Whether the source has failed: it takes nothing more, though notifiers are left.
    failed: bool,
    /// The error, until it was taken.
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

struct Shared<E> {
    mail: Mutex<Mail<E>>,
    room: Condvar,
    signal: Arc<Signal>,
}

impl<E> Shared<E> {
    fn lock(&self) -> MutexGuard<'_, Mail<E>> {
        self.mail.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reports events of one source, from any thread if they are [`Send`]. The source ends when every
/// clone is dropped, or one of them reports that it failed.
pub struct Notifier<E> {
    mailbox: Arc<Shared<E>>,
}

impl<E> Notifier<E> {
    /// Reports an event, without waiting.
    ///
    /// # Errors
    /// Returns the event if the mailbox is full, or if the source has failed or has no listener any more.
    pub fn notify(&self, event: E) -> Result<(), NotifyError<E>> {
        let mut mail = self.mailbox.lock();
        if !mail.takes_more() {
            return Err(NotifyError::Closed(event));
        }
        if mail.is_full() {
            return Err(NotifyError::Full(event));
        }
        mail.queue.push_back(event);
        drop(mail);
        self.mailbox.signal.raise();
        Ok(())
    }

    /// Reports an event, blocking the thread while the mailbox is full. Returns `false` if the
    /// source has failed or is not listened to any more.
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

    /// Ends the source with an error, after the events that were reported before. Events that other notifiers
    /// report from now on are returned to them; the first failure counts.
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
        // If it is not listened to, the observer has forgotten it, and there is no handler to wake.
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

/// The other end of a source's notifiers: what its events are taken out of.
pub(crate) struct Notified<E> {
    mailbox: Arc<Shared<E>>,
    waiting: Rc<WaitList>,
}

impl<E> Notified<E> {
    /// The first notifier of a source, and what takes its events.
    pub(crate) fn new(
        capacity: usize,
        signal: Arc<Signal>,
        waiting: Rc<WaitList>,
    ) -> (Notifier<E>, Notified<E>) {
        let mail = Mail {
            queue: VecDeque::new(),
            capacity,
            notifiers: 1,
            open: true,
            failed: false,
            error: None,
            waiting: 0,
        };
        let mailbox = Arc::new(Shared { mail: Mutex::new(mail), room: Condvar::new(), signal });
        (Notifier { mailbox: mailbox.clone() }, Notified { mailbox, waiting })
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

impl<E> Drop for Notified<E> {
    fn drop(&mut self) {
        let mut mail = self.mailbox.lock();
        mail.open = false;
        let (left, error) = (std::mem::take(&mut mail.queue), mail.error.take());
        drop(mail);
        self.mailbox.room.notify_all();
        // Under no lock, and one by one: the handler may be unwinding, and a `Drop` that panics would abort the process.
        left.into_iter().for_each(discard);
        discard(error);
    }
}
