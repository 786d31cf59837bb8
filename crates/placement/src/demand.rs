//! What a replica would use if nothing held it back.
//!
//! A node that is full hides how much is wanted of it: its CPUs are busy, and that is all they can be. What an event
//! costs is not hidden, nor how many arrive; their product is what the replica wants.

use crate::usage::Usage;
use crate::view::{OperatorId, ReplicaView, Second, View};

/// Seconds that the latest rate is the mean of.
const RECENT: usize = 3;
/// How far ahead a rate that grows is carried on: half of the usual period between rounds, so that
/// it is right on average until the next one.
const AHEAD_S: f64 = 5.0;
/// Events of the last period from which on its cost per event is preferred to that of all time.
const EVENTS_MIN: f64 = 20.0;

/// What a replica wants.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Demand {
    /// Events a second.
    pub rate: f64,
    /// What they take: cores and bytes a second. Memory is what the replica holds now.
    pub usage: Usage,
}

/// The demand of every replica of a view, by its place. What is silent demands what is last known of its
/// operator, and nothing if nothing is.
#[must_use]
pub fn demands(view: &View) -> Vec<Demand> {
    let mut costs: std::collections::HashMap<OperatorId, (Usage, f64)> = Default::default();
    for replica in &view.replicas {
        if let Some(cost) = cost(replica) {
            let (sum, count) = costs.entry(replica.operator).or_default();
            *sum += cost;
            *count += 1.0;
        }
    }
    let demand = |replica: &ReplicaView| {
        // Replicas of one operator do the same work; one that has just been moved has done little.
        let Some((sum, count)) = costs.get(&replica.operator) else { return Demand::default() };
        let rate = forecast(&replica.seconds);
        let mut usage = sum.scaled(rate / count);
        usage[crate::Resource::Memory] =
            replica.usage().map_or(0.0, |now| now[crate::Resource::Memory]);
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

/// The rate of arrivals, carried on for a few seconds where it grows. One that falls is taken as it
/// is: it may rise again before the next round.
#[must_use]
pub fn forecast(seconds: &[Second]) -> f64 {
    let mean = |part: &[Second]| {
        part.iter().map(|second| second.arrived).sum::<f64>() / part.len().max(1) as f64
    };
    let (older, latest) = seconds.split_at(seconds.len().saturating_sub(RECENT));
    let before = &older[older.len().saturating_sub(RECENT)..];
    let now = mean(latest);
    if before.len() < RECENT {
        return now;
    }
    now + ((now - mean(before)) / RECENT as f64).max(0.0) * AHEAD_S
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrivals(counts: &[f64]) -> Vec<Second> {
        counts.iter().map(|&arrived| Second { arrived, ..Second::default() }).collect()
    }

    #[test]
    fn a_steady_rate_is_forecast_as_it_is() {
        assert_eq!(forecast(&arrivals(&[50.0; 10])), 50.0);
        assert_eq!(forecast(&arrivals(&[50.0, 70.0])), 60.0);
        assert_eq!(forecast(&[]), 0.0);
    }

    #[test]
    fn a_rate_that_grows_is_carried_on_and_one_that_falls_is_not() {
        // 30 more in 3 s: 10 a second, for 5 s.
        let growing = arrivals(&[100.0, 100.0, 100.0, 130.0, 130.0, 130.0]);
        assert_eq!(forecast(&growing), 180.0);
        let falling = arrivals(&[130.0, 130.0, 130.0, 100.0, 100.0, 100.0]);
        assert_eq!(forecast(&falling), 100.0);
    }
}
