//! The adaptive strategy as published (section 3.2.3): replicas whose latency grew are candidates, the
//! one that grew most first, of equal ones the one that was migrated longest ago; each goes to a node that the target rule
//! allows, until `l_mig` have found one.

use comporta_model::plan::{Offer, ParamKind, ParamSpec};

use super::DISSERTATION;
use crate::decision::Reason;
use crate::equal::is_equal;
use crate::registry::Entry;
use crate::round::Round;
use crate::strategy::Strategy;
use crate::target;
use crate::view::{ReplicaId, View};
use crate::worsening::worsening;

/// Migrates those whose latency grew.
#[derive(Clone, Copy, Debug)]
pub struct Adaptive {
    sensitivity: f64,
    migrations_max: usize,
}

/// How many migrations a round may have, for all strategies that migrate.
pub(super) const MIGRATIONS_MAX: ParamSpec = ParamSpec {
    name: "l_mig",
    about: "the most migrations of a round; 1000 is as good as no limit",
    kind: ParamKind::Count(1, 1_000_000),
    default: "1",
};

pub(super) fn entry() -> Entry {
    let offer = Offer {
        name: "adaptive",
        aliases: &[],
        about: "migrates the replica whose latency grew most to a node that is less loaded in every way",
        cites: DISSERTATION,
        params: &[
            ParamSpec {
                name: "d",
                about: "sensitivity: the share by which a latency must grow from second to second",
                kind: ParamKind::Number(0.0, 1000.0),
                default: "0.25",
            },
            MIGRATIONS_MAX,
        ],
    };
    Entry::new(offer, |choice, _| Adaptive::new(choice.number("d"), choice.count("l_mig")))
}

impl Adaptive {
    /// With this sensitivity, and so many migrations a round at most.
    #[must_use]
    pub fn new(sensitivity: f64, migrations_max: usize) -> Self {
        Adaptive { sensitivity, migrations_max }
    }

    /// Replicas whose latency grew, with `s`, in the order in which they are tried.
    fn candidates(&self, view: &View) -> Vec<(f64, ReplicaId)> {
        let s = |replica: &crate::ReplicaView| worsening(&replica.latencies_ms(), self.sensitivity);
        let mut candidates: Vec<(f64, ReplicaId)> = view
            .replicas()
            .filter(|(_, replica)| !replica.pinned)
            .map(|(id, replica)| (s(replica), id))
            .filter(|(s, _)| *s > 0.0)
            .collect();
        candidates.sort_by(|(s, _), (t, _)| t.total_cmp(s));
        // `None`, never migrated, is before every time.
        for tied in candidates.chunk_by_mut(|(s, _), (t, _)| is_equal(*s, *t)) {
            tied.sort_by_key(|(_, id)| (view.replicas[id.0].migrated, *id));
        }
        candidates
    }
}

impl Strategy for Adaptive {
    fn migrations_max(&self) -> usize {
        self.migrations_max
    }

    fn decide(&mut self, view: &View, round: &mut Round<'_>) {
        let candidates = self.candidates(view);
        for (rank, (s, replica)) in candidates.iter().enumerate() {
            if round.migrations_left() == 0 {
                return;
            }
            let Some((node, resource)) = target::choose(view, round, *replica) else { continue };
            let from = &view.nodes[view.replicas[replica.0].node.0].name;
            let to = &view.nodes[node.0].name;
            let reason = Reason {
                signal: format!(
                    "s = {s:.2} at d = {}, number {} of {} candidates",
                    self.sensitivity,
                    rank + 1,
                    candidates.len()
                ),
                rule: format!(
                    "{to} would use less {resource} than {from} does, and more of nothing"
                ),
                effect: format!("{} leaves {from} for {to}", view.replicas[replica.0].name),
            };
            round.migrate(*replica, node, reason).expect("a target was chosen that may take it");
        }
    }
}
