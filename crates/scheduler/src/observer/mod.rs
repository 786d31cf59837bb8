//! The event observer: stands between the handlers and whatever events come from, and waits for all
//! of them at once.
//!
//! [`Observer::wait_for_events`] asks its demultiplexers one after the other, each with a bounded wait,
//! and makes the handlers ready that waited for what they report:
//! 1. `inbox`      callbacks, on any thread
//! 2. `timers`     what is due
//! 3. `readiness`  sockets and descriptors; the loop sleeps here
//! 4. `polled`     synchronous sources with a time limit, one after the other
//!
//! A synchronous source without a time limit has a thread of its own and reports through the inbox.
//! Invariant: nothing is borrowed while a polled source runs, which is user code.

mod inbox;
mod polled;
mod readiness;
mod timers;

pub(crate) use inbox::{Inbox, Signal};
pub(crate) use polled::{PollFn, Polled, Reported};
pub(crate) use readiness::{Direction, Readiness, unwinding};
pub(crate) use timers::{TimerKey, TimerTarget, Timers};

use crate::clock::Clock;
use crate::events::{Notifier, Ready};
use crate::repository::Waker;
use crate::table::{Key, Table};
use crate::wait_list::WaitList;
use mio::event::Source as MioSource;
use mio::unix::SourceFd;
use mio::{Interest, Token};
use std::cell::RefCell;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What one call to the operating system may report.
const REPORTS_MAX: usize = 1024;
const WAKE: Token = Token(usize::MAX);
/// No wait.
const NONE: Option<Duration> = Some(Duration::ZERO);

/// A registered source.
enum Entry {
    Socket(Rc<Readiness>),
    Mailbox { waiting: Rc<WaitList>, signal: Arc<Signal>, feed: Feed },
}

/// What puts events into a mailbox, apart from the notifiers that others hold.
pub(crate) enum Feed {
    Notifiers,
    Timer { notifier: Notifier<Instant>, period: Option<Duration>, key: TimerKey },
    Descriptor { notifier: Notifier<Ready>, descriptor: OwnedFd },
    Polled(Polled),
}

/// What a round of the demultiplexers came to.
struct Round {
    found: bool,
    /// How long the operating system was waited for at most.
    waited: Option<Duration>,
}

pub(crate) struct Observer {
    clock: Clock,
    /// The longest wait in one demultiplexer while there are several.
    wait_max: Duration,
    poll: RefCell<mio::Poll>,
    reports: RefCell<mio::Events>,
    sources: RefCell<Table<Entry>>,
    timers: RefCell<Timers>,
    /// Synchronous sources with a time limit.
    polled: RefCell<Vec<Key>>,
    inbox: Arc<Inbox>,
    signalled: RefCell<Vec<Key>>,
}

impl Observer {
    pub(crate) fn new(clock: Clock, wait_max: Duration) -> io::Result<Observer> {
        let poll = mio::Poll::new()?;
        let inbox = Inbox::new(mio::Waker::new(poll.registry(), WAKE)?);
        Ok(Observer {
            clock,
            wait_max,
            poll: RefCell::new(poll),
            reports: RefCell::new(mio::Events::with_capacity(REPORTS_MAX)),
            sources: RefCell::new(Table::new()),
            timers: RefCell::new(Timers::default()),
            polled: RefCell::new(Vec::new()),
            inbox,
            signalled: RefCell::new(Vec::new()),
        })
    }

    #[inline]
    pub(crate) fn now(&self) -> Instant {
        self.clock.now()
    }

    #[inline]
    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }

    #[inline]
    pub(crate) fn inbox(&self) -> &Arc<Inbox> {
        &self.inbox
    }

    #[inline]
    pub(crate) fn timers(&self) -> &RefCell<Timers> {
        &self.timers
    }

    /// Asks every demultiplexer once, and waits up to `limit` (`None`: without limit) if none has
    /// anything to report. Handlers that wait for a source are made ready; `late` is to do so with those
    /// whose time is over. May return early with nothing. Returns whether it waited all of `limit` in
    /// vain.
    pub(crate) fn wait_for_events(
        &self,
        limit: Option<Duration>,
        late: &dyn Fn(Waker),
    ) -> io::Result<bool> {
        // Where more than one of them can be waited for, none is before all were asked.
        if self.clock.is_virtual() || !self.polled.borrow().is_empty() {
            let round = self.round(NONE, late)?;
            if round.found || limit == NONE {
                return Ok(!round.found);
            }
        }
        if self.clock.is_virtual() {
            return self.jump(limit, late);
        }
        let round = self.round(limit, late)?;
        Ok(!round.found && round.waited == limit)
    }

    /// Asks every demultiplexer once, one after the other; waits only as long as nothing was found.
    fn round(&self, limit: Option<Duration>, late: &dyn Fn(Waker)) -> io::Result<Round> {
        let mut found = self.empty_inbox();
        found |= self.expire(late);
        let waited = if found { NONE } else { self.wait(limit) };
        found |= self.demultiplex(waited)?;
        found |= self.empty_inbox();
        found |= self.ask_polled(found || limit == NONE);
        found |= self.expire(late);
        Ok(Round { found, waited })
    }

    /// How long the operating system may be waited for.
    fn wait(&self, limit: Option<Duration>) -> Option<Duration> {
        if limit == NONE {
            return NONE;
        }
        let mut wait = limit;
        let next = self.timers.borrow().next_at();
        if let Some(at) = next {
            wait = earlier(wait, at.saturating_duration_since(self.now()));
        }
        if !self.polled.borrow().is_empty() {
            wait = earlier(wait, self.wait_max);
        }
        wait
    }

    /// Nothing is ready: virtual time goes on, to the next timer or by the limit. Without either there
    /// is only to wait.
    fn jump(&self, limit: Option<Duration>, late: &dyn Fn(Waker)) -> io::Result<bool> {
        let next = self.timers.borrow().next_at();
        match (next, limit) {
            (Some(at), _) if limit.is_none_or(|limit| at <= self.now() + limit) => {
                self.clock.jump_to(at);
                self.expire(late);
                Ok(false)
            }
            (_, None) => self.round(None, late).map(|_| false),
            (_, Some(_)) => Ok(true),
        }
    }

    #[inline]
    fn empty_inbox(&self) -> bool {
        self.inbox.is_pending() && self.empty_pending_inbox()
    }

    fn empty_pending_inbox(&self) -> bool {
        let mut keys = self.signalled.take();
        self.inbox.empty_into(&mut keys);
        let any = !keys.is_empty();
        for key in keys.drain(..) {
            // What nobody registered, or nobody has any more, is nobody's.
            let waiting = match self.sources.borrow().get(key) {
                Some(Entry::Mailbox { waiting, signal, .. }) => {
                    signal.lower();
                    Some(waiting.clone())
                }
                _ => None,
            };
            if let Some(waiting) = waiting {
                waiting.wake_all();
            }
        }
        self.signalled.replace(keys);
        any
    }

    /// Reports what is due. The clock is read only if there are timers.
    #[inline]
    fn expire(&self, late: &dyn Fn(Waker)) -> bool {
        !self.timers.borrow().is_empty() && self.expire_due(late)
    }

    fn expire_due(&self, late: &dyn Fn(Waker)) -> bool {
        let (now, mut any) = (self.now(), false);
        loop {
            let due = self.timers.borrow_mut().pop_due(now);
            let Some((at, target)) = due else { return any };
            any = true;
            match target {
                TimerTarget::Handler(waker) => late(waker),
                TimerTarget::Source(key) => self.tick(key, at, now),
            }
        }
    }

    /// A timer source is due: reports it, and sets it again if it is periodic. Periods that have passed
    /// unseen are skipped.
    fn tick(&self, source: Key, at: Instant, now: Instant) {
        let mut sources = self.sources.borrow_mut();
        let Some(Entry::Mailbox { waiting, feed, .. }) = sources.get_mut(source) else { return };
        let waiting = waiting.clone();
        let mut ended = None;
        if let Feed::Timer { notifier, period, key } = feed {
            // A full mailbox holds a tick that was not seen; another would say no more.
            let _ = notifier.deliver(at);
            let next = period.and_then(|period| next_tick(at, now, period));
            match next {
                Some(next) => {
                    *key = self.timers.borrow_mut().insert(next, TimerTarget::Source(source));
                }
                None => ended = Some(std::mem::replace(feed, Feed::Notifiers)),
            }
        }
        drop(sources);
        drop(ended);
        waiting.wake_all();
    }

    fn demultiplex(&self, wait: Option<Duration>) -> io::Result<bool> {
        let wait = match wait {
            NONE => wait,
            _ if self.inbox.may_sleep() => wait,
            _ => NONE,
        };
        let mut reports = self.reports.borrow_mut();
        let result = self.poll.borrow_mut().poll(&mut reports, wait);
        if wait != NONE {
            self.inbox.woke();
        }
        match result {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
        let mut any = false;
        for report in reports.iter().filter(|report| report.token() != WAKE) {
            any = true;
            match self.sources.borrow().at(report.token().0) {
                Some(Entry::Socket(readiness)) => readiness.edge(report),
                Some(Entry::Mailbox {
                    waiting, feed: Feed::Descriptor { notifier, .. }, ..
                }) => {
                    // A full mailbox holds a report that was not seen; another would say no more.
                    let _ = notifier.deliver(Ready::of(report));
                    waiting.wake_all();
                }
                _ => {}
            }
        }
        Ok(any)
    }

    /// Asks each synchronous source. If nothing is ready yet each has a bounded wait; after the first
    /// report, none.
    fn ask_polled(&self, mut found: bool) -> bool {
        if self.polled.borrow().is_empty() {
            return false;
        }
        let keys = self.polled.borrow().clone();
        let mut any = false;
        for key in keys {
            let wait = if found { Duration::ZERO } else { self.wait_max };
            let reported = self.ask_one(key, wait);
            found |= reported;
            any |= reported;
        }
        any
    }

    fn ask_one(&self, key: Key, wait: Duration) -> bool {
        let taken = match self.sources.borrow_mut().get_mut(key) {
            Some(Entry::Mailbox { waiting, feed: Feed::Polled(polled), .. }) => {
                polled.take().map(|ask| (ask, waiting.clone()))
            }
            _ => None,
        };
        let Some((mut ask, waiting)) = taken else { return false };
        let reported = ask(wait);
        if reported.is_over() {
            self.polled.borrow_mut().retain(|other| *other != key);
        }
        let unused = match self.sources.borrow_mut().get_mut(key) {
            Some(Entry::Mailbox { feed: Feed::Polled(polled), .. }) if !reported.is_over() => {
                polled.put_back(ask)
            }
            _ => Some(ask),
        };
        // Dropped outside of every borrow: it is user code.
        drop(unused);
        reported.wakes(&waiting)
    }
}

/// Registration.
impl Observer {
    /// A place for a source that reports into a mailbox.
    pub(crate) fn add_mailbox(&self) -> (Key, Arc<Signal>, Rc<WaitList>) {
        let waiting = Rc::new(WaitList::default());
        let mut sources = self.sources.borrow_mut();
        let key = sources.insert_with(|key| Entry::Mailbox {
            waiting: waiting.clone(),
            signal: Signal::new(key, self.inbox.clone()),
            feed: Feed::Notifiers,
        });
        let Some(Entry::Mailbox { signal, .. }) = sources.get(key) else {
            unreachable!("it was inserted just now")
        };
        (key, signal.clone(), waiting)
    }

    pub(crate) fn add_timer(
        &self,
        key: Key,
        notifier: Notifier<Instant>,
        first: Instant,
        period: Option<Duration>,
    ) {
        let timer = self.timers.borrow_mut().insert(first, TimerTarget::Source(key));
        self.feed(key, Feed::Timer { notifier, period, key: timer });
    }

    pub(crate) fn add_descriptor(
        &self,
        key: Key,
        notifier: Notifier<Ready>,
        descriptor: OwnedFd,
        interest: Interest,
    ) -> io::Result<()> {
        let raw = descriptor.as_raw_fd();
        let token = Token(key.place());
        self.poll.borrow().registry().register(&mut SourceFd(&raw), token, interest)?;
        self.feed(key, Feed::Descriptor { notifier, descriptor });
        Ok(())
    }

    pub(crate) fn add_polled(&self, key: Key, poll: PollFn) {
        self.polled.borrow_mut().push(key);
        self.feed(key, Feed::Polled(Polled::new(poll)));
    }

    fn feed(&self, key: Key, with: Feed) {
        let mut sources = self.sources.borrow_mut();
        let before = match sources.get_mut(key) {
            Some(Entry::Mailbox { feed, .. }) => std::mem::replace(feed, with),
            _ => with,
        };
        drop(sources);
        drop(before);
    }

    /// Registers a socket in both directions.
    pub(crate) fn add_socket(
        &self,
        socket: &mut impl MioSource,
    ) -> io::Result<(Key, Rc<Readiness>)> {
        let readiness = Readiness::new();
        let key = self.sources.borrow_mut().insert(Entry::Socket(readiness.clone()));
        let both = Interest::READABLE | Interest::WRITABLE;
        let registered = self.poll.borrow().registry().register(socket, Token(key.place()), both);
        if let Err(error) = registered {
            self.remove(key);
            return Err(error);
        }
        Ok((key, readiness))
    }

    pub(crate) fn remove_socket(&self, key: Key, socket: &mut impl MioSource) {
        // It cannot fail for a socket that is registered.
        let _ = self.poll.borrow().registry().deregister(socket);
        self.remove(key);
    }

    /// Forgets a source.
    pub(crate) fn remove(&self, key: Key) {
        let entry = self.sources.borrow_mut().remove(key);
        let Some(Entry::Mailbox { feed, .. }) = &entry else { return };
        match feed {
            Feed::Timer { key, .. } => {
                self.timers.borrow_mut().remove(*key);
            }
            Feed::Descriptor { descriptor, .. } => {
                let raw = descriptor.as_raw_fd();
                let _ = self.poll.borrow().registry().deregister(&mut SourceFd(&raw));
            }
            Feed::Polled(_) => self.polled.borrow_mut().retain(|other| *other != key),
            Feed::Notifiers => {}
        }
        // Dropped here, outside of every borrow: it may hold user code.
        drop(entry);
    }
}

/// No limit is later than any.
fn earlier(one: Option<Duration>, other: Duration) -> Option<Duration> {
    Some(one.map_or(other, |one| one.min(other)))
}

/// The first tick after `now`, at a multiple of the period from `at`.
fn next_tick(at: Instant, now: Instant, period: Duration) -> Option<Instant> {
    let period = period.as_nanos().max(1);
    let since_last = now.saturating_duration_since(at).as_nanos() % period;
    let to_next = u64::try_from(period - since_last).ok()?;
    now.max(at).checked_add(Duration::from_nanos(to_next))
}
