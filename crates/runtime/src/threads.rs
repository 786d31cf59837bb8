//! The threads of a run: spawned and retired with the threads of pools; the clock among them, which
//! fires timers and looks after the others: those that sleep although there is work, and those that do
//! not return from a visit.

use std::collections::VecDeque;
use std::io;
use std::task::Waker;
use std::time::Duration;

use comporta_model::event::Time;

use crate::core::Core;
use crate::effects::{Effects, Visit};
use crate::log;
use crate::path::work::Worker;
use crate::pool::Pool;
use crate::run_state::PATIENCE;
use crate::sync::{Arc, Relaxed, spawn, thread};
use crate::timer::{Alarm, Callers, HURRY, PolicyTimer};
use crate::user;
use crate::workers::{AnyTray, WorkerGroup};

/// A visit that takes longer is no reason not to wake others: ten times what a visit should take.
pub(crate) const LONG_VISIT: Duration = Duration::from_millis(1);

fn call_waker(waker: Waker) {
    let _ = user::call(|| waker.wake());
}

impl Core {
    /// Adds `n` workers to a group, each with a thread.
    ///
    /// # Errors
    /// The system has no more threads.
    fn spawn_workers(self: &Arc<Self>, group: usize, n: usize, stand_in: bool) -> io::Result<()> {
        for _ in 0..n {
            let workers = &self.worker_groups[group];
            let handle = workers.add(stand_in);
            if self.is_tested() {
                continue; // the stepper steps it
            }
            let name = format!("{}-{}-{}", self.graph.name, workers.name, handle.number);
            let worker = Worker::new(workers, handle.clone());
            if let Err(error) = self.spawn(name, move |core| worker.run(core)) {
                workers.gone(&handle);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Gives a pool so many threads more, and its group with it: all of them, or none.
    ///
    /// # Errors
    /// The system has fewer.
    pub(crate) fn add_threads(self: &Arc<Self>, pool: &Pool, n: usize) -> Result<(), String> {
        for added in 0..n {
            if let Err(error) = self.spawn_workers(pool.cluster, 1, false) {
                self.cut_threads(pool, added);
                let name = &pool.name;
                return Err(format!(
                    "the system gave {added} of {n} threads more to `{name}`: {error}"
                ));
            }
            let mut ready = Vec::new();
            pool.add(1, &mut ready);
            self.make_all_ready(ready);
        }
        self.threads_changed(pool);
        Ok(())
    }

    /// Takes so many threads from a pool, and its group with it. There are so many.
    pub(crate) fn cut_threads(&self, pool: &Pool, n: usize) {
        pool.cut(n);
        self.worker_groups[pool.cluster].retire(n, false);
        self.threads_changed(pool);
    }

    /// A pool has another number of threads: its stages are told.
    pub(crate) fn threads_changed(&self, pool: &Pool) {
        let threads = pool.threads();
        for (stage, node) in (0u32..).zip(self.nodes()) {
            if self.pool_of(stage) == pool.index {
                node.threads_changed(threads);
            }
        }
    }

    /// A thread of this program, counted.
    ///
    /// # Errors
    /// The system has no more threads.
    pub(crate) fn spawn(
        self: &Arc<Self>,
        name: String,
        body: impl FnOnce(&Arc<Core>) + Send + 'static,
    ) -> io::Result<()> {
        /// Counts the thread's end, however that comes.
        struct Counted(Arc<Core>);
        impl Drop for Counted {
            fn drop(&mut self) {
                if thread::panicking() {
                    self.0.report("a thread of the runtime failed: this is a bug".to_owned());
                    self.0.stop();
                }
                self.0.run_state().threads -= 1;
                self.0.changed.notify_all();
            }
        }
        self.run_state().threads += 1;
        let core = self.clone();
        let spawned = spawn(name, move || {
            let counted = Counted(core);
            body(&counted.0);
        });
        if spawned.is_err() {
            self.run_state().threads -= 1;
        }
        spawned.map(drop)
    }

    /// The life of the clock thread: fires timers, and names handlers that are stuck.
    pub(crate) fn keep_time(self: &Arc<Self>) {
        let mut due = Vec::new();
        let (mut watched, mut looked) = (Time::ZERO, Time::ZERO);
        let beat = self.watch_beat();
        loop {
            self.timers.due(self.clock.now(), &mut due);
            for alarm in due.drain(..) {
                match alarm {
                    Alarm::Policy(timer) => self.call_policy_later(timer),
                    alarm => self.sound(alarm),
                }
            }
            let now = self.clock.now();
            if now.duration_since(looked) >= HURRY && self.timers.was_hurried() {
                looked = now;
                self.look(now);
            }
            if now.duration_since(watched) >= beat {
                watched = now;
                self.watch(now);
            }
            if !self.timers.wait(now, beat) {
                return;
            }
        }
    }

    /// How often handlers that are stuck are looked for.
    pub(crate) fn watch_beat(&self) -> Duration {
        (self.settings.stuck_after / 4).max(Duration::from_millis(1))
    }

    /// Policies are user code, and may not return: their timers have a thread of their own, which is
    /// started with the first.
    fn call_policy_later(self: &Arc<Self>, timer: PolicyTimer) {
        let add = |due: &mut VecDeque<PolicyTimer>| {
            if !due.contains(&timer) {
                due.push_back(timer);
            }
        };
        if self.policy_calls.add(add) == Callers::NewThread {
            let name = format!("{}-policy", self.graph.name);
            if let Err(error) = self.spawn(name, Core::call_policies) {
                let _ = self.policy_calls.forget_thread();
                self.report(format!("no thread for the timers of policies: {error}"));
            }
        }
    }

    /// The life of the thread that calls policies for their timers.
    fn call_policies(self: &Arc<Self>) {
        while let Some(PolicyTimer { cluster, timer, epoch }) = self.policy_calls.next() {
            self.policy_hosts[cluster].timer_due(self, timer, epoch);
        }
    }

    /// Calls wakers of the program's futures: on a thread of their own, which is started with the first. A waker
    /// is user code, and one that does not return must hold up neither the clock nor a worker; nor others, for whom
    /// another thread comes ([`watch`](Self::watch)).
    pub(crate) fn call_wakers(self: &Arc<Self>, wakers: Vec<Waker>) {
        if wakers.is_empty() {
            return;
        }
        if self.is_tested() {
            return wakers.into_iter().for_each(call_waker);
        }
        let mut wakers = Some(wakers);
        let callers = self.waker_calls.add(|due| due.extend(wakers.take().into_iter().flatten()));
        let left = match callers {
            Callers::Thread => return,
            Callers::Nobody => wakers.into_iter().flatten().collect(),
            Callers::NewThread => match self.spawn_waker_thread() {
                Ok(()) => return,
                Err(_) => self.waker_calls.forget_thread(), // there is none: they are called here
            },
        };
        left.into_iter().for_each(call_waker);
    }

    fn spawn_waker_thread(self: &Arc<Self>) -> io::Result<()> {
        self.spawn(format!("{}-wakers", self.graph.name), |core| {
            while let Some(waker) = core.waker_calls.next() {
                call_waker(waker);
            }
        })
    }

    /// What a visit has not begun can be taken back if its handler does not return.
    pub(crate) fn show_tray(&self, visit: &Visit, stage: u32, tray: AnyTray) {
        if let Some(worker) = visit.effects.worker() {
            worker.set_tray(Some((stage, tray)));
            self.timers.hurry();
        }
    }

    /// The visit is over.
    pub(crate) fn hide_tray(&self, visit: &Visit) {
        if let Some(worker) = visit.effects.worker() {
            worker.set_tray(None);
        }
    }

    /// Looks after those who were not woken because enough others are at work, or because they may not take what there is:
    /// whether those are at work. What a visit that takes long has not begun goes back.
    pub(crate) fn look(&self, now: Time) {
        let mut effects = Effects::default();
        for workers in &self.worker_groups {
            let handles = workers.members();
            let mut away = false;
            for handle in handles.iter() {
                if handle.note_long(now, LONG_VISIT) {
                    workers.sleep.down();
                    away = true;
                }
                if handle.is_away() {
                    // It will not come to them soon, and others look there when they have nothing else.
                    self.make_all_ready(handle.local.take_all());
                }
                if handle.in_visit(now).is_some_and(|it| it > LONG_VISIT)
                    && let Some((stage, tray)) = handle.tray()
                {
                    self.node(stage).reclaim(self, &*tray, &mut effects);
                }
                if handle.tray().is_some() {
                    self.timers.hurry();
                }
            }
            let stealable = handles.iter().filter(|handle| handle.local.note_time(now)).count();
            if !workers.shared.is_empty() || stealable > 0 {
                if away { workers.sleep.work_left() } else { workers.sleep.work_made() }
            }
            if handles.iter().any(|handle| !handle.local.is_empty()) {
                self.timers.hurry(); // their workers may not come to them
            }
        }
        self.dispatch(effects);
    }

    /// Stands in for workers that have been in one visit for too long, and for a waker that does not return.
    pub(crate) fn watch(self: &Arc<Self>, now: Time) {
        if self.waker_calls.are_held_up() {
            let _ = self.spawn_waker_thread(); // if the system has none, it is asked again
        }
        let bound = match self.run.lock().left {
            0 => self.settings.stuck_after,
            _ => self.settings.stuck_after.min(PATIENCE / 2), // what is left is needed to end
        };
        for workers in self.worker_groups.iter().filter(|workers| !self.is_blocking(workers)) {
            let stuck = self.stages_visited(workers, now, bound);
            let stand_ins = workers.members().iter().filter(|handle| handle.stand_in).count();
            for stage in stuck.iter().skip(stand_ins).filter(|stage| !self.is_source(**stage)) {
                let name = &self.graph.stages[*stage as usize].name;
                let stuck = format!("a handler of `{name}` is stuck; another worker stands in");
                log::warn(&self.graph.name, &stuck);
            }
            let mut ready = Vec::new();
            for pool in self.pools.iter().filter(|pool| pool.cluster == workers.cluster) {
                let here = stuck.iter().filter(|stage| self.pool_of(**stage) == pool.index);
                pool.set_stand_ins(here.count(), &mut ready);
            }
            self.make_all_ready(ready);
            let missing = stuck.len().saturating_sub(stand_ins);
            if let Err(error) = self.spawn_workers(workers.cluster, missing, true) {
                self.report(format!("no worker stands in for a stuck handler: {error}"));
            }
            workers.retire(stand_ins.saturating_sub(stuck.len()), true);
        }
    }

    /// Whether these are the workers of blocking stages, whose handlers may wait: their number is a bound, and
    /// nobody stands in for them.
    fn is_blocking(&self, workers: &WorkerGroup) -> bool {
        self.settings.clusters[workers.cluster].blocking
    }

    /// As [`in_visits`](Self::in_visits), of those that should have returned: not of blocking stages.
    pub(crate) fn stuck(&self) -> Vec<String> {
        let bound = self.settings.stuck_after;
        self.in_visits_of(bound, |workers| !self.is_blocking(workers))
    }

    /// The stages whose handlers have not returned for longer than `bound`. A source that does not
    /// return waits for events, and is none of them.
    pub(crate) fn in_visits(&self, bound: Duration) -> Vec<String> {
        self.in_visits_of(bound, |_| true)
    }

    fn in_visits_of(&self, bound: Duration, which: impl Fn(&WorkerGroup) -> bool) -> Vec<String> {
        let now = self.clock.now();
        let name = |stage: u32| self.graph.stages[stage as usize].name.to_string();
        let groups = self.worker_groups.iter().filter(|workers| which(workers));
        let late = groups.flat_map(|workers| self.stages_visited(workers, now, bound));
        late.filter(|stage| !self.is_source(*stage)).map(name).collect()
    }

    fn stages_visited(&self, workers: &WorkerGroup, now: Time, bound: Duration) -> Vec<u32> {
        let members = workers.members();
        let late =
            members.iter().filter(|member| member.in_visit(now).is_some_and(|it| it > bound));
        late.map(|member| member.stage.load(Relaxed)).collect()
    }
}
