//! What the scheduler promises, a file per part of it. Time is virtual wherever there is any; where
//! threads or sockets take part, tests wait for what they report and never for time.

#![expect(clippy::unwrap_used, reason = "a test that unwraps in vain has failed")]

mod sources;
mod handlers;
mod endings;
mod fairness;
mod waiting;
mod channels;
mod net;
mod blocking;
mod limits;

use comporta_scheduler::Scheduler;
use std::cell::RefCell;
use std::rc::Rc;

/// A scheduler in which time moves only when nothing else can happen.
fn scheduler() -> Scheduler {
    Scheduler::builder().virtual_time().build().unwrap()
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
