//! The rule by which node b may take replica x from node a (equations 3.5 and 3.6): for no resource
//! is `u_b + u_x > u_a`, and for some it is `u_b + u_x < u_a`. It is this cautious because it is unknown which
//! resource made the latency grow.

use crate::equal::is_more;
use crate::round::Round;
use crate::usage::{Resource, Usage};
use crate::view::{NodeId, ReplicaId, View};

/// Whether a node may take a replica, by the rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// It may: no resource would be used more than on the replica's node now, and this one less.
    Better(Resource),
    /// It may not: this resource would be used more.
    Worse(Resource),
    /// It may not: all would be equal.
    Equal,
}

/// Applies the rule to a node that would use `there` with the replica, whose own node uses `here` now.
#[must_use]
pub fn fit(here: &Usage, there: &Usage) -> Fit {
    let mut better = None;
    for resource in Resource::ALL {
        if is_more(there[resource], here[resource]) {
            return Fit::Worse(resource);
        }
        if is_more(here[resource], there[resource]) {
            better = better.or(Some(resource));
        }
    }
    better.map_or(Fit::Equal, Fit::Better)
}

/// Returns the node that takes a replica by the rule, and the resource of which it would use less.
///
/// The document does not say which of several nodes to take. Here it is the one whose fullest resource, as a
/// share of its capacity, would be least full; of equal nodes, the first.
#[must_use]
pub fn choose(view: &View, round: &Round<'_>, replica: ReplicaId) -> Option<(NodeId, Resource)> {
    view.replicas.get(replica.0)?;
    let here = round.usage_of(round.node_of(replica))?;
    let mut best: Option<(f64, NodeId, Resource)> = None;
    for (id, node) in view.nodes() {
        if round.may_migrate(replica, id).is_err() {
            continue;
        }
        let Some(there) = round.usage_with(replica, id) else { continue };
        let Fit::Better(resource) = fit(&here, &there) else { continue };
        let shares = Resource::ALL.map(|one| there[one] / node.capacity.of(one));
        let fullest = shares.into_iter().fold(0.0, f64::max);
        if best.is_none_or(|(least, ..)| fullest < least) {
            best = Some((fullest, id, resource));
        }
    }
    best.map(|(_, node, resource)| (node, resource))
}

#[cfg(test)]
mod tests {
    use super::*;
    use Resource::{Cpu, Memory, Received};

    fn usage(cpu: f64, memory: f64, received: f64) -> Usage {
        Usage::new().with(Cpu, cpu).with(Memory, memory).with(Received, received)
    }

    #[test]
    fn a_node_that_would_use_less_of_something_and_more_of_nothing_is_better() {
        let (a, x) = (usage(3.0, 100.0, 50.0), usage(1.0, 10.0, 5.0));
        assert_eq!(fit(&a, &(usage(1.0, 90.0, 45.0) + x)), Fit::Better(Cpu));
        assert_eq!(fit(&a, &(usage(2.0, 90.0, 40.0) + x)), Fit::Better(Received));
    }

    #[test]
    fn one_resource_that_would_be_used_more_refuses_all_others() {
        let (a, x) = (usage(3.0, 100.0, 50.0), usage(1.0, 10.0, 5.0));
        assert_eq!(fit(&a, &(usage(0.0, 91.0, 0.0) + x)), Fit::Worse(Memory));
    }

    #[test]
    fn equality_everywhere_is_no_gain() {
        let (a, x) = (usage(0.3, 100.0, 50.0), usage(0.1, 10.0, 5.0));
        // 0.2 + 0.1 is not 0.3 in binary; it is here.
        assert_eq!(fit(&a, &(usage(0.2, 90.0, 45.0) + x)), Fit::Equal);
        assert_eq!(fit(&Usage::new(), &Usage::new()), Fit::Equal);
    }
}
