//! What must hold of the model, a file for each part.

#![expect(clippy::unwrap_used, reason = "a test that unwraps in vain has failed")]

mod queues;
mod events;
mod migrations;
mod resources;
mod policies;
mod manager;
mod files;

use comporta_sim::rates::Rates;
use comporta_sim::scenario::{Node, Operator, Scenario};

/// Source on `ends`, worker on the nodes `a`, `b`, …, sink on `ends`, over a network that takes no time.
fn line(nodes: usize, replicas: &[usize], rate: f64, cost: f64) -> Scenario {
    let mut scenario = Scenario::new("line");
    scenario.network_latency = 0.0;
    scenario.nodes.push(Node { network: 1e15, reserved: true, ..Node::new("ends") });
    for at in 0..nodes {
        let name = char::from(b'a' + at as u8).to_string();
        scenario.nodes.push(Node { network: 1e15, ..Node::new(name) });
    }
    let places = replicas.iter().map(|at| at + 1).collect();
    scenario.operators = vec![
        Operator::source("source", 0, Rates::steady(rate)),
        Operator { cost, ..Operator::new("worker", places, vec![0]) },
        Operator::new("sink", vec![0], vec![1]),
    ];
    scenario
}
