//! Ours: migrates what gains more than it costs.
//!
//! The loads of nodes are predicted from what replicas demand, not from what full nodes let them have
//! (`load`). Of all migrations from the most loaded nodes to the least loaded, and to nodes where a connected
//! operator runs, the one that saves most delay is drafted, if that is worth more than copying the state costs; and again, on the loads as they would
//! then be. Then nodes are asked for or released (`elastic`).
//!
//! 1. `load`: predicted loads, and what they cost in delay.
//! 2. `elastic`: nodes that come and go.

mod load;
mod elastic;

use comporta_model::plan::{Offer, ParamKind, ParamSpec};

use self::elastic::Elastic;
use self::load::Loads;
use crate::decision::Reason;
use crate::registry::Entry;
use crate::round::Round;
use crate::strategy::Strategy;
use crate::view::{NodeId, NodeState, ReplicaId, View};

/// Nodes whose replicas are looked at, the most costly first: a bound on the work of a round.
const FROM_MAX: usize = 16;
/// Nodes that they may go to, the least full first.
const TO_MAX: usize = 16;

/// Migrates what gains more than it costs.
#[derive(Clone, Debug)]
pub struct CostAware {
    migrations_max: usize,
    elastic: Elastic,
}

pub(super) fn entry() -> Entry {
    let offer = Offer {
        name: "cost-aware",
        aliases: &["cost"],
        about: "migrates replicas whose migration saves more delay than copying their state costs; requests and releases nodes",
        cites: "ours; after the future work that section 5.2 of the dissertation names",
        params: &[
            ParamSpec {
                name: "l_mig",
                about: "the most migrations of a round",
                kind: ParamKind::Count(1, 1_000_000),
                default: "4",
            },
            ParamSpec {
                name: "full",
                about: "the load of the fullest resource at which elastic nodes are asked for; they are released \
                        where the rest would stay below two thirds of it",
                kind: ParamKind::Number(0.1, 0.95),
                default: "0.75",
            },
        ],
    };
    Entry::new(offer, |choice, _| CostAware::new(choice.count("l_mig"), choice.number("full")))
}

/// A migration that was looked at.
#[derive(Clone, Copy, Debug)]
struct Prospect {
    replica: ReplicaId,
    to: NodeId,
    saving: f64,
    worth: f64,
    price: f64,
}

impl CostAware {
    /// With so many migrations a round at most, and elastic nodes asked for at this load.
    #[must_use]
    pub fn new(migrations_max: usize, full: f64) -> Self {
        CostAware { migrations_max, elastic: Elastic::new(full) }
    }

    /// The migration that gains most, if there is one that gains.
    fn best(&self, view: &View, round: &Round<'_>, loads: &Loads) -> Option<Prospect> {
        let (from, to) = self.ends(view, loads);
        let mut best: Option<Prospect> = None;
        for (replica, seen) in view.replicas() {
            let here = loads.place(replica);
            if seen.pinned || !from.contains(&here) {
                continue;
            }
            let near = loads.nodes_near(replica);
            for &node in to.iter().chain(&near) {
                if !self.elastic.may_receive(node) || round.may_migrate(replica, node).is_err() {
                    continue;
                }
                let saving = loads.saving(replica, node);
                let worth = loads.worth(saving, replica, node);
                let price = loads.price(replica, node);
                let enough = saving > loads.noise(here, node);
                let gains = worth > price && enough;
                let gain = worth - price;
                if gains && best.is_none_or(|best| gain > best.worth - best.price) {
                    best = Some(Prospect { replica, to: node, saving, worth, price });
                }
            }
        }
        best
    }

    /// The nodes that cost most, and those that are least full.
    fn ends(&self, view: &View, loads: &Loads) -> (Vec<NodeId>, Vec<NodeId>) {
        let active = |(_, node): &(NodeId, &crate::NodeView)| {
            node.state == NodeState::Active && !node.reserved
        };
        let mut nodes: Vec<(f64, f64, NodeId)> = view
            .nodes()
            .filter(active)
            .filter_map(|(id, _)| Some((loads.cost(id), loads.fullest(id)?, id)))
            .collect();
        nodes.sort_by(|a, b| b.0.total_cmp(&a.0));
        let from = nodes.iter().take(FROM_MAX).map(|node| node.2).collect();
        nodes.sort_by(|a, b| a.1.total_cmp(&b.1));
        (from, nodes.iter().take(TO_MAX).map(|node| node.2).collect())
    }
}

impl Strategy for CostAware {
    fn migrations_max(&self) -> usize {
        self.migrations_max
    }

    fn decide(&mut self, view: &View, round: &mut Round<'_>) {
        let mut loads = Loads::new(view);
        self.elastic.begin(view, &loads);
        while round.migrations_left() > 0 {
            let Some(prospect) = self.best(view, round, &loads) else { break };
            let from = loads.place(prospect.replica);
            let share = |node| loads.fullest(node).unwrap_or(f64::NAN);
            let before = (share(from), share(prospect.to));
            loads.migrate(prospect.replica, prospect.to);
            let share = |node| loads.fullest(node).unwrap_or(f64::NAN);
            let (a, b) = (&view.nodes[from.0].name, &view.nodes[prospect.to.0].name);
            let reason = Reason {
                signal: format!(
                    "{a} is wanted for {:.2} of itself, {b} for {:.2}",
                    before.0, before.1
                ),
                rule: format!(
                    "saves {:.3} event-seconds of delay a second, worth {:.2} over the horizon; copying {:.0} bytes costs {:.2}",
                    prospect.saving,
                    prospect.worth,
                    view.replicas[prospect.replica.0].state_bytes,
                    prospect.price
                ),
                effect: format!(
                    "{} leaves {a} at {:.2} and {b} at {:.2}",
                    view.replicas[prospect.replica.0].name,
                    share(from),
                    share(prospect.to)
                ),
            };
            round
                .migrate(prospect.replica, prospect.to, reason)
                .expect("the migration was found possible");
        }
        self.elastic.decide(view, round, &mut loads);
    }
}
