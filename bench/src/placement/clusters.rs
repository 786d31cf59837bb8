//! Clusters drawn by chance: between three and eleven nodes, operators with one to three replicas anywhere, rates that
//! go up and down; some with nodes that differ, with a background, with thin links, with operators that differ, with
//! state. What `cost-aware` is set against `adaptive` on, besides the experiment that both were tried on first.
//! Those of seed 1 were looked at while `cost-aware` was written; `--seed N` draws others.

use comporta_sim::rates::Rates;
use comporta_sim::scenario::{Node, Operator, Scenario, Service};
use comporta_stats::Dice;

/// Clusters of a seed of the bench.
pub(super) const COUNT: u64 = 12;

const DURATION_S: f64 = 300.0;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Plain,
    NodesDiffer,
    Background,
    ThinLinks,
    OperatorsDiffer,
    State,
}

const KINDS: [Kind; 6] = [
    Kind::Plain,
    Kind::NodesDiffer,
    Kind::Background,
    Kind::ThinLinks,
    Kind::OperatorsDiffer,
    Kind::State,
];

fn between(dice: &mut Dice, low: f64, high: f64) -> f64 {
    low + (high - low) * (dice.below(1 << 20) as f64 / f64::from(1 << 20))
}

/// The cluster of a number. Sources and sinks are on nodes of their own.
pub(super) fn cluster(number: u64, strategy: &str, seed: u64) -> Scenario {
    let mut dice = Dice::new(number.wrapping_mul(7919).wrapping_add(101));
    let kind = KINDS[number as usize % KINDS.len()];
    let mut scenario = Scenario::new(format!("cluster {number}, {kind:?}"));
    (scenario.duration, scenario.seed, scenario.strategy) = (DURATION_S, seed, strategy.into());
    let ends = |name: &str| Node { cores: 8, reserved: true, ..Node::new(name) };
    scenario.nodes = vec![ends("sources"), ends("sinks")];
    let nodes = 3 + dice.below(9);
    for at in 0..nodes {
        let mut node = Node::new(format!("n{at}"));
        match kind {
            Kind::NodesDiffer => node.cores = 2 + 2 * dice.below(3),
            Kind::Background => {
                let (first, then) = (between(&mut dice, 0.0, 1.5), between(&mut dice, 0.0, 1.5));
                node.background =
                    Rates::steady(first).then(between(&mut dice, 100.0, 200.0), 5.0, then);
            }
            Kind::ThinLinks => node.network = 1.5e6,
            _ => {}
        }
        scenario.nodes.push(node);
    }
    add_operators(&mut scenario, kind, nodes, &mut dice);
    scenario
}

fn add_operators(scenario: &mut Scenario, kind: Kind, nodes: usize, dice: &mut Dice) {
    let operators = nodes * 2 + dice.below(nodes * 2);
    let period = between(dice, 20.0, 100.0);
    let ramp = if dice.below(2) == 0 { (period * 0.4).min(10.0) } else { 1.0 };
    let replicas = 1 + dice.below(if nodes >= 4 { 3 } else { 2 });
    let mut wanted = vec![0.0; (DURATION_S / period) as usize + 2];
    for at in 0..operators {
        let low = between(dice, 30.0, 100.0);
        let high = low * between(dice, 2.0, 8.0);
        let levels: Vec<f64> =
            wanted.iter().map(|_| if dice.below(100) < 40 { high } else { low }).collect();
        wanted.iter_mut().zip(&levels).for_each(|(all, one)| *all += one * replicas as f64);
        let rates = Rates::levels(&levels, period, ramp);
        scenario.operators.push(Operator::source(format!("source{at}"), 0, rates));
    }
    let cores: f64 =
        scenario.nodes[2..].iter().map(|node| node.cores as f64 - node.background.max()).sum();
    // At its busiest all of it wants between 0.55 and 0.9 of what there is.
    let busiest = wanted.iter().copied().fold(0.0, f64::max);
    let cost = between(dice, 0.55, 0.9) * cores / busiest;
    for at in 0..operators {
        let mut places: Vec<usize> = (2..nodes + 2).collect();
        dice.shuffle(&mut places);
        places.truncate(replicas);
        let mut worker = Operator::new(format!("worker{at}"), places, vec![at]);
        worker.cost = cost;
        match kind {
            Kind::OperatorsDiffer => worker.cost *= between(dice, 0.3, 1.7),
            Kind::State => worker.state = between(dice, 0.0, 5e7),
            Kind::ThinLinks => scenario.operators[at].event_bytes = between(dice, 0.0, 1000.0),
            Kind::NodesDiffer => worker.service = Service::Exponential,
            _ => {}
        }
        scenario.operators.push(worker);
    }
    for at in 0..operators {
        scenario.operators.push(Operator::new(format!("sink{at}"), vec![1], vec![operators + at]));
    }
}
