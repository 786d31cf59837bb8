//! What must hold: at every moment, and at the end of a run that came to its end.

use std::sync::atomic::Ordering::SeqCst;

use comporta::{Shed, Snapshot, StageSnapshot};

use crate::case::{Case, Change, EMITS_MAX, Shape, StageCase, Way};
use crate::chooser::SEDA_CAPACITY;
use crate::later::Waits;
use crate::site::Ledger;

/// A snapshot, a line a stage, with all of its numbers.
pub(crate) fn lines(snapshot: &Snapshot) -> String {
    snapshot.stages.iter().map(|stage| format!("{stage:?}\n")).collect()
}

/// What is known of a run while it runs.
pub(crate) struct Watch<'a> {
    pub(crate) case: &'a Case,
    pub(crate) ledger: &'a Ledger,
    /// The greatest capacity each queue has had, by node.
    capacities: Vec<usize>,
    changes: usize,
}

impl<'a> Watch<'a> {
    pub(crate) fn new(case: &'a Case, ledger: &'a Ledger) -> Self {
        let least = if case.is_resized_by_policy() { SEDA_CAPACITY } else { 0 };
        let capacity = |node| case.stage(node).map_or(0, |stage| stage.capacity.max(least));
        let capacities = (0..case.nodes()).map(capacity).collect();
        Watch { case, ledger, capacities, changes: 0 }
    }

    /// A change is about to be made.
    pub(crate) fn note(&mut self, change: &Change) {
        match change {
            Change::Capacity(node, capacity) => {
                self.capacities[*node] = self.capacities[*node].max(*capacity);
            }
            Change::Instances(..) => self.changes += 1,
            _ => {}
        }
    }

    /// What holds at every moment.
    pub(crate) fn now(&self, snapshot: &Snapshot) {
        for stage in &snapshot.stages {
            assert!(stage.adds_up(), "does not add up: {stage:?}");
        }
        let wrongs = self.ledger.wrongs();
        assert!(wrongs.is_empty(), "{wrongs:#?}");
        for (node, seen) in snapshot.stages.iter().enumerate() {
            if let Some(stage) = self.case.stage(node) {
                self.bounded(node, stage, seen);
            }
        }
    }

    fn bounded(&self, node: usize, stage: &StageCase, seen: &StageSnapshot) {
        let capacity = self.capacities[node] * stage.replicas;
        // A visit that stops early puts back what it did not come to; meanwhile others may have
        // filled the queue again.
        // Of a keyed stage, an event that is tried again waits in its lane.
        let whole = (stage.batch == 1 && stage.keys.is_none())
            || stage.ordered
            || matches!(stage.shape, Shape::Grouped(..));
        let put_back =
            if whole { 0 } else { self.most_instances(stage) * capacity.min(stage.batch) };
        let most = capacity + put_back;
        assert!(seen.queued <= most, "more than {capacity} queued: {seen:?}");
        let feeders = self.case.links.iter().filter(|link| link.to.contains(&node));
        let outboxes: usize = feeders.map(|link| self.outbox_most(link.from, capacity)).sum();
        assert!(seen.outboxed <= outboxes, "more than {outboxes} in outboxes: {seen:?}");
    }

    fn most_instances(&self, stage: &StageCase) -> usize {
        stage.replicas * if stage.resized { 4 * (self.changes + 2) } else { stage.instances }
    }

    /// How much a node may hold in outboxes for one queue of this capacity: each sender the room that it
    /// saw, which others may have used meanwhile, and what one event sends past that.
    fn outbox_most(&self, node: usize, capacity: usize) -> usize {
        let Some(stage) = self.case.stage(node) else {
            return self.case.replicas(node) * (capacity + 1);
        };
        let of_port =
            |port| self.case.links.iter().filter(move |l| l.from == node && l.port == port);
        let shares = of_port(0).flat_map(|l| &l.to).any(|to| of_port(1).any(|l| l.to.contains(to)));
        // An ordered visit is sent as one, and each of two ports sees the same room.
        let events = if stage.ordered || shares { stage.batch } else { 1 };
        self.most_instances(stage) * (capacity + EMITS_MAX as usize * events)
    }

    /// What may be reported: copies that were lost, and no fault of the runtime.
    pub(crate) fn problems(&self, problems: &[String]) {
        let loses = self.case.faults.lose_copies();
        let expected = |text: &String| loses && text.starts_with("an event could not be sent on:");
        assert!(problems.iter().all(expected), "{problems:#?}");
    }

    /// What holds when nothing is left to do.
    pub(crate) fn at_rest(&self, snapshot: &Snapshot) {
        self.now(snapshot);
        assert!(snapshot.adds_up(), "sent is not what was offered:\n{}", lines(snapshot));
        for stage in &snapshot.stages {
            let left = stage.queued + stage.in_flight + stage.outboxed;
            assert_eq!(left, 0, "left behind: {stage:?}");
        }
    }

    /// What holds when every stage has ended, nothing was cancelled.
    pub(crate) fn at_end(&self, snapshot: &Snapshot) {
        self.at_rest(snapshot);
        while self.ledger.injector.echoing.load(SeqCst) > 0 {
            std::thread::yield_now(); // a push came too late, and its count is about to be taken back
        }
        for (node, seen) in snapshot.stages.iter().enumerate() {
            let (site, c) = (&self.ledger.sites[node], &seen.counts);
            assert!(seen.ended, "has not ended: {seen:?}");
            assert_eq!(c.cancelled, 0, "{seen:?}");
            assert_eq!(site.handled.read().0, c.handled, "handled: {seen:?}");
            if !self.copies_fail(node) {
                assert_eq!(site.failed.read().0, c.failed, "failed: {seen:?}");
            }
            assert_eq!(site.sent(0).0 + site.sent(1).0, c.emitted, "emitted: {seen:?}");
        }
        for (node, source) in self.case.sources.iter().enumerate() {
            if source.acknowledged {
                let [opened, settled] = &self.ledger.sites[node].groups;
                assert_eq!(opened.load(SeqCst), settled.load(SeqCst), "groups of source {node}");
            }
        }
        for together in self.fed_together() {
            self.conserved(&together, snapshot);
        }
        self.lost_as_counted(snapshot);
        self.nothing_lost(snapshot);
    }

    /// Whether events may fail before the handler sees them: the stage keeps copies of them.
    fn copies_fail(&self, node: usize) -> bool {
        self.case.faults.clones > 0 && self.case.stage(node).is_some_and(|stage| stage.retain)
    }

    /// Lost is what could not be copied or had no key.
    fn lost_as_counted(&self, snapshot: &Snapshot) {
        let lost: u64 = snapshot.stages.iter().map(|stage| stage.counts.lost).sum();
        let injector = &self.ledger.injector;
        let panics: u64 =
            [&injector.clones, &injector.keys].map(|count| count.load(SeqCst)).iter().sum();
        if (0..self.case.nodes()).any(|node| self.copies_fail(node)) {
            assert!(lost <= panics, "lost {lost}, panics {panics}\n{}", lines(snapshot));
        } else {
            assert_eq!(lost, panics, "lost, panics\n{}", lines(snapshot));
        }
    }

    /// Stages grouped so that what a connector sends goes to one group.
    fn fed_together(&self) -> Vec<Vec<usize>> {
        let nodes = self.case.heads()..self.case.nodes();
        let mut group: Vec<usize> = (0..self.case.nodes()).collect();
        for link in self.case.links.iter().filter(|link| link.way != Way::One) {
            let into = group[link.to[0]];
            let merged: Vec<usize> = link.to.iter().map(|to| group[*to]).collect();
            group.iter_mut().filter(|g| merged.contains(g)).for_each(|g| *g = into);
        }
        let of = |g: usize| nodes.clone().filter(|node| group[*node] == g).collect::<Vec<_>>();
        nodes.clone().map(of).filter(|stages| !stages.is_empty()).collect()
    }

    /// What came to the stages is what was sent to them.
    fn conserved(&self, stages: &[usize], snapshot: &Snapshot) {
        let (mut sent, mut sent_sum, mut on_the_way) = (0, 0u64, 0);
        for link in self.case.links.iter().filter(|link| stages.contains(&link.to[0])) {
            let (count, sum) = self.ledger.sites[link.from].sent(link.port);
            on_the_way += snapshot.stages[link.from].counts.lost;
            sent += count;
            sent_sum = sent_sum.wrapping_add(sum);
        }
        let (mut came, mut lost, mut handled_sum) = (0, 0, 0u64);
        for &node in stages {
            let c = &snapshot.stages[node].counts;
            let autostart = u64::from(self.case.stage(node).is_some_and(|stage| stage.autostart));
            came += c.offered - c.refused - c.replayed - autostart;
            lost += c.failed + c.shed_on_entry() + c.shed_later() + autostart;
            handled_sum = handled_sum.wrapping_add(self.ledger.sites[node].handled.read().1);
        }
        // What was lost on the way may have been on the way to others too.
        assert!(
            came <= sent && (came == sent || on_the_way > 0),
            "offered to {stages:?}: {came}, sent to them: {sent}\n{}",
            lines(snapshot)
        );
        if lost + on_the_way == 0 {
            assert_eq!(handled_sum, sent_sum, "{stages:?} handled other events than were sent");
        }
    }

    /// Where the plan loses nothing, nothing is lost.
    fn nothing_lost(&self, snapshot: &Snapshot) {
        let disabled = self.case.changes.iter().any(|c| matches!(c, Change::Enable(_, false)));
        for (node, seen) in snapshot.stages.iter().enumerate() {
            let Some(stage) = self.case.stage(node) else { continue };
            let c = &seen.counts;
            if !self.case.is_lossy(node) && !disabled {
                let cyclic = self.case.in_cycle(node);
                let excused = if cyclic { c.shed(Shed::Cycle) + c.shed(Shed::Ended) } else { 0 };
                assert_eq!(c.shed_on_entry() + c.shed_later(), excused, "shed: {seen:?}");
            }
            let in_time = !matches!(stage.shape, Shape::Waiting(Waits { timeout: Some(_), .. }));
            if stage.fails + self.case.faults.drops == 0 && !self.copies_fail(node) && in_time {
                assert_eq!(c.failed, 0, "failed: {seen:?}");
            }
        }
    }
}
