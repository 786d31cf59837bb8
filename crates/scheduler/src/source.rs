//! Event sources: where events come from, behind one trait.
//!
//! A source is registered once, and says in [`EventSource::attach`] how it reports, through the
//! [`Registration`] it is handed. The kinds are the document's, and each has a constructor here:
//!
//! | kind | constructor | how it reports |
//! |---|---|---|
//! | asynchronous | [`callback`] | calls a [`Notifier`], on any thread |
//! | synchronous, with a time limit | [`polled`] | is asked in turn, with a bounded wait |
//! | synchronous, without limit | [`blocking`] | has a thread of its own, which may block |
//! | timed | [`after`], [`every`] | the scheduler's timers |
//! | descriptors | [`readable`], [`writable`] | the operating system |

use crate::core::Core;
use crate::events::{Events, Ready};
use crate::mailbox::Mailbox;
use crate::notifier::{Notified, Notifier};
use crate::observer::Reported;
use mio::Interest;
use std::cell::Cell;
use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::thread;
use std::time::{Duration, Instant};

/// A source of events.
///
/// ```
/// use comporta_scheduler::{EventSource, Registration, Scheduler, listen};
/// use std::io;
///
/// /// Counts down, on a thread of its own.
/// struct Countdown(u32);
///
/// impl EventSource for Countdown {
///     type Event = u32;
///     fn attach(mut self, to: Registration<'_, u32>) -> io::Result<()> {
///         to.thread(move || {
///             self.0 = self.0.saturating_sub(1);
///             Ok((self.0 > 0).then_some(self.0))
///         })
///     }
/// }
///
/// let mut scheduler = Scheduler::new()?;
/// let sum = scheduler.block_on(|| -> io::Result<u32> {
///     let events = listen(Countdown(4))?;
///     let mut sum = 0;
///     while let Some(n) = events.next()? {
///         sum += n;
///     }
///     Ok(sum)
/// });
/// assert_eq!(sum.unwrap()?, 3 + 2 + 1);
/// # Ok::<(), io::Error>(())
/// ```
pub trait EventSource {
    /// What an event carries.
    type Event: 'static;

    /// Starts to report. Called once, when the source is registered.
    ///
    /// # Errors
    /// Returns an error if it cannot start; it is not registered then.
    fn attach(self, to: Registration<'_, Self::Event>) -> io::Result<()>;
}

/// A source that is being registered: the ways in which it may report.
///
/// If the registration is dropped without using any of them, the source has ended.
pub struct Registration<'a, E> {
    core: &'a Rc<Core>,
    capacity: usize,
    /// What the registration comes to.
    events: &'a Cell<Option<Events<E>>>,
}

impl<'a, E: 'static> Registration<'a, E> {
    pub(crate) fn new(
        core: &'a Rc<Core>,
        capacity: usize,
        events: &'a Cell<Option<Events<E>>>,
    ) -> Self {
        Registration { core, capacity, events }
    }

    /// Bounds the events that are kept until the handler takes them (default 1,024, at least 1).
    #[must_use]
    pub fn capacity(self, events: usize) -> Self {
        Registration { capacity: events.max(1), ..self }
    }

    /// For a source that calls back: returns the notifier to call.
    pub fn notifier(self) -> Notifier<E> {
        let (key, signal, waiting) = self.core.observer.add_notified();
        let (notifier, notified) = Notified::new(self.capacity, signal, waiting);
        self.events.set(Some(Events::shared(self.core, key, notified)));
        notifier
    }

    /// For a source that can be waited for with a time limit: `poll` waits up to the time it is given
    /// and returns an event, or `None` if there was none. It is called on the scheduler's thread, in
    /// turn with all others, and not while the mailbox is full. After an error or a panic it is not
    /// called again; the error is reported.
    pub fn poll(self, mut poll: impl FnMut(Duration) -> io::Result<Option<E>> + 'static) {
        let mailbox = Mailbox::new(self.capacity);
        let to = mailbox.clone();
        let ask = move |wait| {
            if !to.has_room() {
                return Reported::Nothing;
            }
            match guarded(|| poll(wait)) {
                Ok(None) => Reported::Nothing,
                Ok(Some(event)) => {
                    let taken = to.push(event);
                    debug_assert!(taken.is_ok(), "there was room, and only this puts anything in");
                    Reported::Event
                }
                Err(error) => {
                    to.end(Some(error));
                    Reported::Over
                }
            }
        };
        let key = self.core.observer.add_polled(ask);
        self.events.set(Some(Events::here(self.core, key, mailbox)));
    }

    /// For a source that blocks without a limit: a separate thread calls `wait` until it returns `None` or an
    /// error. The thread blocks while the mailbox is full. When the source has no listener any more, the thread
    /// ends after its current call.
    ///
    /// # Errors
    /// Returns an error if there are too many such threads
    /// ([`Builder::source_threads_max`](crate::Builder::source_threads_max)), or the system cannot start one.
    pub fn thread(
        self,
        mut wait: impl FnMut() -> io::Result<Option<E>> + Send + 'static,
    ) -> io::Result<()>
    where
        E: Send,
    {
        let place = self.core.source_threads().take()?;
        let notifier = self.notifier();
        let work = move || {
            let _place = place;
            loop {
                match guarded(&mut wait) {
                    Ok(Some(event)) => {
                        if !notifier.notify_blocking(event) {
                            return;
                        }
                    }
                    Ok(None) => return,
                    Err(error) => return notifier.fail(error),
                }
            }
        };
        thread::Builder::new().name("comporta-source".to_owned()).spawn(work).map(drop)
    }
}

impl Registration<'_, Instant> {
    /// For a timer: reports at `first`, and then every `period` if there is one. Periods that passed unseen are
    /// reported once, however many they are.
    pub fn timer(self, first: Instant, period: Option<Duration>) {
        let mailbox = Mailbox::new(1);
        let key = self.core.observer.add_timer(mailbox.clone(), first, period);
        self.events.set(Some(Events::here(self.core, key, mailbox)));
    }

    /// Returns the time of the scheduler.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.core.observer.now()
    }
}

impl Registration<'_, Ready> {
    /// For a descriptor: reports when it becomes readable, or writable, and not again before it has ceased to
    /// be so. Read or write it until it would block.
    ///
    /// # Errors
    /// Returns an error if the system does not report on it (a regular file is always ready).
    pub fn descriptor(self, descriptor: OwnedFd, readable: bool) -> io::Result<()> {
        let interest = if readable { Interest::READABLE } else { Interest::WRITABLE };
        let mailbox = Mailbox::new(1);
        let key = self.core.observer.add_descriptor(mailbox.clone(), descriptor, interest)?;
        self.events.set(Some(Events::here(self.core, key, mailbox)));
        Ok(())
    }
}

impl<E> fmt::Debug for Registration<'_, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registration").finish_non_exhaustive()
    }
}

/// Calls user code; a panic becomes an error.
fn guarded<T>(call: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|payload| {
        let message = crate::failure::panic_message(&*payload).to_owned();
        crate::failure::discard(payload);
        Err(io::Error::other(format!("the source panicked: {message}")))
    })
}

/// A source made of a function that attaches it.
struct Attach<F, E>(F, PhantomData<fn() -> E>);

impl<E, F> EventSource for Attach<F, E>
where
    E: 'static,
    F: FnOnce(Registration<'_, E>) -> io::Result<()>,
{
    type Event = E;
    fn attach(self, to: Registration<'_, E>) -> io::Result<()> {
        (self.0)(to)
    }
}

fn source<E: 'static>(
    attach: impl FnOnce(Registration<'_, E>) -> io::Result<()>,
) -> impl EventSource<Event = E> {
    Attach(attach, PhantomData)
}

/// Returns an asynchronous source: `subscribe` receives a [`Notifier`], and arranges for it to be called.
pub fn callback<E: 'static>(
    subscribe: impl FnOnce(Notifier<E>) -> io::Result<()>,
) -> impl EventSource<Event = E> {
    source(|to: Registration<'_, E>| subscribe(to.notifier()))
}

/// Returns a synchronous source with a time limit: see [`Registration::poll`].
pub fn polled<E: 'static>(
    poll: impl FnMut(Duration) -> io::Result<Option<E>> + 'static,
) -> impl EventSource<Event = E> {
    source(|to: Registration<'_, E>| {
        to.poll(poll);
        Ok(())
    })
}

/// Returns a synchronous source without a time limit: see [`Registration::thread`].
pub fn blocking<E: Send + 'static>(
    wait: impl FnMut() -> io::Result<Option<E>> + Send + 'static,
) -> impl EventSource<Event = E> {
    source(|to: Registration<'_, E>| to.thread(wait))
}

/// Returns a source that reports once, after `delay`.
pub fn after(delay: Duration) -> impl EventSource<Event = Instant> {
    timer(delay, None)
}

/// Returns a source that reports every `period`, first after one period.
pub fn every(period: Duration) -> impl EventSource<Event = Instant> {
    timer(period, Some(period))
}

fn timer(delay: Duration, period: Option<Duration>) -> impl EventSource<Event = Instant> {
    source(move |to: Registration<'_, Instant>| {
        // So far away that the clock cannot say it, it never comes: but the source does not end.
        let far = Duration::from_secs(u32::MAX.into());
        let first = to.now().checked_add(delay).unwrap_or_else(|| to.now() + far);
        to.timer(first, period);
        Ok(())
    })
}

/// Returns a source that reports when a descriptor becomes readable: see [`Registration::descriptor`].
pub fn readable(descriptor: impl Into<OwnedFd>) -> impl EventSource<Event = Ready> {
    descriptor_source(descriptor.into(), true)
}

/// Returns a source that reports when a descriptor becomes writable: see [`Registration::descriptor`].
pub fn writable(descriptor: impl Into<OwnedFd>) -> impl EventSource<Event = Ready> {
    descriptor_source(descriptor.into(), false)
}

fn descriptor_source(descriptor: OwnedFd, readable: bool) -> impl EventSource<Event = Ready> {
    source(move |to: Registration<'_, Ready>| to.descriptor(descriptor, readable))
}
