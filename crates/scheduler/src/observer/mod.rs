//! The event observer: stands between the handlers and whatever events come from, and waits for all
//! of them at once.
//!
//! [`Observer::wait_for_events`] asks its demultiplexers one after the other, each with a bounded wait,
//! and makes the handlers ready that waited for what they report:
//! 1. `inbox`      callbacks, on any thread
//! 2. `timers`     what is due
//! 3. `readiness`  sockets and descriptors, by way of `system`; the loop sleeps here
//! 4. `polled`     synchronous sources with a time limit, one after the other
//!
//! A synchronous source without a time limit has a thread of its own and reports through the inbox.
//! Each file registers its own kind of source in the table of sources here, and reports its events.
//! Invariant: nothing is borrowed while a polled source runs, which is user code.

mod inbox;
mod timers;
mod readiness;
mod system;
mod polled;

pub(crate) use inbox::{Inbox, Signal};
pub(crate) use polled::Reported;
pub(crate) use readiness::{Direction, Readiness, unwinding};

use crate::clock::Clock;
use crate::repository::Handler;
use crate::table::{Key, Table};
use inbox::Notified;
use polled::Polled;
use readiness::Descriptor;
use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use system::OperatingSystem;
use timers::{Timer, Timers};

/// No wait.
const NONE: Option<Duration> = Some(Duration::ZERO);

/// A registered source.
enum Source {
    Notified(Notified),
    Timer(Timer),
    Socket(Rc<Readiness>),
    Descriptor(Descriptor),
    Polled(Polled),
}

/// The sources, and the operating system, with which some of them are registered.
struct Sources {
    table: Table<Source>,
    system: OperatingSystem,
}

pub(crate) struct Observer {
    clock: Clock,
    /// The longest wait in one demultiplexer while there are several.
    wait_max: Duration,
    sources: RefCell<Sources>,
    inbox: Arc<Inbox>,
    /// Where the inbox is emptied to.
    signalled: RefCell<Vec<Key>>,
    timers: RefCell<Timers>,
    polled: RefCell<Vec<Key>>,
    /// Timers, polled sources, and one for a clock that is virtual: if there are none, the system is all that
    /// is waited for.
    others: Cell<usize>,
}

impl Observer {
    pub(crate) fn new(clock: Clock, wait_max: Duration) -> io::Result<Observer> {
        let system = OperatingSystem::new()?;
        let others = Cell::new(usize::from(clock.is_virtual()));
        let inbox = Inbox::new(system.waker()?);
        Ok(Observer {
            clock,
            wait_max,
            sources: RefCell::new(Sources { table: Table::new(), system }),
            inbox,
            signalled: RefCell::new(Vec::new()),
            timers: RefCell::new(Timers::default()),
            polled: RefCell::new(Vec::new()),
            others,
        })
    }

    #[inline]
    pub(crate) fn now(&self) -> Instant {
        self.clock.now()
    }

    #[inline]
    pub(crate) fn inbox(&self) -> &Arc<Inbox> {
        &self.inbox
    }

    /// Asks every demultiplexer once, and waits up to `limit` (`None`: without limit) if none has
    /// anything to report. Handlers that wait for a source, or whose time is over, are made ready. May
    /// return early with nothing. Returns whether it waited all of `limit` in vain.
    pub(crate) fn wait_for_events(&self, limit: Option<Duration>) -> io::Result<bool> {
        // Mostly there is only the system to ask.
        if self.others.get() == 0 && self.inbox.may_sleep() {
            return self.ask_system(limit).map(|found| !found);
        }
        self.ask_all(limit)
    }

    /// The same on the shortest way, while no handler is ready: if there is only the system to ask, and it soon reports
    /// one event for which one handler waits, returns that handler, to be resumed at once: it is the first. Otherwise
    /// handlers are made ready, or the caller is to ask again.
    #[inline(always)]
    pub(crate) fn wait_for_one(&self) -> Option<Rc<Handler>> {
        if self.others.get() > 0 || !self.inbox.may_sleep() {
            return None;
        }
        self.ask_system_for_one()
    }

    /// Where more than one of them can be waited for, none is before all were asked.
    #[cold]
    fn ask_all(&self, limit: Option<Duration>) -> io::Result<bool> {
        if self.clock.is_virtual() || self.has_polled() {
            let idle = self.round(NONE)?;
            if !idle || limit == NONE {
                return Ok(idle);
            }
        }
        if self.clock.is_virtual() { self.jump(limit) } else { self.round(limit) }
    }

    /// Asks every demultiplexer once, one after the other; waits only as long as nothing was found.
    /// Returns whether it waited all of `limit` and found nothing.
    fn round(&self, limit: Option<Duration>) -> io::Result<bool> {
        let mut found = self.empty_inbox();
        found |= self.expire();
        let end =
            limit.filter(|_| self.has_polled()).and_then(|limit| self.now().checked_add(limit));
        let mut wait = if found { NONE } else { self.wait(limit) };
        if wait != NONE && !self.inbox.may_sleep() {
            wait = NONE;
        }
        found |= self.ask_system(wait)?;
        found |= self.empty_inbox();
        found |= self.ask_polled(found || limit == NONE, end);
        found |= self.expire();
        Ok(!found && wait == limit)
    }

    /// How long the operating system may be waited for.
    fn wait(&self, limit: Option<Duration>) -> Option<Duration> {
        if limit == NONE {
            return NONE;
        }
        let next = self.timers.borrow().next_at();
        let to_next = next.map(|at| at.saturating_duration_since(self.now()));
        let in_turn = self.has_polled().then_some(self.wait_max);
        [limit, to_next, in_turn].into_iter().flatten().min()
    }

    /// Nothing is ready: virtual time goes on, to the next timer or by the limit. Without either there
    /// is only to wait.
    fn jump(&self, limit: Option<Duration>) -> io::Result<bool> {
        let next = self.timers.borrow().next_at();
        let end = limit.and_then(|limit| self.now().checked_add(limit));
        match (next, end) {
            (Some(at), _) if end.is_none_or(|end| at <= end) => {
                self.clock.jump_to(at);
                self.expire();
                Ok(false)
            }
            (_, Some(end)) => {
                self.clock.jump_to(end);
                Ok(true)
            }
            (_, None) => self.round(None).map(|_| false),
        }
    }

    /// Forgets a source.
    pub(crate) fn remove(&self, key: Key) {
        let source = self.sources.borrow_mut().table.remove(key);
        match &source {
            Some(Source::Timer(timer)) => self.cancel_timer(timer.key()),
            Some(Source::Descriptor(descriptor)) => self.forget_descriptor(descriptor),
            Some(Source::Polled(_)) => self.forget_polled(key),
            Some(Source::Notified(_) | Source::Socket(_)) | None => {}
        }
        // Dropped here, outside of every borrow: it may hold user code.
        drop(source);
    }
}
