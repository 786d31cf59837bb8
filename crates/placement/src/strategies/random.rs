//! The random strategy (section 4.2): each round a coin decides for every replica whether it is a
//! candidate; they are tried in an order of chance, and the target rule is that of the adaptive strategy.
//! What it shows is how much of that one's success is due to the rule alone.

use comporta_model::plan::Offer;
use comporta_stats::Dice;

use super::DISSERTATION;
use super::adaptive::MIGRATIONS_MAX;
use crate::decision::Reason;
use crate::registry::Entry;
use crate::round::Round;
use crate::strategy::Strategy;
use crate::target;
use crate::view::{ReplicaId, View};

/// Migrates whatever chance picks.
#[derive(Clone, Debug)]
pub struct Random {
    dice: Dice,
    migrations_max: usize,
}

pub(super) fn entry() -> Entry {
    let offer = Offer {
        name: "random",
        aliases: &[],
        about: "migrates random replicas, by the target rule of `adaptive`",
        cites: DISSERTATION,
        params: &[MIGRATIONS_MAX],
    };
    Entry::new(offer, |choice, seed| Random::new(seed, choice.count("l_mig")))
}

impl Random {
    /// By the chances of this seed, with so many migrations a round at most.
    #[must_use]
    pub fn new(seed: u64, migrations_max: usize) -> Self {
        Random { dice: Dice::new(seed), migrations_max }
    }
}

impl Strategy for Random {
    fn migrations_max(&self) -> usize {
        self.migrations_max
    }

    fn decide(&mut self, view: &View, round: &mut Round<'_>) {
        let all = view.replicas().filter(|(_, replica)| !replica.pinned);
        let mut candidates: Vec<ReplicaId> =
            all.map(|(id, _)| id).filter(|_| self.dice.below(2) == 0).collect();
        self.dice.shuffle(&mut candidates);
        for replica in candidates {
            if round.migrations_left() == 0 {
                return;
            }
            let Some((node, resource)) = target::choose(view, round, replica) else { continue };
            let from = &view.nodes[view.replicas[replica.0].node.0].name;
            let to = &view.nodes[node.0].name;
            let reason = Reason {
                signal: "picked by chance".to_owned(),
                rule: format!(
                    "{to} would use less {resource} than {from} does, and more of nothing"
                ),
                effect: format!("{} leaves {from} for {to}", view.replicas[replica.0].name),
            };
            round.migrate(replica, node, reason).expect("a target was chosen that may take it");
        }
    }
}
