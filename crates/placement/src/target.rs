//! The rule by which node b may take replica x from node a (equations 3.5 and 3.6): for no resource
//! is `u_b + u_x > u_a`, and for some it is `u_b + u_x < u_a`. It is the most cautious one that there is, because nobody
//! knows which resource made the latency grow.

use crate::round::Round;
use crate::usage::{Resource, Usage};
use crate::view::{NodeId, ReplicaId, View};

/// Amounts that differ by less than this share of the larger are equal: they are sums of measurements, and
/// sums of the same numbers in another order differ in the last digits.
const EQUAL: f64 = 1e-9;

/// What the rule says of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// It may: no resource would be used more than where the replica is, and this one less.
    Better(Resource),
    /// It may not: this resource would be used more.
    Worse(Resource),
    /// It may not: all would be equal.
    Equal,
}

/// What the rule says, of what node a uses, what node b uses, and what the replica uses on a.
#[must_use]
pub fn fit(a: &Usage, b: &Usage, x: &Usage) -> Fit {
    let mut better = None;
    for resource in Resource::ALL {
        let (with, here) = (b[resource] + x[resource], a[resource]);
        let margin = EQUAL * with.abs().max(here.abs());
        if with > here + margin {
            return Fit::Worse(resource);
        }
        if with < here - margin {
            better = better.or(Some(resource));
        }
    }
    better.map_or(Fit::Equal, Fit::Better)
}

/// The node that takes a replica by the rule, and the resource that it is better by.
///
/// The document does not say which of several wins: here it is the one whose fullest resource,
/// as a share of its capacity, would be least full; of equal ones, the first.
#[must_use]
pub fn choose(view: &View, round: &Round<'_>, replica: ReplicaId) -> Option<(NodeId, Resource)> {
    let x = view.replicas.get(replica.0)?.usage()?;
    let a = round.usage_of(round.node_of(replica))?;
    let mut best: Option<(f64, NodeId, Resource)> = None;
    for (id, node) in view.nodes() {
        if round.may_migrate(replica, id).is_err() {
            continue;
        }
        let Some(b) = round.usage_of(id) else { continue };
        let Fit::Better(resource) = fit(&a, &b, &x) else { continue };
        let shares = Resource::ALL.map(|one| (b[one] + x[one]) / node.capacity.of(one));
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
        assert_eq!(fit(&a, &usage(1.0, 90.0, 45.0), &x), Fit::Better(Cpu));
        assert_eq!(fit(&a, &usage(2.0, 90.0, 40.0), &x), Fit::Better(Received));
    }

    #[test]
    fn one_resource_that_would_be_used_more_refuses_all_others() {
        let (a, x) = (usage(3.0, 100.0, 50.0), usage(1.0, 10.0, 5.0));
        assert_eq!(fit(&a, &usage(0.0, 91.0, 0.0), &x), Fit::Worse(Memory));
    }

    #[test]
    fn equality_everywhere_is_no_gain() {
        let (a, x) = (usage(0.3, 100.0, 50.0), usage(0.1, 10.0, 5.0));
        // 0.2 + 0.1 is not 0.3 in binary; it is here.
        assert_eq!(fit(&a, &usage(0.2, 90.0, 45.0), &x), Fit::Equal);
        assert_eq!(fit(&Usage::new(), &Usage::new(), &Usage::new()), Fit::Equal);
    }
}
