//! Nodes that come and go: one is asked for when the cluster is full, and one is emptied and
//! released when the others can do its work at no more than two thirds of that load. So energy is saved where latency
//! does not show it: at half load queues are short, whether a third more nodes run or not.
//!
//! Only nodes that are elastic are touched. One at a time is emptied; it receives nothing meanwhile.

use super::load::Loads;
use crate::decision::Reason;
use crate::round::Round;
use crate::view::{NodeId, NodeState, ReplicaId, View};

/// A node is chosen to be emptied if the others could do its work at no more than this share of `full`.
const RELEASE: f64 = 2.0 / 3.0;

#[derive(Clone, Debug)]
pub(super) struct Elastic {
    full: f64,
    emptying: Option<Emptying>,
}

/// The node that is being emptied.
#[derive(Clone, Copy, Debug)]
struct Emptying {
    node: NodeId,
    /// The share that would be wanted of the fullest other node.
    others: f64,
}

impl Elastic {
    pub(super) fn new(full: f64) -> Self {
        Elastic { full, emptying: None }
    }

    /// Returns `false` of the node that is being emptied.
    pub(super) fn may_receive(&self, node: NodeId) -> bool {
        self.emptying.is_none_or(|emptying| emptying.node != node)
    }

    /// Chooses a node to empty, or gives that up where the load has grown.
    pub(super) fn begin(&mut self, view: &View, loads: &Loads) {
        let still = self
            .emptying
            .filter(|emptying| view.nodes[emptying.node.0].state == NodeState::Active)
            .and_then(|emptying| try_without(view, loads, emptying.node, self.full));
        self.emptying = still.or_else(|| {
            let elastic = view.nodes().filter(|(_, node)| {
                node.elastic && node.state == NodeState::Active && node.usage.is_some()
            });
            let share = |id: NodeId| loads.fullest(id).unwrap_or(f64::INFINITY);
            let least = elastic.map(|(id, _)| id).min_by(|a, b| share(*a).total_cmp(&share(*b)))?;
            try_without(view, loads, least, self.full * RELEASE)
        });
    }

    /// After the migrations that save delay: empties the node that was chosen, or asks for one.
    pub(super) fn decide(&mut self, view: &View, round: &mut Round<'_>, loads: &mut Loads) {
        match self.emptying {
            Some(emptying) => self.empty(view, round, loads, emptying),
            None => self.ask(view, round, loads),
        }
    }

    fn empty(&mut self, view: &View, round: &mut Round<'_>, loads: &mut Loads, of: Emptying) {
        let Emptying { node, others } = of;
        let name = &view.nodes[node.0].name;
        let reason = |effect: String| Reason {
            signal: format!(
                "without {name} the fullest node would be wanted for {others:.2} of itself"
            ),
            rule: format!(
                "{name} is elastic, was the least loaded, and that is at most {}",
                self.full
            ),
            effect,
        };
        if round.release_node(node, reason(format!("{name} is released"))).is_ok() {
            self.emptying = None;
            return;
        }
        let there: Vec<ReplicaId> =
            view.replicas().map(|(id, _)| id).filter(|id| loads.place(*id) == node).collect();
        for replica in there {
            let Some(to) = target(view, Some(round), loads, replica, self.full) else { return };
            let what = format!(
                "{} leaves {name}, which can then be released",
                view.replicas[replica.0].name
            );
            if round.migrate(replica, to, reason(what)).is_err() {
                return;
            }
            loads.migrate(replica, to);
        }
    }

    fn ask(&self, view: &View, round: &mut Round<'_>, loads: &Loads) {
        let active =
            view.nodes().filter(|(_, node)| node.state == NodeState::Active && !node.reserved);
        let fullest = active
            .filter_map(|(id, node)| Some((loads.fullest(id)?, &node.name)))
            .max_by(|a, b| a.0.total_cmp(&b.0));
        let Some((share, name)) = fullest.filter(|(share, _)| *share > self.full) else { return };
        if view.nodes.iter().any(|node| node.state == NodeState::Starting) {
            return; // one at a time
        }
        let standby =
            view.nodes().find(|(_, node)| node.state == NodeState::Standby && node.elastic);
        let Some((id, node)) = standby else { return };
        let reason = Reason {
            signal: format!(
                "{name} is wanted for {share:.2} of itself after this round's migrations"
            ),
            rule: format!("a node is asked for above {}", self.full),
            effect: format!("{} joins", node.name),
        };
        round.add_node(id, reason).expect("a node was found that stands by");
    }
}

/// A node to empty, if every replica of it finds room on others and none of these is then filled past `full`.
fn try_without(view: &View, loads: &Loads, node: NodeId, full: f64) -> Option<Emptying> {
    let mut tried = loads.clone();
    for (id, _) in view.replicas().filter(|(_, replica)| replica.node == node) {
        let to = target(view, None, &tried, id, full).filter(|_| !view.replicas[id.0].pinned)?;
        tried.migrate(id, to);
    }
    let others = view
        .nodes()
        .filter(|(id, other)| *id != node && other.state == NodeState::Active && !other.reserved);
    let shares: Option<Vec<f64>> = others.map(|(id, _)| tried.fullest(id)).collect();
    let others = shares?.into_iter().fold(0.0, f64::max);
    (others <= full).then_some(Emptying { node, others })
}

/// The least full node that takes a replica without being filled past `full`.
fn target(
    view: &View,
    round: Option<&Round<'_>>,
    loads: &Loads,
    replica: ReplicaId,
    full: f64,
) -> Option<NodeId> {
    let (here, operator) = (loads.place(replica), view.replicas[replica.0].operator);
    let free = |id: NodeId| {
        let mut others = view.replicas().filter(|(other, _)| *other != replica);
        let apart =
            others.all(|(other, seen)| seen.operator != operator || loads.place(other) != id);
        apart && round.is_none_or(|round| round.may_migrate(replica, id).is_ok())
    };
    view.nodes()
        .filter(|(id, node)| *id != here && node.state == NodeState::Active && !node.reserved)
        .filter_map(|(id, _)| Some((loads.fullest_with(id, replica)?, id)))
        .filter(|(share, id)| *share <= full && free(*id))
        .min_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, id)| id)
}
