//! A random program and how it runs, as data: graph, plan, behaviour, live changes, ending.
//! Long because a case is read whole: what there can be in a program, in one place.
//! Nodes are numbered: sources first, then the input if there is one, then the stages.

use std::time::Duration;

use comporta::{Choice, OnPanic, Plan, Retry, StageSet, WhenFull};

use crate::chooser::{ADMISSIONS, Chooser};
use crate::dice::Dice;
use crate::faults::Faults;
use crate::later::Waits;
use crate::wiring::links;

#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) seed: u64,
    pub(crate) sources: Vec<SourceCase>,
    pub(crate) input: Option<InputCase>,
    pub(crate) stages: Vec<StageCase>,
    pub(crate) links: Vec<LinkCase>,
    /// How many descendants an event may have, so that every cycle ends.
    pub(crate) fuel: u64,
    pub(crate) pools: Vec<(usize, Choice)>,
    pub(crate) changes: Vec<Change>,
    pub(crate) ending: Ending,
    pub(crate) faults: Faults,
}

#[derive(Debug)]
pub(crate) struct SourceCase {
    pub(crate) events: u64,
    pub(crate) acknowledged: bool,
    /// It sometimes says it has nothing for a while.
    pub(crate) paced: bool,
    /// It gives so many events at most, whatever it is asked for.
    pub(crate) short: Option<usize>,
    pub(crate) replicas: usize,
    pub(crate) batch: usize,
    pub(crate) tier: u8,
    pub(crate) deadline: Option<Duration>,
}

#[derive(Debug)]
pub(crate) struct InputCase {
    pub(crate) events: u64,
    /// On real threads: pushed by a thread that waits for room, not tried by the tester.
    pub(crate) waits: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    OnePort,
    TwoPorts,
    /// One port; events are changed in place and sent on.
    InPlace,
    Grouped(usize, Duration),
    /// One port; handlers wait.
    Waiting(Waits),
}

#[derive(Debug)]
pub(crate) struct StageCase {
    pub(crate) shape: Shape,
    pub(crate) stateful: bool,
    pub(crate) ordered: bool,
    /// How many keys its events have, if it is keyed.
    pub(crate) keys: Option<u64>,
    pub(crate) autostart: bool,
    pub(crate) retain: bool,
    pub(crate) capacity: usize,
    pub(crate) when_full: WhenFull,
    pub(crate) instances: usize,
    pub(crate) replicas: usize,
    /// Its instances are changed live.
    pub(crate) resized: bool,
    /// Its failures are replayed live.
    pub(crate) replayed: bool,
    pub(crate) batch: usize,
    pub(crate) retry: Retry,
    pub(crate) on_panic: OnPanic,
    pub(crate) priority: i32,
    pub(crate) pool: usize,
    pub(crate) admission: Option<&'static str>,
    /// So many of a hundred events fail at first.
    pub(crate) fails: u64,
    pub(crate) emits_max: u64,
    /// What one event may emit through a port, if the plan says so.
    pub(crate) emit_max: Option<usize>,
    pub(crate) tries_to_send: bool,
    pub(crate) finish_emits: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    One,
    RoundRobin,
    ByKey,
}

/// A connector.
#[derive(Debug)]
pub(crate) struct LinkCase {
    pub(crate) from: usize,
    pub(crate) port: usize,
    pub(crate) way: Way,
    /// Stages, by node number.
    pub(crate) to: Vec<usize>,
    /// What happens at a full queue to what comes this way, if the plan says so.
    pub(crate) rule: Option<WhenFull>,
}

/// A change while it runs; stages by node number.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    Threads(usize, usize),
    Policy(usize, Choice),
    Instances(usize, usize),
    Capacity(usize, usize),
    Priority(usize, i32),
    Move(usize, usize),
    Enable(usize, bool),
    Admission(usize, &'static str),
    Replay(usize, usize),
    Nothing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Complete,
    Drain,
    Stop,
    /// The stage calls `quit` when it has handled so many events.
    Quit {
        stage: usize,
        after: u64,
    },
}

/// The most one call of a handler emits, `finish` included.
pub(crate) const EMITS_MAX: u64 = 5;

/// Soon, where handlers block, so that others stand in for their threads.
const STUCK_AFTER: Duration = Duration::from_millis(2);

const RULES: [WhenFull; 4] =
    [WhenFull::Block, WhenFull::Reject, WhenFull::DropNewest, WhenFull::DropOldest];

impl Case {
    pub(crate) fn new(seed: u64) -> Self {
        Case::under(seed, true)
    }

    /// As it was when there were three policies.
    pub(crate) fn of_old(seed: u64) -> Self {
        Case::under(seed, false)
    }

    fn under(seed: u64, all: bool) -> Self {
        let dice = &mut Dice::new(seed);
        let policies = &mut Chooser::new(!seed, all);
        let few = dice.chance(30);
        let sources: Vec<SourceCase> =
            (0..dice.between(1, 3)).map(|_| SourceCase::new(dice, few)).collect();
        let input = dice
            .chance(30)
            .then(|| InputCase { events: dice.below(40) as u64, waits: dice.chance(50) });
        let pools: Vec<(usize, Choice)> =
            (0..dice.between(1, 2)).map(|_| (dice.between(1, 4), policies.choose(dice))).collect();
        // Half of the cases lose nothing by plan, so that the strictest checks apply often.
        let lossless = dice.chance(50);
        let failing = dice.chance(if lossless { 30 } else { 60 });
        let mut stages: Vec<StageCase> = (0..dice.between(1, 12))
            .map(|_| StageCase::new(dice, lossless, failing, pools.len()))
            .collect();
        let heads = sources.len() + usize::from(input.is_some());
        let mut links = links(dice, heads, &mut stages);
        if !lossless && dice.chance(50) {
            links
                .iter_mut()
                .for_each(|link| link.rule = dice.chance(40).then(|| dice.pick(&RULES)));
        }
        let changes = (0..dice.pick(&[0, 0, 3, 10, 30]))
            .map(|_| Change::new(dice, policies, heads, &stages, pools.len(), lossless))
            .collect();
        let last = heads + stages.len() - 1;
        let ending = match dice.below(20) {
            0 => Ending::Drain,
            1 => Ending::Stop,
            2 => Ending::Quit { stage: dice.between(heads, last), after: dice.below(50) as u64 },
            _ => Ending::Complete,
        };
        let fuel = dice.pick(&[3, 8, 8, 20, 40]);
        let faults = Faults::default();
        let mut case =
            Case { seed, sources, input, stages, links, fuel, pools, changes, ending, faults };
        if !lossless {
            case.guard(&mut Dice::new(seed ^ 3));
        }
        if all {
            case.inject(&mut Dice::new(seed ^ 4));
            case.wait(&mut Dice::new(seed ^ 5));
            case.give_keys(&mut Dice::new(seed ^ 6));
            case.replicate(&mut Dice::new(seed ^ 7));
        }
        case
    }

    /// Puts admission controllers before some queues, in some cases.
    fn guard(&mut self, dice: &mut Dice) {
        if dice.chance(50) {
            return;
        }
        for source in &mut self.sources {
            source.tier = dice.below(3) as u8;
            source.deadline = dice.chance(30).then(|| Duration::from_micros(dice.pick(&[5, 500])));
        }
        for stage in &mut self.stages {
            stage.admission = dice.chance(40).then(|| dice.pick(&ADMISSIONS));
        }
        let heads = self.heads();
        for change in &mut self.changes {
            if matches!(change, Change::Nothing) && dice.chance(50) {
                let node = heads + dice.below(self.stages.len());
                *change = Change::Admission(node, dice.pick(&ADMISSIONS));
            }
        }
    }

    /// Gives keys to the events of some stages, in some cases.
    fn give_keys(&mut self, dice: &mut Dice) {
        if dice.chance(50) {
            return;
        }
        for stage in &mut self.stages {
            let may =
                !stage.stateful && !stage.ordered && !matches!(stage.shape, Shape::Grouped(..));
            stage.keys = (may && dice.chance(60)).then(|| dice.pick(&[1, 2, 3, 10, 1_000]));
        }
    }

    /// Has some sources and stages in several replicas, in some cases.
    fn replicate(&mut self, dice: &mut Dice) {
        if dice.chance(60) {
            return;
        }
        let alike = dice.between(2, 4); // so that chains are joined one to one
        let mut replicas = || match dice.below(4) {
            0 => 1,
            1 => dice.between(1, 4),
            _ => alike,
        };
        self.sources.iter_mut().for_each(|source| source.replicas = replicas());
        for node in self.heads()..self.nodes() {
            let may = !self.in_cycle(node);
            let mut ways = self.links.iter().filter(|link| link.to.contains(&node));
            let alone = ways.all(|link| link.to.len() == 1);
            let heads = self.heads();
            let stage = &mut self.stages[node - heads];
            let by_key = stage.keys.is_none() || alone && !stage.autostart;
            if may && !stage.stateful && !stage.ordered && by_key {
                stage.replicas = replicas();
            }
        }
    }

    /// The admission controllers that a node has in turn.
    fn admissions(&self, node: usize) -> impl Iterator<Item = &'static str> {
        let later = self.changes.iter().filter_map(move |change| match change {
            Change::Admission(at, name) if *at == node => Some(*name),
            _ => None,
        });
        self.stage(node).and_then(|stage| stage.admission).into_iter().chain(later)
    }

    /// Whether it may take the newest events first.
    pub(crate) fn may_turn(&self, node: usize) -> bool {
        let in_order = self.stage(node).is_none_or(|stage| {
            stage.stateful
                || stage.ordered
                || stage.keys.is_some()
                || matches!(stage.shape, Shape::Grouped(..))
        });
        !in_order && self.admissions(node).any(|name| name == ADMISSIONS[0])
    }

    /// Everything about it, a line each.
    pub(crate) fn lines(&self) -> String {
        let mut text = format!(
            "fuel {}, {:?}, pools {:?}\n{:?}\n",
            self.fuel, self.ending, self.pools, self.faults
        );
        let mut line =
            |what: &str, said: &dyn std::fmt::Debug| text += &format!("{what}: {said:?}\n");
        for (node, source) in self.sources.iter().enumerate() {
            line(&self.name(node), source);
        }
        if let Some(input) = &self.input {
            line("input", input);
        }
        for (at, stage) in self.stages.iter().enumerate() {
            line(&self.name(self.heads() + at), stage);
        }
        self.links.iter().for_each(|link| line("link", link));
        self.changes.iter().for_each(|change| line("change", change));
        text
    }

    /// Sources and inputs.
    pub(crate) fn heads(&self) -> usize {
        self.sources.len() + usize::from(self.input.is_some())
    }

    pub(crate) fn nodes(&self) -> usize {
        self.heads() + self.stages.len()
    }

    pub(crate) fn stage(&self, node: usize) -> Option<&StageCase> {
        node.checked_sub(self.heads()).and_then(|at| self.stages.get(at))
    }

    pub(crate) fn name(&self, node: usize) -> String {
        match node {
            _ if node < self.sources.len() => format!("source{node}"),
            _ if node < self.heads() => "input".to_owned(),
            _ => format!("n{node}"),
        }
    }

    /// How many copies of what a port sends there are at most.
    pub(crate) fn copies(&self, node: usize) -> u64 {
        let of = |port| self.links.iter().filter(|l| l.from == node && l.port == port).count();
        of(0).max(of(1)).max(1) as u64
    }

    pub(crate) fn plan(&self) -> Plan {
        let mut plan = Plan::new().threads(self.pools[0].0).policy(self.pools[0].1.clone());
        if let Some((threads, policy)) = self.pools.get(1) {
            let of = |node: &usize| self.stage(*node).is_some_and(|stage| stage.pool == 1);
            let names = (0..self.nodes()).filter(of).map(|node| self.name(node));
            let second = StageSet::of(names);
            plan = plan.cluster("second", |cluster| {
                cluster.threads(*threads).policy(policy.clone()).stages(second)
            });
        }
        for (node, source) in self.sources.iter().enumerate() {
            plan = plan.stage(self.name(node), |s| {
                let s = s.batch(source.batch).tier(source.tier).replicas(source.replicas);
                source.deadline.map_or(s.clone(), |deadline| s.deadline(deadline))
            });
        }
        for (at, stage) in self.stages.iter().enumerate() {
            plan = plan.stage(self.name(self.heads() + at), |s| {
                let s = match stage.admission {
                    Some(text) => s.admission(choice(text)),
                    None => s,
                };
                let s = stage.emit_max.map_or(s.clone(), |most| s.emit_max(most));
                let s = match stage.shape {
                    Shape::Waiting(Waits { timeout: Some(timeout), .. }) => s.timeout(timeout),
                    _ => s,
                };
                s.instances(stage.instances)
                    .replicas(stage.replicas)
                    .capacity(stage.capacity)
                    .when_full(stage.when_full)
                    .priority(stage.priority)
                    .batch(stage.batch)
                    .retry(stage.retry)
                    .on_panic(stage.on_panic)
            });
        }
        for link in &self.links {
            for (to, rule) in link.to.iter().flat_map(|to| link.rule.map(|rule| (to, rule))) {
                let name = format!("{} -> {}", self.name(link.from), self.name(*to));
                plan = plan.connector(name, |way| way.when_full(rule));
            }
        }
        if self.faults.blocks > 0 {
            plan = plan.stuck_after(STUCK_AFTER);
        }
        plan.drain(Duration::from_secs(30))
    }

    /// Whether the plan may lose what comes to a full queue.
    pub(crate) fn is_lossy(&self, node: usize) -> bool {
        let loses = |rule: WhenFull| rule != WhenFull::Block;
        let mut ways = self.links.iter().filter(|link| link.to.contains(&node));
        self.admissions(node).next().is_some()
            || self.stage(node).is_some_and(|stage| loses(stage.when_full))
            || ways.any(|link| link.rule.is_some_and(loses))
    }

    /// Whether a policy may set capacities, now or later.
    pub(crate) fn is_resized_by_policy(&self) -> bool {
        let changes = self.changes.iter().filter_map(|change| match change {
            Change::Policy(_, choice) => Some(choice),
            _ => None,
        });
        let mut all = self.pools.iter().map(|(_, choice)| choice).chain(changes);
        all.any(|choice| choice.name.starts_with("seda"))
    }

    /// Whether events can come back to a node.
    pub(crate) fn in_cycle(&self, node: usize) -> bool {
        self.comes_back(node, |_| true)
    }

    /// Whether events can come back to a node by way of such nodes alone.
    pub(crate) fn comes_back(&self, node: usize, by: impl Fn(usize) -> bool) -> bool {
        let mut seen = vec![false; self.nodes()];
        let mut todo = vec![node];
        while let Some(at) = todo.pop() {
            for to in self.links.iter().filter(|l| l.from == at).flat_map(|l| &l.to) {
                if *to == node {
                    return true;
                }
                if by(*to) && !std::mem::replace(&mut seen[*to], true) {
                    todo.push(*to);
                }
            }
        }
        false
    }

    pub(crate) fn replicas(&self, node: usize) -> usize {
        let source = self.sources.get(node).map(|source| source.replicas);
        source.or(self.stage(node).map(|stage| stage.replicas)).unwrap_or(1)
    }

    /// Whether it has one instance for as long as it runs.
    pub(crate) fn is_single(&self, node: usize) -> bool {
        self.replicas(node) == 1
            && self.stage(node).is_none_or(|stage| stage.instances == 1 && !stage.resized)
    }

    /// Whether what it sends into one queue carries ascending numbers.
    pub(crate) fn is_numbered(&self, node: usize) -> bool {
        if self.is_single(node) {
            return true;
        }
        let Some(stage) = self.stage(node).filter(|stage| stage.ordered && !stage.replayed) else {
            return false;
        };
        let mut feeders = self.links.iter().filter(|link| link.to.contains(&node));
        match (feeders.next(), feeders.next()) {
            (Some(link), None) if !stage.autostart && !self.in_cycle(node) => {
                self.is_numbered(link.from)
            }
            _ => false,
        }
    }
}

/// What a text chooses.
pub(crate) fn choice(text: &str) -> Choice {
    text.parse().expect("a name, or `name(key=value)`")
}

impl SourceCase {
    fn new(dice: &mut Dice, few: bool) -> Self {
        SourceCase {
            events: if few { dice.below(4) } else { dice.below(100) } as u64,
            acknowledged: dice.chance(30),
            paced: dice.chance(20),
            short: None,
            replicas: 1,
            batch: dice.pick(&[1, 2, 7, 256]),
            tier: 0,
            deadline: None,
        }
    }
}

impl StageCase {
    fn new(dice: &mut Dice, lossless: bool, failing: bool, pools: usize) -> Self {
        let shape = match dice.below(10) {
            0..5 => Shape::OnePort,
            5..8 => Shape::TwoPorts,
            _ => {
                Shape::Grouped(dice.between(1, 6), Duration::from_micros(dice.pick(&[0, 50, 2000])))
            }
        };
        let stateful = dice.chance(25);
        let ordered = !stateful && dice.chance(35);
        let instances = if stateful { 1 } else { dice.pick(&[1, 1, 2, 3, 4]) };
        let least = if let Shape::Grouped(size, _) = shape { size } else { 1 };
        let tries = if failing && dice.chance(50) { dice.between(1, 4) as u32 } else { 1 };
        StageCase {
            shape,
            stateful,
            ordered,
            keys: None,
            autostart: dice.chance(8),
            retain: dice.chance(20),
            capacity: dice.pick(&[1, 1, 2, 3, 5, 8, 50, 1000]).max(least),
            when_full: if lossless { WhenFull::Block } else { dice.pick(&RULES) },
            instances,
            replicas: 1,
            resized: !stateful && dice.chance(20),
            replayed: failing && dice.chance(30),
            batch: dice.pick(&[1, 1, 2, 5, 16, 256]),
            retry: Retry::new(tries, Duration::from_micros(dice.pick(&[0, 0, 20, 300]))),
            on_panic: if dice.chance(30) { OnPanic::Reset } else { OnPanic::Keep },
            priority: dice.between(0, 20) as i32 - 5,
            pool: dice.below(pools),
            admission: None,
            fails: if failing && dice.chance(50) { dice.pick(&[3, 10, 40]) } else { 0 },
            emits_max: dice.pick(&[1, 1, 2, 3, EMITS_MAX]),
            emit_max: None,
            tries_to_send: dice.chance(15),
            finish_emits: if dice.chance(20) { dice.between(1, 2) as u64 } else { 0 },
        }
    }
}

impl Change {
    fn new(
        dice: &mut Dice,
        policies: &mut Chooser,
        heads: usize,
        stages: &[StageCase],
        pools: usize,
        lossless: bool,
    ) -> Self {
        let at = dice.below(stages.len());
        let (node, stage) = (heads + at, &stages[at]);
        match dice.below(10) {
            0 => Change::Threads(dice.below(pools), dice.between(1, 4)),
            1 => Change::Policy(dice.below(pools), policies.choose(dice)),
            2 | 3 if stage.resized => Change::Instances(node, dice.between(1, 4)),
            4 => Change::Capacity(node, dice.pick(&[1, 2, 4, 10, 300])),
            5 => Change::Priority(node, dice.between(0, 20) as i32 - 5),
            6 => Change::Move(node, dice.below(pools)),
            7 if !lossless => Change::Enable(node, dice.chance(70)),
            8 if stage.replayed => Change::Replay(node, dice.between(1, 20)),
            _ => Change::Nothing,
        }
    }
}
