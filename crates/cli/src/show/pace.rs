//! What snapshots say when they are laid side by side: rates, the fullest queue, the bottleneck.

use std::collections::VecDeque;
use std::time::Duration;

use comporta_model::graph::{Graph, Kind, StageId};
use comporta_model::plan::Plan;
use comporta_runtime::{Shed, Snapshot, StageSnapshot};

/// Rates are means over this long: enough for slow programs to show some, short enough to follow.
const WINDOW: Duration = Duration::from_secs(2);
/// A queue this full holds its senders up, or is about to.
const FULL: f64 = 0.8;
/// A queue this empty is waited at.
const EMPTY: f64 = 0.2;

/// Where events enter a program, where they leave it, and what leads where.
pub(super) struct Shape {
    pub(super) enters: Vec<bool>,
    next: Vec<Vec<usize>>,
    /// Whether no output port of a stage leads on.
    last: Vec<bool>,
    /// Whether the error port of a stage is connected.
    sends_errors: Vec<bool>,
}

impl Shape {
    pub(super) fn of(graph: &Graph, plan: &Plan) -> Self {
        let enters = |kind: &Kind| matches!(kind, Kind::Source | Kind::Input);
        let every = plan.every.stub.unwrap_or(false);
        let is_stub = |at: usize| {
            let spec = &graph.stages[at];
            let said = plan.stages.get(&*spec.name).and_then(|stage| stage.stub);
            spec.kind == Kind::Stage && said.unwrap_or(every)
        };
        let mut next = vec![Vec::new(); graph.stages.len()];
        // What comes to a stub goes no further.
        let connectors = graph.connectors.iter();
        for connector in connectors.filter(|connector| !is_stub(connector.from.index())) {
            next[connector.from.index()].extend(connector.to.iter().map(|to| to.index()));
        }
        let leads = |at: usize| {
            let mut own = graph.connectors.iter().filter(|way| way.from.index() == at);
            !is_stub(at) && own.any(|way| way.port != graph.stages[at].error_port())
        };
        let ids = || (0..graph.stages.len()).zip(0u32..);
        Shape {
            enters: graph.stages.iter().map(|stage| enters(&stage.kind)).collect(),
            next,
            last: ids().map(|(at, _)| !leads(at)).collect(),
            sends_errors: ids().map(|(_, id)| graph.sends_errors(StageId(id))).collect(),
        }
    }

    /// How many events have entered the program.
    pub(super) fn entered(&self, snapshot: &Snapshot) -> u64 {
        let enter = snapshot.stages.iter().zip(&self.enters).filter(|(_, enters)| **enters);
        enter.map(|(stage, _)| stage.counts.emitted).sum()
    }

    /// How many have been handled by a stage that leads nowhere.
    pub(super) fn left(&self, snapshot: &Snapshot) -> u64 {
        let stages = snapshot.stages.iter().zip(&self.enters).zip(&self.last);
        let last = stages.filter(|((_, enters), last)| !**enters && **last);
        last.map(|((stage, _), _)| stage.counts.handled).sum()
    }

    /// Whether what a stage sends goes nowhere.
    pub(super) fn is_last(&self, at: usize) -> bool {
        self.last[at]
    }

    /// Whether the failed events of a stage go on through the graph.
    pub(super) fn sends_errors(&self, at: usize) -> bool {
        self.sends_errors[at]
    }

    /// What a stage has done: for one where events enter, what it has sent.
    fn done(&self, at: usize, stage: &StageSnapshot) -> u64 {
        if self.enters[at] { stage.counts.emitted } else { stage.counts.handled }
    }
}

/// The last moments of a run, oldest first; never empty.
pub(super) struct Pace {
    seen: VecDeque<Snapshot>,
}

impl Pace {
    pub(super) fn from(first: Snapshot) -> Self {
        Pace { seen: VecDeque::from([first]) }
    }

    pub(super) fn see(&mut self, snapshot: Snapshot) {
        while self.seen.get(1).is_some_and(|next| snapshot.elapsed - next.elapsed >= WINDOW) {
            self.seen.pop_front();
        }
        self.seen.push_back(snapshot);
    }

    pub(super) fn now(&self) -> &Snapshot {
        &self.seen[self.seen.len() - 1]
    }

    /// So many a second, lately, of what `count` counts.
    pub(super) fn rate(&self, count: impl Fn(&Snapshot) -> u64) -> f64 {
        let (first, last) = (&self.seen[0], self.now());
        let time = last.elapsed.saturating_sub(first.elapsed);
        per_second(count(last).saturating_sub(count(first)), time)
    }

    pub(super) fn stage_rate(&self, shape: &Shape, at: usize) -> f64 {
        self.rate(|snapshot| shape.done(at, &snapshot.stages[at]))
    }

    /// How full the queue of a stage was lately, from 0 to 1.
    fn fill(&self, at: usize) -> f64 {
        self.mean(|snapshot| fill(&snapshot.stages[at]))
    }

    /// How much the queue of a stage held up its senders lately, from 0 to 1. It does while one waits
    /// for room, and senders are not woken for every place that becomes free.
    fn pressure(&self, at: usize) -> f64 {
        self.mean(|snapshot| match &snapshot.stages[at] {
            stage if stage.outboxed > 0 => 1.0,
            stage => fill(stage),
        })
    }

    /// How many instances of a stage were busy lately.
    pub(super) fn busy(&self, at: usize) -> usize {
        let busy = |stage: &StageSnapshot| stage.instances - stage.idle.min(stage.instances);
        self.mean(|snapshot| busy(&snapshot.stages[at]) as f64).round() as usize
    }

    fn mean(&self, of: impl Fn(&Snapshot) -> f64) -> f64 {
        self.seen.iter().map(of).sum::<f64>() / self.seen.len() as f64
    }

    /// The stage whose queue is the fullest, if one holds anything.
    pub(super) fn fullest(&self) -> Option<usize> {
        let fills = (0..self.now().stages.len()).map(|at| (at, self.fill(at)));
        // The first of equals: nearer to the sources, where a jam ends up.
        let fullest = fills.rev().max_by(|a, b| a.1.total_cmp(&b.1))?;
        (fullest.1 > 0.0 && self.now().stages[fullest.0].queued > 0).then_some(fullest.0)
    }

    /// The stage that plainly holds the others up: it is busy, its queue is full, and those it leads
    /// to are empty. A queue that sheds holds nobody up, however full it is; a stage that is not busy
    /// waits for a thread.
    pub(super) fn bottleneck(&self, shape: &Shape) -> Option<usize> {
        let sheds = |at: usize| sheds(&self.now().stages[at]);
        let holds_up = |at: &usize| {
            let mut after = shape.next[*at].iter().filter(|next| *next != at);
            let free = after.all(|next| self.pressure(*next) <= EMPTY || sheds(*next));
            self.pressure(*at) >= FULL && self.busy(*at) > 0 && !sheds(*at) && free
        };
        let found = (0..self.now().stages.len()).filter(holds_up);
        found.max_by(|a, b| self.pressure(*a).total_cmp(&self.pressure(*b)))
    }
}

/// Whether a queue is as good as full.
pub(super) fn is_nearly_full(stage: &StageSnapshot) -> bool {
    fill(stage) >= FULL
}

/// How full a queue is, from 0 to 1.
pub(super) fn fill(stage: &StageSnapshot) -> f64 {
    match stage.capacity {
        0 => 0.0,
        capacity => (stage.queued as f64 / capacity as f64).min(1.0),
    }
}

/// Whether a queue lets events go when it is full, as far as can be seen.
pub(super) fn sheds(stage: &StageSnapshot) -> bool {
    let of_a_full_queue = [Shed::Rejected, Shed::Newest, Shed::Oldest];
    let by_choice = |why: &Shed| of_a_full_queue.contains(why) || why.is_admission();
    Shed::ALL.iter().filter(|why| by_choice(why)).any(|why| stage.counts.shed(*why) > 0)
}

/// So many in this time, as so many a second.
pub(super) fn per_second(n: u64, time: Duration) -> f64 {
    if time.is_zero() { 0.0 } else { n as f64 / time.as_secs_f64() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::show::samples;

    #[test]
    fn rates_are_those_of_the_last_two_seconds() {
        let (shape, first) = samples::pipeline();
        let mut pace = Pace::from(samples::at(&first, 0, &[0, 0, 0]));
        assert_eq!(pace.stage_rate(&shape, 1), 0.0);
        pace.see(samples::at(&first, 1_000, &[500, 400, 300]));
        assert_eq!((pace.stage_rate(&shape, 0), pace.stage_rate(&shape, 1)), (500.0, 400.0));
        assert_eq!(pace.rate(|s| shape.entered(s)), 500.0);
        assert_eq!(pace.rate(|s| shape.left(s)), 300.0);
        pace.see(samples::at(&first, 9_000, &[500, 400, 300]));
        pace.see(samples::at(&first, 10_000, &[1_500, 400, 300]));
        pace.see(samples::at(&first, 11_000, &[2_500, 400, 300]));
        assert_eq!(pace.stage_rate(&shape, 0), 1_000.0, "what was long ago is forgotten");
    }

    #[test]
    fn a_full_queue_before_an_empty_one_is_a_bottleneck_and_one_before_a_full_one_is_not() {
        let (shape, first) = samples::pipeline();
        let with = |work, show| Pace::from(samples::queued(&first, &[0, work, show]));
        assert_eq!(with(0, 0).fullest(), None);
        assert_eq!((with(10, 30).fullest(), with(10, 30).bottleneck(&shape)), (Some(2), None));
        assert_eq!(with(100, 0).bottleneck(&shape), Some(1));
        assert_eq!(with(100, 95).bottleneck(&shape), Some(2), "`work` waits for `show`");
        assert_eq!(with(100, 50).bottleneck(&shape), None, "not plain");
    }

    #[test]
    fn a_queue_that_sheds_is_no_bottleneck_and_hides_none() {
        let (shape, _, lossy) = samples::lossy();
        let mut snapshot = samples::queued(&lossy, &[0, 0, 4]);
        let pace = Pace::from(snapshot.clone());
        assert_eq!((pace.fullest(), pace.bottleneck(&shape)), (Some(2), None));
        let spread = &mut snapshot.stages[1]; // it has ended, and its instances are gone
        (spread.queued, spread.instances, spread.idle) = (spread.capacity, 1, 0);
        assert_eq!(Pace::from(snapshot).bottleneck(&shape), Some(1));
    }

    #[test]
    fn a_stage_whose_senders_wait_is_a_bottleneck_though_its_queue_is_no_longer_full() {
        let (shape, first) = samples::pipeline();
        let mut snapshot = samples::queued(&first, &[0, 27, 0]);
        snapshot.stages[1].outboxed = 5;
        let pace = Pace::from(snapshot.clone());
        assert_eq!(pace.bottleneck(&shape), Some(1));
        assert_eq!(fill(&snapshot.stages[1]), 0.27, "what is shown is what is there");
        assert!(!is_nearly_full(&snapshot.stages[1]));
    }

    #[test]
    fn a_stage_that_is_idle_is_no_bottleneck_however_full_its_queue_is() {
        let (shape, first) = samples::pipeline();
        let mut snapshot = samples::queued(&first, &[0, 100, 0]);
        assert_eq!(Pace::from(snapshot.clone()).bottleneck(&shape), Some(1));
        snapshot.stages[1].idle = snapshot.stages[1].instances;
        let pace = Pace::from(snapshot);
        assert_eq!((pace.busy(1), pace.bottleneck(&shape)), (0, None));
        assert_eq!(pace.fullest(), Some(1));
    }

    #[test]
    fn one_moment_of_a_full_queue_makes_no_bottleneck() {
        let (shape, first) = samples::pipeline();
        let mut pace = Pace::from(samples::queued(&first, &[0, 0, 0]));
        pace.see(samples::queued(&first, &[0, 100, 0]));
        assert_eq!((pace.fullest(), pace.bottleneck(&shape)), (Some(1), None));
    }
}
