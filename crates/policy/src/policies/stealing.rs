//! The default: each thread has a ready queue of its own and takes from others when it is empty.

use comporta_model::plan::Offer;

use crate::control::{PolicyControl, Refused};
use crate::policy::Policy;
use crate::registry::Entry;

/// A queue per worker, and stealing.
#[derive(Clone, Copy, Debug)]
pub struct Stealing;

pub(super) fn entry() -> Entry {
    let offer = Offer {
        name: "stealing",
        aliases: &["default"],
        about: "a ready queue per thread; idle threads take from others",
        cites: "Blumofe & Leiserson, Scheduling Multithreaded Computations by Work Stealing, JACM 1999",
        params: &[],
    };
    Entry::new(offer, |_| Stealing)
}

impl Policy for Stealing {
    fn start(&mut self, control: &mut dyn PolicyControl) -> Result<(), Refused> {
        control.use_per_worker_queues()
    }
}

#[cfg(test)]
mod tests {
    use crate::mock::{Mock, Queues};
    use crate::policies::started;

    #[test]
    fn each_thread_has_a_queue_and_one_queue_asks_for_nothing() {
        assert_eq!(started("stealing", Mock::new().stage("parse")).1.queues(), Queues::PerWorker);
        assert!(started("single", Mock::new().stage("parse")).1.log().is_empty());
    }
}
