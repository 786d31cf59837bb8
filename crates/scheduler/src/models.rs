//! Models: what other threads do to the loop, explored by shuttle.
//!
//! ```text
//! RUSTFLAGS="--cfg shuttle" CARGO_TARGET_DIR=target/shuttle cargo test -p comporta-scheduler --lib models
//! COMPORTA_SCHEDULES=20000 ...    # schedules per model and scheduler, instead of 500
//! ```
//!
//! **What is explored.** The inbox, its signals and the mailboxes of notifiers, as they run: under `--cfg shuttle` the
//! module `sync` gives shuttle's locks and atomics. A loop does what the observer does, except that it waits for
//! the waker and not for epoll. A schedule in which everybody waits is a failure (a lost wake-up), and so
//! is one that does not end.
//!
//! **What is not explored.** Weak memory: all operations of the inbox are sequentially consistent. Epoll, coroutines and
//! the threads of `spawn_blocking`. And a schedule is a sample: silence is no proof.

#![expect(
    clippy::unwrap_used,
    reason = "all of it is tests, which clippy sees only under a plain `cfg(test)`"
)]

use crate::notifier::{Notified, Notifier};
use crate::observer::{Inbox, Signal};
use crate::sync::Waker;
use crate::table::{Key, Table};
use crate::wait_list::WaitList;
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, MaxSteps, Runner, thread};
use std::io;
use std::rc::Rc;
use std::sync::Arc;

fn explore(model: fn()) {
    let schedules = std::env::var("COMPORTA_SCHEDULES").ok().and_then(|n| n.parse().ok());
    let schedules = schedules.unwrap_or(500);
    let mut config = Config::new();
    config.max_steps = MaxSteps::FailAfter(10_000);
    Runner::new(RandomScheduler::new(schedules), config.clone()).run(model);
    Runner::new(PctScheduler::new(3, schedules), config).run(model);
}

/// A source of numbers, as the loop knows it.
struct Source {
    key: Key,
    signal: Arc<Signal>,
    /// `None` after its end.
    events: Option<Notified<u32>>,
    received: Vec<u32>,
    failure: Option<io::Error>,
}

/// The loop's side: an inbox and its sources.
struct Loop {
    inbox: Arc<Inbox>,
    keys: Table<()>,
    sources: Vec<Source>,
    /// Only a stop ends it.
    endless: bool,
}

impl Loop {
    fn new() -> Loop {
        let inbox = Inbox::new(Waker::default());
        Loop { inbox, keys: Table::new(), sources: Vec::new(), endless: false }
    }

    fn source(&mut self, capacity: usize) -> Notifier<u32> {
        let key = self.keys.insert(());
        let signal = Signal::new(key, self.inbox.clone());
        let waiting = Rc::new(WaitList::default());
        let (notifier, events) = Notified::new(capacity, signal.clone(), waiting);
        let source =
            Source { key, signal, events: Some(events), received: Vec::new(), failure: None };
        self.sources.push(source);
        notifier
    }

    /// As the observer: takes what was reported, and sleeps while nothing is. Returns `true` if it was
    /// stopped, and `false` when every source has ended.
    fn run(&mut self) -> bool {
        let mut keys = Vec::new();
        loop {
            if self.inbox.take_stop() {
                return true;
            }
            if self.inbox.is_pending() {
                self.inbox.empty_into(&mut keys);
                for key in keys.drain(..) {
                    let source = self.sources.iter_mut().find(|source| source.key == key).unwrap();
                    source.signal.lower();
                    source.take_all();
                }
                if !self.endless && self.sources.iter().all(|source| source.events.is_none()) {
                    return false;
                }
            }
            if self.inbox.may_sleep() {
                self.inbox.waker().wait();
            }
            self.inbox.woke();
        }
    }
}

impl Source {
    fn take_all(&mut self) {
        while let Some(events) = &self.events {
            match events.take() {
                None => return,
                Some(Ok(Some(event))) => self.received.push(event),
                Some(Ok(None)) => self.events = None,
                Some(Err(error)) => self.failure = Some(error),
            }
        }
    }
}

#[test]
fn what_two_threads_report_to_one_source_is_all_taken() {
    explore(|| {
        let mut main = Loop::new();
        let notifier = main.source(8);
        for base in [0, 10] {
            let notifier = notifier.clone();
            thread::spawn(move || {
                notifier.notify(base).unwrap();
                notifier.notify(base + 1).unwrap();
            });
        }
        drop(notifier);
        assert!(!main.run());
        let mut received = std::mem::take(&mut main.sources[0].received);
        assert!(received.iter().position(|n| *n == 0) < received.iter().position(|n| *n == 1));
        received.sort_unstable();
        assert_eq!(received, [0, 1, 10, 11]);
    });
}

#[test]
fn two_sources_are_both_heard_and_one_may_fail() {
    explore(|| {
        let mut main = Loop::new();
        let (plain, failing) = (main.source(1), main.source(1));
        thread::spawn(move || plain.notify(1).unwrap());
        thread::spawn(move || {
            failing.notify(2).unwrap();
            failing.fail(io::Error::other("unplugged"));
        });
        assert!(!main.run());
        assert_eq!(main.sources[0].received, [1]);
        assert_eq!(main.sources[1].received, [2]);
        assert!(main.sources[0].failure.is_none() && main.sources[1].failure.is_some());
    });
}

#[test]
fn a_stop_at_any_moment_is_not_slept_over_and_what_was_reported_is_there_afterwards() {
    explore(|| {
        let mut main = Loop::new();
        let notifier = main.source(8);
        let inbox = main.inbox.clone();
        thread::spawn(move || inbox.stop());
        thread::spawn(move || notifier.notify(1).unwrap());
        // Both come, in either order: the stop, and the end of the source.
        if main.run() {
            assert!(!main.run());
        } else {
            main.endless = true;
            assert!(main.run());
        }
        assert_eq!(main.sources[0].received, [1]);
    });
}

#[test]
fn a_thread_that_waits_for_room_gets_it() {
    explore(|| {
        let mut main = Loop::new();
        let notifier = main.source(1);
        let sending = thread::spawn(move || (0..3).all(|n| notifier.notify_blocking(n)));
        assert!(!main.run());
        assert_eq!(main.sources[0].received, [0, 1, 2]);
        assert!(sending.join().unwrap());
    });
}

#[test]
fn a_thread_that_waits_for_room_hears_that_nobody_listens_any_more() {
    explore(|| {
        let mut main = Loop::new();
        let notifier = main.source(1);
        let sending = thread::spawn(move || (0..3).all(|n| notifier.notify_blocking(n)));
        main.sources.clear();
        assert!(!sending.join().unwrap(), "there was room for one");
    });
}
