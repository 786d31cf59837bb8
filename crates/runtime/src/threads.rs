//! The threads of a run: hired and dismissed with the threads of pools; the clock among them, which
//! fires timers and looks after the others: those that sleep although there is work, and those that do
//! not return from a visit.

use std::time::Duration;

use comporta_model::event::Time;

use crate::core::{Core, PATIENCE};
use crate::path::work::Worker;
use crate::pool::Pool;
use crate::sync::{Arc, Relaxed, spawn};
use crate::timer::HURRY;
use crate::workers::WorkerGroup;

/// A visit that takes longer is no reason not to wake others: ten times what a visit should take.
pub(crate) const LONG: Duration = Duration::from_millis(1);

impl Core {
    /// Hires `n` more workers for a workers and gives each a thread.
    fn spawn_workers(self: &Arc<Self>, workers: usize, n: usize, stand_in: bool) {
        for _ in 0..n {
            let member = self.worker_groups[workers].spawn_workers(stand_in);
            if self.is_tested() {
                continue; // the stepper steps it
            }
            let name = format!(
                "{}-{}-{}",
                self.graph.name, self.worker_groups[workers].name, member.number
            );
            let worker = Worker::new(&self.worker_groups[workers], member);
            self.thread(name, move |core| worker.run(core));
        }
    }

    /// Gives a pool so many threads more, and its workers with it.
    pub(crate) fn add_threads(self: &Arc<Self>, pool: &Pool, n: usize) {
        self.spawn_workers(pool.cluster, n, false);
        let mut ready = Vec::new();
        pool.add(n, &mut ready);
        self.make_all_ready(ready);
    }

    /// Takes so many threads from a pool, and its workers with it. There are so many.
    pub(crate) fn cut_threads(&self, pool: &Pool, n: usize) {
        pool.cut(n);
        self.worker_groups[pool.cluster].dismiss(n, false);
    }

    /// A thread of this program, counted.
    pub(crate) fn thread(
        self: &Arc<Self>,
        name: String,
        body: impl FnOnce(&Arc<Core>) + Send + 'static,
    ) {
        self.run.lock().threads += 1;
        let core = self.clone();
        drop(spawn(name, move || {
            body(&core);
            let mut run = core.run.lock();
            run.threads -= 1;
            core.changed.notify_all();
        }));
    }

    /// The life of the clock thread: fires timers, and names handlers that are stuck.
    pub(crate) fn keep_time(self: &Arc<Self>) {
        let mut due = Vec::new();
        let (mut watched, mut looked) = (Time::ZERO, Time::ZERO);
        let beat = (self.settings.stuck_after / 4).max(Duration::from_millis(1));
        loop {
            self.timers.due(self.clock.now(), &mut due);
            for alarm in due.drain(..) {
                self.sound(alarm);
            }
            let now = self.clock.now();
            if now.since(looked) >= HURRY && self.timers.was_hurried() {
                looked = now;
                self.look(now);
            }
            if now.since(watched) >= beat {
                watched = now;
                self.watch(now);
            }
            if !self.timers.wait(now, beat) {
                return;
            }
        }
    }

    /// Looks after those who were not woken because enough others are at work: whether these are.
    fn look(&self, now: Time) {
        for workers in &self.worker_groups {
            let members = workers.members();
            let mut away = false;
            for member in members.iter() {
                if member.note_long(now, LONG) {
                    workers.sleep.down();
                    away = true;
                    // It will not come to them soon, and others look there when they have nothing else.
                    self.make_all_ready(member.local.take_all());
                }
            }
            if !workers.shared.is_empty() || members.iter().any(|member| !member.local.is_empty()) {
                if away { workers.sleep.work_left() } else { workers.sleep.work_made() }
            }
        }
    }

    /// Stands in for workers that have been in one visit for too long.
    pub(crate) fn watch(self: &Arc<Self>, now: Time) {
        let bound = match self.run.lock().left {
            0 => self.settings.stuck_after,
            _ => self.settings.stuck_after.min(PATIENCE / 2), // what is left is needed to end
        };
        for workers in &self.worker_groups {
            let stuck = self.stages_visited(workers, now, bound);
            let stand_ins = workers.members().iter().filter(|member| member.stand_in).count();
            for stage in stuck.iter().skip(stand_ins) {
                let name = &self.graph.stages[*stage as usize].name;
                tracing::warn!(app = %self.graph.name, stage = %name, "a handler is stuck; another worker stands in");
            }
            let mut ready = Vec::new();
            for pool in self.pools.iter().filter(|pool| pool.cluster == workers.cluster) {
                let here = stuck.iter().filter(|stage| self.pool_of(**stage) == pool.index);
                pool.set_stand_ins(here.count(), &mut ready);
            }
            self.make_all_ready(ready);
            self.spawn_workers(workers.cluster, stuck.len().saturating_sub(stand_ins), true);
            workers.dismiss(stand_ins.saturating_sub(stuck.len()), true);
        }
    }

    /// The stages whose handlers have not returned for longer than `bound`.
    pub(crate) fn in_visits(&self, bound: Duration) -> Vec<String> {
        let now = self.clock.now();
        let name = |stage: u32| self.graph.stages[stage as usize].name.to_string();
        let late =
            self.worker_groups.iter().flat_map(|workers| self.stages_visited(workers, now, bound));
        late.map(name).collect()
    }

    fn stages_visited(&self, workers: &WorkerGroup, now: Time, bound: Duration) -> Vec<u32> {
        let members = workers.members();
        let late =
            members.iter().filter(|member| member.in_visit(now).is_some_and(|it| it > bound));
        late.map(|member| member.stage.load(Relaxed)).collect()
    }
}
