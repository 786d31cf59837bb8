//! Demand: the usage of a replica if nothing held it back.
//!
//! The usage of a full node does not show how much is demanded of it: its CPUs cannot be more than busy. But the cost of
//! an event and the number of arrivals are known, and their product is the demand.

use std::ops::{Add, AddAssign, Sub};

use crate::usage::{Resource, Usage};
use crate::view::{OperatorId, ReplicaView, Second, View};

/// Seconds that the latest rate is the mean of.
pub(crate) const RECENT: usize = 3;
/// Events of the last period from which on its cost per event is preferred to that of all time.
const EVENTS_MIN: f64 = 20.0;

/// The demand of a replica.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Demand {
    /// Events a second.
    pub rate: f64,
    /// The usage that they need: cores of a usual node, and bytes per second. Memory is what the replica holds now.
    pub usage: Usage,
}

impl Add for Demand {
    type Output = Demand;
    fn add(self, other: Demand) -> Demand {
        Demand { rate: self.rate + other.rate, usage: self.usage + other.usage }
    }
}

impl AddAssign for Demand {
    fn add_assign(&mut self, other: Demand) {
        *self = *self + other;
    }
}

impl Sub for Demand {
    type Output = Demand;
    /// Takes away, down to nothing.
    fn sub(self, other: Demand) -> Demand {
        Demand { rate: (self.rate - other.rate).max(0.0), usage: self.usage - other.usage }
    }
}

/// Returns the demand of every replica of a view, by its place. It is zero for a silent replica, whose arrivals are
/// unknown, and for replicas of an operator of which no event was handled.
#[must_use]
pub fn demands(view: &View) -> Vec<Demand> {
    let mut costs: std::collections::HashMap<OperatorId, (Usage, f64)> = Default::default();
    for replica in &view.replicas {
        if let Some(mut cost) = cost(replica) {
            cost[Resource::Cpu] *= view.nodes[replica.node.0].capacity.speed;
            let (sum, count) = costs.entry(replica.operator).or_default();
            *sum += cost;
            *count += 1.0;
        }
    }
    let demand = |replica: &ReplicaView| {
        // Replicas of one operator do the same work; one that has just been migrated has done little.
        let Some((sum, count)) = costs.get(&replica.operator) else { return Demand::default() };
        let rate = rate(&replica.seconds);
        let mut usage = sum.scaled(rate / count);
        usage[Resource::Memory] = replica.usage().map_or(0.0, |now| now[Resource::Memory]);
        Demand { rate, usage }
    };
    view.replicas.iter().map(demand).collect()
}

/// What an event has cost, in the last period if it had enough of them.
fn cost(replica: &ReplicaView) -> Option<Usage> {
    let handled: f64 = replica.seconds.iter().map(|second| second.handled).sum();
    if handled < EVENTS_MIN {
        return replica.per_event;
    }
    let used = replica.seconds.iter().fold(Usage::new(), |sum, second| sum + second.usage);
    Some(used.scaled(1.0 / handled))
}

/// The rate of arrivals: the mean of the last seconds.
///
/// A rate that grows is not carried on. Ramps end, often just before a round is held, and a prediction that
/// goes past the end of one migrates replicas that were well where they are.
#[must_use]
pub fn rate(seconds: &[Second]) -> f64 {
    let latest = &seconds[seconds.len().saturating_sub(RECENT)..];
    latest.iter().map(|second| second.arrived).sum::<f64>() / latest.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrivals(counts: &[f64]) -> Vec<Second> {
        counts.iter().map(|&arrived| Second { arrived, ..Second::default() }).collect()
    }

    #[test]
    fn the_rate_is_the_mean_of_the_last_three_seconds() {
        assert_eq!(rate(&arrivals(&[900.0, 50.0, 60.0, 70.0])), 60.0);
        assert_eq!(rate(&arrivals(&[50.0, 70.0])), 60.0);
        assert_eq!(rate(&[]), 0.0);
    }
}
