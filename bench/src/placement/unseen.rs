//! Programs on clusters, drawn by chance from a wider family than `clusters`: chains of operators that part and meet,
//! replicas of different number, rates that change at different times, nodes that differ in cores, speed, links and
//! background, state, windows. The family was written down before any strategy was tried on it, and was not changed since.
//! `cost-aware` was revised with the numbers 0 to 29 in view (`--seed 1` to half of `--seed 3`); later ones are unseen.

use comporta_sim::rates::Rates;
use comporta_sim::scenario::{Node, Operator, Scenario, Service, Window};
use comporta_stats::Dice;

/// Programs of a seed of the bench.
pub(super) const COUNT: u64 = 12;

const DURATION_S: f64 = 240.0;
/// The first nodes are for sources and for sinks.
const ENDS: usize = 2;
/// The shares of its capacity that the hottest node may want at its busiest, where the operators stand at first, and that all
/// nodes together may.
const HOTTEST: (f64, f64) = (1.1, 1.6);
const TOGETHER_MAX: f64 = 0.85;

/// What chance decides.
struct Draw(Dice);

impl Draw {
    fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * (self.0.below(1 << 20) as f64 / f64::from(1 << 20))
    }

    /// As [`between`](Self::between), with as many from 1 to 10 as from 10 to 100.
    fn magnitude(&mut self, low: f64, high: f64) -> f64 {
        self.between(low.ln(), high.ln()).exp()
    }

    fn one_in(&mut self, count: usize) -> bool {
        self.0.below(count) == 0
    }
}

/// The program of a number.
pub(super) fn program(number: u64, strategy: &str, seed: u64) -> Scenario {
    let mut draw = Draw(Dice::new(number.wrapping_mul(0x9e37_79b9).wrapping_add(20)));
    let mut scenario = Scenario::new(format!("program {number}"));
    (scenario.duration, scenario.seed, scenario.strategy) = (DURATION_S, seed, strategy.into());
    scenario.network_latency = draw.magnitude(1e-4, 2e-3);
    add_nodes(&mut scenario, &mut draw);
    let mut levels = Vec::new(); // the highest rate that comes to each operator
    for chain in 0..3 + draw.0.below(6) {
        add_chain(&mut scenario, chain, &mut levels, &mut draw);
    }
    set_costs(&mut scenario, &levels, &mut draw);
    scenario
}

fn add_nodes(scenario: &mut Scenario, draw: &mut Draw) {
    let ends = |name: &str| Node { cores: 8, reserved: true, ..Node::new(name) };
    scenario.nodes = vec![ends("sources"), ends("sinks")];
    let [cores, speed, links, background] = [0; 4].map(|_| draw.one_in(2));
    for at in 0..3 + draw.0.below(8) {
        let mut node = Node::new(format!("n{at}"));
        if cores {
            node.cores = 2 << draw.0.below(3);
        }
        if speed {
            node.speed = draw.magnitude(0.6, 1.7);
        }
        if links && draw.one_in(2) {
            node.network = draw.magnitude(1e6, 1e8);
        }
        if background {
            let most = 0.5 * node.cores as f64;
            let (first, then) = (draw.between(0.0, most), draw.between(0.0, most));
            node.background = Rates::steady(first).then(draw.between(60.0, 180.0), 5.0, then);
        }
        scenario.nodes.push(node);
    }
}

/// A source, up to four operators one after another, and a sink.
fn add_chain(scenario: &mut Scenario, chain: usize, levels: &mut Vec<f64>, draw: &mut Draw) {
    let (rates, highest) = rates(draw);
    let event_bytes = draw.magnitude(50.0, 2000.0);
    let mut from = scenario.operators.len();
    let source = Operator::source(format!("source{chain}"), 0, rates);
    scenario.operators.push(Operator { event_bytes, ..source });
    levels.push(highest);
    for step in 0..1 + draw.0.below(4) {
        let mut inputs = vec![from];
        let mut level = levels[from];
        // It may also take from the first operator of the chain before.
        let other = scenario
            .operators
            .iter()
            .position(|one| one.name == format!("op{}.0", chain.wrapping_sub(1)));
        if let Some(other) = other.filter(|_| step == 1 && draw.one_in(3)) {
            inputs.insert(0, other);
            level += levels[other];
        }
        let operator = operator(scenario, format!("op{chain}.{step}"), inputs, draw);
        let emits = operator.window.map_or(level, |window| level / f64::from(window.slide));
        from = scenario.operators.len();
        scenario.operators.push(operator);
        levels.push(emits);
    }
    scenario.operators.push(Operator::new(format!("sink{chain}"), vec![1], vec![from]));
    levels.push(0.0);
}

/// The rate of a source, and the highest of it.
fn rates(draw: &mut Draw) -> (Rates, f64) {
    let low = draw.magnitude(20.0, 150.0);
    if draw.one_in(4) {
        return (Rates::steady(low), low);
    }
    let high = low * draw.between(1.5, 8.0);
    let (period, share) = (draw.between(20.0, 90.0), 20 + draw.0.below(40));
    let ramp = if draw.one_in(2) { 1.0 } else { 0.3 * period };
    let count = (DURATION_S / period) as usize + 2;
    let levels: Vec<f64> =
        (0..count).map(|_| if draw.0.below(100) < share { high } else { low }).collect();
    let highest = levels.iter().copied().fold(0.0, f64::max);
    (Rates::levels(&levels, period, ramp), highest)
}

fn operator(scenario: &Scenario, name: String, inputs: Vec<usize>, draw: &mut Draw) -> Operator {
    let mut places: Vec<usize> = (ENDS..scenario.nodes.len()).collect();
    draw.0.shuffle(&mut places);
    places.truncate(1 + draw.0.below(3));
    let mut operator = Operator::new(name, places, inputs);
    operator.cost = draw.magnitude(0.2, 2.0); // of each other, until `set_costs`
    operator.event_bytes = draw.magnitude(50.0, 2000.0);
    if draw.one_in(2) {
        operator.service = Service::Exponential;
    }
    if draw.one_in(2) {
        operator.state = draw.magnitude(1e4, 1e8);
    }
    if draw.one_in(8) {
        let size = 5 + draw.0.below(30) as u32;
        operator.window = Some(Window { size, slide: size });
    }
    operator
}

/// Costs such that something is to be gained: the hottest node wants more than it has, and all together less.
fn set_costs(scenario: &mut Scenario, levels: &[f64], draw: &mut Draw) {
    let mut wanted = vec![0.0; scenario.nodes.len()];
    for operator in &scenario.operators {
        let level: f64 = operator.inputs.iter().map(|&input| levels[input]).sum();
        operator.nodes.iter().for_each(|&node| wanted[node] += operator.cost * level);
    }
    let has = |node: &Node| node.speed * (node.cores as f64 - node.background.max());
    let shares = wanted.iter().zip(&scenario.nodes).skip(ENDS);
    let hottest = shares.map(|(wanted, node)| wanted / has(node)).fold(0.0, f64::max);
    let all: f64 = scenario.nodes[ENDS..].iter().map(has).sum();
    let together = wanted.iter().sum::<f64>() / all;
    let factor = (draw.between(HOTTEST.0, HOTTEST.1) / hottest).min(TOGETHER_MAX / together);
    scenario.operators.iter_mut().for_each(|operator| operator.cost *= factor);
}
