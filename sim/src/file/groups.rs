//! Groups become nodes and operators. The operators of a group go round its nodes; the n-th of a group takes from the n-th
//! of the group before it where they are as many, and else they are dealt out evenly.

use std::ops::Range;

use comporta_model::plan::nearest;
use comporta_placement::Choice;
use comporta_stats::Dice;

use super::fields::{Fields, Named};
use super::mistakes::Mistakes;
use crate::rates::{Arrivals, Rates};
use crate::run::policy::rehearse;
use crate::scenario::{
    CORES_MAX, Node, Operator, REPLICAS_MAX, Scenario, Service, TIME_MAX, Window,
};

/// Nodes or operators that a group may have.
const COUNT_MAX: usize = 100_000;

/// Seconds that a level of a rate lasts at least.
const PERIOD_MIN_S: f64 = 0.1;
/// Levels that a rate of chance may have in a run: they are kept for every source.
const LEVELS_MAX: f64 = 100_000.0;

/// The places of what a group became.
pub(super) struct Group {
    name: String,
    /// Where it is named in the file.
    at: Range<usize>,
    first: usize,
    count: usize,
}

/// The groups of a file.
pub(super) struct Groups {
    nodes: Vec<Group>,
    operators: Vec<Group>,
}

impl Groups {
    /// Where the group of a node or an operator is named.
    pub(super) fn place(&self, name: &str) -> Option<Range<usize>> {
        let is_of = |group: &&Group| {
            (0..group.count).any(|at| numbered(&group.name, group.count, at) == name)
        };
        // Of two that make the same name, the later one is at fault.
        let all = self.nodes.iter().chain(&self.operators);
        all.rev().find(is_of).map(|group| group.at.clone())
    }
}

pub(super) fn fill(
    scenario: &mut Scenario,
    nodes: Vec<Named<'_>>,
    operators: Vec<Named<'_>>,
    mistakes: &mut Mistakes,
) -> Groups {
    let mut groups = Groups { nodes: Vec::new(), operators: Vec::new() };
    for named in nodes {
        groups.nodes.push(add_nodes(scenario, named, mistakes));
    }
    for named in operators {
        let group = add_operators(scenario, named, &groups, mistakes);
        groups.operators.push(group);
    }
    groups
}

fn numbered(name: &str, count: usize, at: usize) -> String {
    if count == 1 { name.to_owned() } else { format!("{name}{}", at + 1) }
}

fn add_nodes(scenario: &mut Scenario, named: Named<'_>, mistakes: &mut Mistakes) -> Group {
    let Named { name, mut fields } = named;
    let named_at = fields.at.clone();
    let count = fields.count("count", 1, COUNT_MAX, mistakes).unwrap_or(1);
    let mut node = Node::new("");
    if let Some(cores) = fields.count("cores", 1, CORES_MAX, mistakes) {
        node.cores = cores;
    }
    if let Some(speed) = fields.number("speed", mistakes) {
        node.speed = speed;
    }
    fields.bytes("memory", &mut node.memory, mistakes);
    fields.bytes("memory_taken", &mut node.memory_taken, mistakes);
    fields.bytes("memory_bandwidth", &mut node.memory_bandwidth, mistakes);
    fields.bytes("disk", &mut node.disk, mistakes);
    fields.time("seek", &mut node.seek, mistakes);
    fields.bytes("network", &mut node.network, mistakes);
    node.download = fields.size("download", mistakes);
    if let Some(cores) = fields.number("background", mistakes) {
        node.background = Rates::steady(cores);
    }
    if let Some((choice, at)) = fields.text("policy", mistakes) {
        let choice = Choice::from(choice.as_str());
        match rehearse(&choice, node.cores) {
            Ok(()) => node.policy = Some(choice),
            Err(wrong) => mistakes.add(wrong, Some(at)),
        }
    }
    clock(&mut fields, &mut node, mistakes);
    node.silent_from = fields.seconds("silent_from", mistakes);
    fields.flag("elastic", &mut node.elastic, mistakes);
    fields.flag("reserved", &mut node.reserved, mistakes);
    fields.flag("standby", &mut node.standby, mistakes);
    fields.finish(mistakes);
    let first = scenario.nodes.len();
    for at in 0..count {
        scenario.nodes.push(Node { name: numbered(&name, count, at), ..node.clone() });
    }
    Group { name, at: named_at, first, count }
}

/// What the clock of a node shows.
fn clock(fields: &mut Fields<'_>, node: &mut Node, mistakes: &mut Mistakes) {
    let both = fields.has("clock_ahead") && fields.has("clock_behind");
    let ahead = fields.seconds("clock_ahead", mistakes);
    let behind = fields.seconds("clock_behind", mistakes);
    if both {
        let label = "expected `clock_ahead` or `clock_behind`".to_owned();
        mistakes.label("a clock is ahead or behind", fields.at.clone(), label);
    }
    node.clock_ahead = ahead.unwrap_or(0.0) - behind.unwrap_or(0.0);
    if let Some(rate) = fields.number("clock_rate", mistakes) {
        node.clock_rate = rate;
    }
}

fn add_operators(
    scenario: &mut Scenario,
    named: Named<'_>,
    groups: &Groups,
    mistakes: &mut Mistakes,
) -> Group {
    let Named { name, mut fields } = named;
    let named_at = fields.at.clone();
    let wanted = fields.count("count", 1, COUNT_MAX, mistakes);
    let from: Vec<&Group> = fields
        .names("from", mistakes)
        .iter()
        .filter_map(|(name, at)| find("operators before it", name, at, &groups.operators, mistakes))
        .collect();
    let count = wanted.unwrap_or(1);
    let replicas = fields.count("replicas", 1, REPLICAS_MAX, mistakes).unwrap_or(1);
    let on = fields.names("on", mistakes);
    let places: Vec<usize> = on
        .iter()
        .filter_map(|(name, at)| find("nodes", name, at, &groups.nodes, mistakes))
        .flat_map(|home| home.first..home.first + home.count)
        .collect();
    let at = on.first().map_or(fields.at.clone(), |(_, at)| at.clone());
    if on.is_empty() {
        mistakes.label(format!("`{name}` runs nowhere"), at, "say `on = \"NODES\"`".to_owned());
    } else if !places.is_empty() && places.len() < replicas {
        let title = format!("{replicas} replicas do not fit on {} nodes", places.len());
        mistakes.label(title, at, "replicas of one operator never share a node".to_owned());
    }
    let operator = operator(&mut fields, mistakes);
    let rate = Rate::read(&mut fields, scenario.duration, mistakes);
    fields.finish(mistakes);
    let mut dice = Dice::new(scenario.seed ^ 0x5ca1_ab1e);
    let first = scenario.operators.len();
    for at in 0..count {
        let nodes = deal(&places, at, replicas);
        let inputs = from.iter().flat_map(|group| inputs(group, at, count)).collect();
        let rates = rate.as_ref().map(|rate| rate.rates(scenario.duration, &mut dice));
        let name = numbered(&name, count, at);
        scenario.operators.push(Operator { name, nodes, inputs, rates, ..operator.clone() });
    }
    Group { name, at: named_at, first, count }
}

/// The nodes of the `at`-th operator: the first replicas go round, the others follow, further away
/// with each round, so that operators that share one node do not share the next as well.
fn deal(places: &[usize], at: usize, replicas: usize) -> Vec<usize> {
    let (count, first) = (places.len(), at % places.len().max(1));
    let place = |copy: usize| match copy {
        0 => places[first],
        _ => places[(first + 1 + (at / count + copy - 1) % (count - 1)) % count],
    };
    (0..replicas.min(count)).map(place).collect()
}

/// Those of a group that the `at`-th of `count` takes from.
fn inputs(group: &Group, at: usize, count: usize) -> Vec<usize> {
    if group.count < count {
        return vec![group.first + at % group.count];
    }
    (at..group.count).step_by(count).map(|one| group.first + one).collect()
}

fn find<'g>(
    what: &str,
    name: &str,
    at: &Range<usize>,
    groups: &'g [Group],
    mistakes: &mut Mistakes,
) -> Option<&'g Group> {
    let found = groups.iter().find(|group| group.name == name);
    if found.is_none() {
        let names = groups.iter().map(|group| group.name.as_str());
        let label = match nearest(name, names.clone()) {
            Some(near) => format!("did you mean `{near}`?"),
            None if groups.is_empty() => "there are none".to_owned(),
            None => format!("there are: {}", names.collect::<Vec<_>>().join(", ")),
        };
        mistakes.label(format!("there are no {what} called `{name}`"), at.clone(), label);
    }
    found
}

/// All of an operator that is the same for its group.
fn operator(fields: &mut Fields<'_>, mistakes: &mut Mistakes) -> Operator {
    let mut operator = Operator::new("", Vec::new(), Vec::new());
    fields.time("cost", &mut operator.cost, mistakes);
    if let Some((word, at)) = fields.text("service", mistakes) {
        match word.as_str() {
            "fixed" => operator.service = Service::Fixed,
            "exponential" => operator.service = Service::Exponential,
            _ => mistakes.label(
                "there is no such service",
                at,
                "expected `fixed` or `exponential`".to_owned(),
            ),
        }
    }
    if let Some((word, at)) = fields.text("arrivals", mistakes) {
        match word.as_str() {
            "poisson" => operator.arrivals = Arrivals::Poisson,
            "even" => operator.arrivals = Arrivals::Even,
            _ => mistakes.label(
                "there are no such arrivals",
                at,
                "expected `poisson` or `even`".to_owned(),
            ),
        }
    }
    operator.parallel = fields.count("parallel", 1, CORES_MAX, mistakes);
    if let Some(mut window) = fields.table("window", "a window", mistakes) {
        let size = window.count("size", 1, u32::MAX as usize, mistakes).unwrap_or(1) as u32;
        let slide = window.count("slide", 1, u32::MAX as usize, mistakes);
        operator.window = Some(Window { size, slide: slide.map_or(size, |slide| slide as u32) });
        window.finish(mistakes);
    }
    fields.bytes("state", &mut operator.state, mistakes);
    fields.bytes("memory", &mut operator.memory, mistakes);
    if let Some(touches) = fields.count("touches", 0, 1_000_000, mistakes) {
        operator.touches = touches as u32;
    }
    fields.bytes("copies", &mut operator.copies, mistakes);
    fields.bytes("reads", &mut operator.reads, mistakes);
    fields.bytes("writes", &mut operator.writes, mistakes);
    fields.bytes("event_bytes", &mut operator.event_bytes, mistakes);
    if let Some(share) = fields.number("fails", mistakes) {
        operator.fails = share;
    }
    fields.flag("pinned", &mut operator.pinned, mistakes);
    operator
}

/// How often the sources of a group send.
enum Rate {
    Steady(f64),
    /// The same levels for all of them.
    Levels {
        levels: Vec<f64>,
        period: f64,
        ramp: f64,
    },
    /// High with this chance in each period, for each of them apart.
    Chance {
        low: f64,
        high: f64,
        share: f64,
        period: f64,
        ramp: f64,
    },
}

impl Rate {
    fn read(fields: &mut Fields<'_>, duration: f64, mistakes: &mut Mistakes) -> Option<Self> {
        if !fields.has_table("rate") {
            return fields.number("rate", mistakes).map(Rate::Steady);
        }
        let mut rate = fields.table("rate", "a rate", mistakes)?;
        let (mut period, mut ramp) = (60.0, 0.0);
        rate.time("period", &mut period, mistakes);
        rate.time("ramp", &mut ramp, mistakes);
        if period < PERIOD_MIN_S || ramp > period {
            let label =
                "expected a period of at least 100ms, and a ramp that is no longer".to_owned();
            mistakes.label("this rate never comes to rest", rate.at.clone(), label);
            (period, ramp) = (60.0, 0.0);
        }
        let is_chance = rate.has("low") || rate.has("high") || rate.has("share");
        let read = if is_chance {
            let low = rate.number("low", mistakes).unwrap_or(0.0);
            let high = rate.number("high", mistakes).unwrap_or(low);
            let share = rate.number("share", mistakes).unwrap_or(0.5);
            if share > 1.0 {
                let label = "expected a share, from 0 to 1".to_owned();
                mistakes.label("this does not fit `share`", rate.at.clone(), label);
            }
            if duration.min(TIME_MAX) / period > LEVELS_MAX {
                let label = format!("expected a period of which the run has {LEVELS_MAX} at most");
                mistakes.label("this rate changes too often", rate.at.clone(), label);
                period = duration;
            }
            Some(Rate::Chance { low, high, share, period, ramp })
        } else {
            let at = rate.at.clone();
            let levels = rate.numbers("levels", mistakes);
            if levels.is_none() && !rate.has("levels") {
                let label = "expected a number, `levels`, or `low` and `high`".to_owned();
                mistakes.label("this rate has no levels", at, label);
            }
            levels.map(|levels| Rate::Levels { levels, period, ramp })
        };
        rate.finish(mistakes);
        read
    }

    fn rates(&self, duration: f64, dice: &mut Dice) -> Rates {
        match self {
            Rate::Steady(rate) => Rates::steady(*rate),
            Rate::Levels { levels, period, ramp } => Rates::levels(levels, *period, *ramp),
            Rate::Chance { low, high, share, period, ramp } => {
                let chance = (share * 1e6) as usize;
                let level = |_| if dice.below(1_000_000) < chance { *high } else { *low };
                let periods = (duration.min(TIME_MAX) / period).ceil() as usize;
                let levels: Vec<f64> = (0..periods.max(1)).map(level).collect();
                Rates::levels(&levels, *period, *ramp)
            }
        }
    }
}
