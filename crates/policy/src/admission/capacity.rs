//! Capacity: admits events while fewer than a given number wait. With it, a queue that blocks its senders can be
//! made to shed at a length below its capacity.

use comporta_model::plan::{Offer, ParamKind, ParamSpec};

use super::{Admission, Ask, Entry};

/// A length past which no event is admitted.
#[derive(Clone, Copy, Debug)]
pub struct Capacity {
    max: usize,
}

pub(super) fn entry() -> Entry {
    let offer = Offer {
        name: "capacity",
        aliases: &["length"],
        about: "refuses events while `max` events wait",
        cites: "Welsh, Culler & Brewer, SEDA: An Architecture for Well-Conditioned, Scalable Internet Services, SOSP 2001",
        params: &[ParamSpec {
            name: "max",
            about: "the most events that wait",
            kind: ParamKind::Count(1, usize::MAX),
            default: "100",
        }],
    };
    Entry::new(offer, |choice| Capacity { max: choice.count("max") })
}

impl Admission for Capacity {
    fn admit(&mut self, ask: &Ask) -> usize {
        ask.n.min(self.max.saturating_sub(ask.queued))
    }

    fn describe(&self) -> String {
        format!("{} may wait", self.max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::gate::tests::ASK;
    use crate::admission::sim::{SIM, made};

    #[test]
    fn what_does_not_fit_the_length_is_refused_from_the_end() {
        let mut gate = made("capacity(max=10)");
        assert_eq!(gate.admit(&Ask { n: 4, queued: 3, ..ASK }), 4);
        assert_eq!(gate.admit(&Ask { n: 4, queued: 8, ..ASK }), 2);
        assert_eq!(gate.admit(&Ask { n: 4, queued: 30, ..ASK }), 0);
    }

    #[test]
    fn the_queue_keeps_its_length_under_any_load() {
        for (load, shed) in [(0.5, 0.0), (1.1, 0.09), (3.0, 0.66)] {
            let report = SIM.run(&mut *made("capacity(max=50)"), load);
            assert!(report.most_queued <= 50);
            assert!((report.shed() - shed).abs() < 0.02, "{load}: {}", report.shed());
        }
    }
}
