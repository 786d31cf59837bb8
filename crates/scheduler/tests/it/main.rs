//! What the scheduler promises, a file per part of it. Time is virtual wherever there is any; where
//! threads or sockets take part, tests wait for what they report and never for time.

#![expect(clippy::unwrap_used, reason = "a test that unwraps in vain has failed")]

mod sources;
mod handover;
mod handlers;
mod endings;
mod fairness;
mod waiting;
mod channels;
mod net;
mod blocking;
mod limits;
mod random;

use comporta_scheduler::{Builder, Scheduler};
use std::cell::RefCell;
use std::ops::{Deref, DerefMut};
use std::rc::Rc;

/// A scheduler in which time moves only when nothing else can happen.
fn scheduler() -> Checked {
    Checked::new(Scheduler::builder().virtual_time())
}

/// A scheduler in the time of the system, for threads and sockets.
fn real_scheduler() -> Checked {
    Checked::new(Scheduler::builder())
}

/// A scheduler that fails its test if a coroutine failed of which nobody else heard: an assertion in one
/// would be lost otherwise.
struct Checked {
    scheduler: Scheduler,
    failures: Rc<RefCell<Vec<String>>>,
}

impl Checked {
    fn new(builder: Builder) -> Checked {
        let failures = Rc::new(RefCell::new(Vec::new()));
        let heard = failures.clone();
        let scheduler = builder
            .on_failure(move |failure| heard.borrow_mut().push(failure.to_string()))
            .build()
            .unwrap();
        Checked { scheduler, failures }
    }

    /// The test expects failures, and looks at them itself.
    fn unchecked(mut self) -> Checked {
        self.failures = Rc::default();
        self
    }
}

impl Deref for Checked {
    type Target = Scheduler;
    fn deref(&self) -> &Scheduler {
        &self.scheduler
    }
}

impl DerefMut for Checked {
    fn deref_mut(&mut self) -> &mut Scheduler {
        &mut self.scheduler
    }
}

impl Drop for Checked {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!(*self.failures.borrow(), [""; 0], "coroutines of which nobody else heard");
        }
    }
}

/// What happened, in order.
#[derive(Clone, Default)]
struct Log(Rc<RefCell<Vec<String>>>);

impl Log {
    fn add(&self, line: impl Into<String>) {
        self.0.borrow_mut().push(line.into());
    }

    fn lines(&self) -> Vec<String> {
        self.0.borrow().clone()
    }
}

/// Adds a line to the log when it is dropped.
struct Dropped(Log, &'static str);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.add(self.1);
    }
}
