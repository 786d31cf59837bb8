//! The interface of policies (`comporta_policy::PolicyControl`): what a policy sees of its cluster and does to it, on the real runtime. Each call is
//! checked first; what it changes holds from the next event each thread takes.
//! Long because every method of the interface is here.

use std::num::{NonZeroU32, NonZeroUsize};
use std::time::Duration;

use comporta_model::event::Time;
use comporta_model::graph::{Kind, StageId};
use comporta_model::plan::WhenFull;
use comporta_policy::{
    Focus, KeyLoad, PolicyControl, PoolId, Refused, StageInfo, StageSample, Stolen, TimerId,
    limits, sealed,
};

use crate::cluster_state::{Act, ClusterState, Since};
use crate::core::Core;
use crate::effects::Effects;
use crate::node::Reading;
use crate::path::visit_order::VisitOrder;
use crate::pool::Pool;
use crate::sync::Arc;

/// What is done for visits is remembered this often at most: it may happen every few microseconds. What is done
/// for timers, or at the start, always is.
const ACTS_EVERY: Duration = Duration::from_millis(100);

/// What a policy is called for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallReason {
    Start,
    Timer,
    Visits,
}

/// What a policy is handed.
pub(crate) struct ClusterControl<'a> {
    core: &'a Arc<Core>,
    cluster: usize,
    state: &'a mut ClusterState,
    reason: CallReason,
    /// Which queues are used is fixed.
    queues_fixed: bool,
    /// What it does now is remembered.
    noted: bool,
    why: Option<String>,
    /// Who decides, if not the policy.
    by: Option<String>,
    /// The visit order has changed, and is to be published.
    new_order: bool,
}

impl<'a> ClusterControl<'a> {
    pub(crate) fn new(
        core: &'a Arc<Core>,
        cluster: usize,
        state: &'a mut ClusterState,
        reason: CallReason,
    ) -> Self {
        let now = core.clock.now();
        let lately = state.acted.is_some_and(|acted| now.duration_since(acted) < ACTS_EVERY);
        let noted = reason != CallReason::Visits || !lately || core.is_tested();
        ClusterControl {
            core,
            cluster,
            state,
            reason,
            queues_fixed: false,
            noted,
            why: None,
            by: None,
            new_order: false,
        }
    }

    /// The call is over: what it changed together is reported together.
    pub(crate) fn done(mut self) {
        if self.new_order {
            self.publish_order();
        }
        self.serve_steals(); // a person may have given the cluster threads
        if !self.state.acts.is_empty() && self.reason == CallReason::Visits {
            self.state.acted = Some(self.core.clock.now());
        }
    }

    fn did(&mut self, what: impl FnOnce(&Self) -> String) {
        if self.noted {
            let did = what(self);
            let (by, why) = (self.by.clone(), self.why.take());
            self.state.acts.push(Act { by, why, did });
        }
    }

    fn name(&self, stage: StageId) -> String {
        let spec = self.core.graph.stages.get(stage.index());
        spec.map_or_else(|| stage.0.to_string(), |spec| format!("`{}`", spec.name))
    }

    fn stage(&self, stage: StageId) -> Result<&StageInfo, Refused> {
        let own = self.state.stages.iter().find(|own| own.id == stage);
        own.ok_or_else(|| Refused::NotInCluster {
            stage: self.name(stage),
            cluster: self.core.pools[self.cluster].name.clone(),
        })
    }

    fn queue(&self, stage: StageId) -> Result<&StageInfo, Refused> {
        let info = self.stage(stage)?;
        if info.has_queue() { Ok(info) } else { Err(Refused::NoQueue(info.name.clone())) }
    }

    fn reading(&self, stage: StageId) -> Result<Reading, Refused> {
        self.stage(stage)?;
        Ok(self.core.node(stage.0).reading())
    }

    fn pool(&self, pool: PoolId) -> Result<&'a Pool, Refused> {
        let index = pool.0 as usize;
        let own = index == self.cluster || self.state.pools.contains(&index);
        own.then(|| self.core.pools.get(index)).flatten().ok_or(Refused::NoPool(pool.0))
    }

    fn has_stages(&self, pool: &Pool) -> bool {
        self.state.stages.iter().any(|stage| self.core.pool_of(stage.id.0) == pool.index)
    }

    fn only_per_stage(&self, method: &'static str) -> Result<(), Refused> {
        if self.state.per_stage { Ok(()) } else { Err(Refused::NeedsPerStageQueues(method)) }
    }

    fn fix_queues(&mut self) -> Result<(), Refused> {
        if self.reason != CallReason::Start || self.queues_fixed {
            return Err(Refused::Started);
        }
        self.queues_fixed = true;
        Ok(())
    }

    /// Pools that run stages of this cluster.
    fn pools(&self) -> impl Iterator<Item = &'a Pool> {
        let own: Vec<usize> = self.state.pools.iter().copied().chain([self.cluster]).collect();
        let core = self.core;
        own.into_iter().map(|pool| &core.pools[pool])
    }

    fn publish_order(&mut self) {
        self.state.visit_orders += 1;
        self.state.visit_order.epoch = self.state.visit_orders;
        let visit_order = Arc::new(self.state.visit_order.clone());
        let workers = &self.core.worker_groups[self.cluster];
        workers.shared.set_visit_order(Some(visit_order), |stage| self.core.priorities.of(stage));
        // Later those who sleep have no work on the new order either. To wake them would have them
        // come to its end, and the policy called again, for ever.
        if self.reason == CallReason::Start {
            workers.sleep.wake_all();
        }
    }

    /// Stages that workers can visit.
    fn visited(&self) -> impl Iterator<Item = &StageInfo> {
        self.state.stages.iter().filter(|stage| stage.kind != Kind::Input)
    }

    /// Whether the cluster may have so many threads more.
    fn more_threads(&self, more: usize) -> Result<(), Refused> {
        let threads = self.pools().map(Pool::threads).sum();
        limits::more_threads(&self.core.pools[self.cluster].name, threads, more)
    }

    /// Has threads go that were asked for and can.
    fn serve_steals(&mut self) {
        let mut steals = std::mem::take(&mut self.state.steals);
        let mut ready = Vec::new();
        let pools = &self.core.pools;
        let spare = |pool: PoolId| {
            let pool = &pools[pool.0 as usize];
            pool.threads().saturating_sub(usize::from(self.has_stages(pool)))
        };
        while let Some(Stolen { to, from }) = steals.next(spare) {
            pools[from.0 as usize].ask(&pools[to.0 as usize], 1, pools, &mut ready);
        }
        self.core.make_all_ready(ready);
        self.state.steals = steals;
    }

    /// Whether a pool can do without so many threads.
    fn fewer_threads(&self, pool: &Pool, less: usize) -> Result<(), Refused> {
        limits::fewer_threads(&pool.name, pool.threads(), less, self.has_stages(pool))
    }

    fn set_enabled(&self, stage: StageId, enabled: bool) {
        let mut effects = Effects::default();
        self.core.node(stage.0).set_enabled(self.core, enabled, &mut effects);
        self.core.dispatch(effects);
    }

    fn set_instances(&mut self, stage: StageId, wanted: usize) -> Result<(), Refused> {
        let info = self.stage(stage)?;
        let node = self.core.node(stage.0);
        let instances = node.reading().instances;
        if instances == 0 {
            return Ok(()); // it has seen its last event, and needs none
        }
        limits::instances(info, instances, wanted)?;
        let in_order = self.core.assignments[stage.index()].base.lock().instances == 1;
        let gives_up_order = wanted > 1 && in_order && !info.ordered && !info.keyed;
        let mut effects = Effects::default();
        let set = node.set_instances(self.core, wanted, &mut effects);
        self.core.dispatch(effects);
        if let Err(message) = set {
            let ended = node.reading().instances == 0;
            return if ended { Ok(()) } else { Err(Refused::Failed(message)) };
        }
        self.did(|control| {
            let order = if gives_up_order { ": its events may overtake each other" } else { "" };
            format!("{} has {wanted} instances{order}", control.name(stage))
        });
        Ok(())
    }
}

impl sealed::Sealed for ClusterControl<'_> {}

impl PolicyControl for ClusterControl<'_> {
    fn now(&self) -> Time {
        self.core.clock.now()
    }

    fn stages(&self) -> &[StageInfo] {
        &self.state.stages
    }

    fn main_pool(&self) -> PoolId {
        PoolId(self.cluster as u32)
    }

    fn explain(&mut self, why: String) {
        self.why = Some(why);
    }

    fn record(&mut self, did: String) {
        self.did(|_| did);
    }

    fn decide_as(&mut self, name: &str) {
        self.by = Some(name.to_owned());
    }

    // --- 1. queues

    fn use_per_stage_queues(&mut self) -> Result<(), Refused> {
        self.fix_queues()?;
        self.state.per_stage = true;
        let sources = self.visited().filter(|stage| stage.kind == Kind::Source);
        let sources = sources.map(|stage| stage.id.0).collect();
        let mut visit_order = VisitOrder::new(self.visited().map(|stage| stage.id.0).collect());
        visit_order.sources = sources;
        self.state.visit_order = visit_order;
        self.new_order = self.state.visit_order.len() > 0;
        self.did(|_| "threads visit stages in an order".to_owned());
        Ok(())
    }

    fn use_per_worker_queues(&mut self) -> Result<(), Refused> {
        self.fix_queues()?;
        self.core.worker_groups[self.cluster].set_per_worker_queues(true);
        Ok(())
    }

    fn set_queue_capacity(&mut self, stage: StageId, max: usize) -> Result<(), Refused> {
        limits::capacity(self.queue(stage)?, max)?;
        let mut effects = Effects::default();
        self.core.node(stage.0).set_capacity(self.core, max, &mut effects);
        self.core.dispatch(effects);
        self.did(|control| format!("the queue of {} holds {max}", control.name(stage)));
        Ok(())
    }

    fn queue_capacity(&self, stage: StageId) -> Result<usize, Refused> {
        self.queue(stage)?;
        Ok(self.core.node(stage.0).reading().capacity)
    }

    fn set_when_full(&mut self, stage: StageId, when_full: WhenFull) -> Result<(), Refused> {
        self.queue(stage)?;
        self.core.node(stage.0).set_when_full(when_full);
        let word = WhenFull::ALL.iter().find(|(known, _)| *known == when_full);
        let word = word.map_or("?", |(_, word)| word);
        self.did(|control| format!("a full queue of {}: {word}", control.name(stage)));
        Ok(())
    }

    fn disable_queue(&mut self, stage: StageId) -> Result<(), Refused> {
        self.queue(stage)?;
        self.set_enabled(stage, false);
        self.did(|control| format!("the queue of {} is shut", control.name(stage)));
        Ok(())
    }

    fn enable_queue(&mut self, stage: StageId) -> Result<(), Refused> {
        self.queue(stage)?;
        self.set_enabled(stage, true);
        self.did(|control| format!("the queue of {} is open", control.name(stage)));
        Ok(())
    }

    fn queue_is_enabled(&self, stage: StageId) -> Result<bool, Refused> {
        self.queue(stage)?;
        Ok(self.core.node(stage.0).reading().enabled)
    }

    // --- 2. pools

    fn new_pool(&mut self, threads: usize) -> Result<PoolId, Refused> {
        let core = self.core;
        let main = &core.pools[self.cluster];
        limits::another_pool(self.state.pools.len(), self.state.stages.len())?;
        self.more_threads(threads)?;
        let pool = match self.state.spare.pop() {
            Some(spare) => &core.pools[spare],
            None => {
                let name = |index: usize| format!("{}-{}", main.name, index);
                core.pools.make(name, self.cluster).ok_or_else(|| {
                    Refused::Failed("there are as many pools as there may be".to_owned())
                })?
            }
        };
        core.worker_groups[self.cluster].set_pooled(true);
        if let Err(message) = core.add_threads(pool, threads) {
            self.state.spare.push(pool.index);
            return Err(Refused::Failed(message));
        }
        self.state.pools.push(pool.index);
        self.did(|_| format!("a new pool `{}` with {}", pool.name, so_many(threads)));
        Ok(PoolId(pool.index as u32))
    }

    fn set_pool(&mut self, pool: PoolId, stage: StageId) -> Result<(), Refused> {
        self.stage(stage)?;
        let pool = self.pool(pool)?;
        limits::runs_stages(&pool.name, pool.threads())?;
        self.core.move_stage(stage.0, pool.index);
        self.serve_steals();
        self.did(|control| format!("{} is in pool `{}`", control.name(stage), pool.name));
        Ok(())
    }

    fn add_threads(&mut self, pool: PoolId, n: usize) -> Result<(), Refused> {
        let pool = self.pool(pool)?;
        self.more_threads(n)?;
        let threads = pool.threads() + n;
        self.core.add_threads(pool, n).map_err(Refused::Failed)?;
        self.did(|_| format!("pool `{}` has {}", pool.name, so_many(threads)));
        self.serve_steals();
        Ok(())
    }

    fn kill_threads(&mut self, pool: PoolId, n: usize) -> Result<(), Refused> {
        let pool = self.pool(pool)?;
        self.fewer_threads(pool, n)?;
        self.core.cut_threads(pool, n);
        let threads = pool.threads();
        self.did(|_| format!("pool `{}` has {}", pool.name, so_many(threads)));
        Ok(())
    }

    fn pool_of(&self, stage: StageId) -> Result<PoolId, Refused> {
        self.stage(stage)?;
        Ok(PoolId(self.core.pool_of(stage.0) as u32))
    }

    fn threads(&self, pool: PoolId) -> Result<usize, Refused> {
        Ok(self.pool(pool)?.threads())
    }

    // --- 3. monitoring

    fn add_timer(&mut self, every: Duration) -> Result<TimerId, Refused> {
        limits::another_timer(self.state.timers.len(), every)?;
        let timer = self.state.timers.len() as u32;
        self.state.timers.push(every);
        self.state.set_timer(self.core, self.cluster, timer);
        Ok(TimerId(timer))
    }

    fn cpus(&self) -> usize {
        self.core.cpus_said().unwrap_or_else(|| self.state.cpu.processors())
    }

    fn cpu_usage(&mut self) -> u32 {
        match self.core.cpu_ticks() {
            Some(ticks) => (self.core.cpu_said() + self.state.cpu.usage_at(ticks)).min(100),
            None => self.state.cpu.usage(),
        }
    }

    fn queue_size(&self, stage: StageId) -> Result<usize, Refused> {
        Ok(self.reading(stage)?.queued)
    }

    fn processed_count(&self, stage: StageId) -> Result<u64, Refused> {
        let since = self.state.since.get(&stage.0).copied().unwrap_or_default();
        Ok(self.reading(stage)?.processed - since.processed)
    }

    fn input_count(&self, stage: StageId) -> Result<u64, Refused> {
        let since = self.state.since.get(&stage.0).copied().unwrap_or_default();
        Ok(self.reading(stage)?.arrived - since.arrived)
    }

    fn reset_statistics(&mut self, stage: StageId) -> Result<(), Refused> {
        let since = Since::now(self.reading(stage)?);
        self.state.since.insert(stage.0, since);
        Ok(())
    }

    fn sample(&self, stage: StageId) -> Result<StageSample, Refused> {
        let reading = self.reading(stage)?;
        self.core.worker_groups[self.cluster].set_measures_cpu(true);
        let mut sample = StageSample::default();
        (sample.arrived, sample.processed) = (reading.arrived, reading.processed);
        (sample.queued, sample.instances, sample.free) =
            (reading.queued, reading.instances, reading.free);
        sample.busy = reading.busy;
        sample.cpu = self.core.cpu_shares[stage.index()].of(reading.busy);
        Ok(sample)
    }

    fn key_loads(&mut self, stage: StageId, most: usize) -> Result<Vec<KeyLoad>, Refused> {
        self.stage(stage)?;
        Ok(self.core.node(stage.0).key_loads(most))
    }

    fn set_fire_last_focused(&mut self, fire: bool) -> Result<(), Refused> {
        if fire {
            self.only_per_stage("set_fire_last_focused")?;
        }
        self.state.visit_order.fires_last_focused = fire;
        self.new_order |= self.state.per_stage;
        Ok(())
    }

    // --- 4. scheduling

    fn set_visit_order(&mut self, stages: &[StageId]) -> Result<(), Refused> {
        self.only_per_stage("set_visit_order")?;
        if stages.is_empty() {
            return Err(Refused::EmptyOrder);
        }
        stages.iter().try_for_each(|stage| self.stage(*stage).map(drop))?;
        let mut order: Vec<u32> = stages.iter().map(|stage| stage.0).collect();
        let left_out = self.visited().map(|stage| stage.id.0).filter(|id| !order.contains(id));
        let left_out: Vec<u32> = left_out.collect();
        order.extend(left_out);
        let len = order.len();
        if let Some(index) = self.state.visit_order.restart.filter(|index| *index >= len) {
            return Err(Refused::NoPlace { index, len });
        }
        let changes = self.reason == CallReason::Start || !self.state.visit_order.is(&order);
        self.state.visit_order.set_order(order);
        self.new_order = true; // also if it is as before: threads begin at its first place
        if changes {
            self.did(|control| {
                let names: Vec<_> = stages.iter().map(|stage| control.name(*stage)).collect();
                format!("the visit order is {}", names.join(", "))
            });
        }
        Ok(())
    }

    fn set_max_visits(&mut self, visits: Option<NonZeroUsize>) -> Result<(), Refused> {
        if visits.is_some() {
            self.only_per_stage("set_max_visits")?;
        }
        self.state.visit_order.max_visits = visits;
        self.new_order |= self.state.per_stage;
        Ok(())
    }

    fn set_restart_at(&mut self, index: Option<usize>) -> Result<(), Refused> {
        if let Some(index) = index {
            self.only_per_stage("set_restart_at")?;
            let len = self.state.visit_order.len();
            if index >= len {
                return Err(Refused::NoPlace { index, len });
            }
            self.did(|_| format!("after a success a thread goes to place {index}"));
        }
        self.state.visit_order.restart = index;
        self.new_order |= self.state.per_stage;
        Ok(())
    }

    fn steal(&mut self, to: StageId, from: StageId, n: usize) -> Result<(), Refused> {
        self.stage(to)?;
        self.stage(from)?;
        let pool = |stage: StageId| PoolId(self.core.pool_of(stage.0) as u32);
        let stolen = Stolen { to: pool(to), from: pool(from) };
        if n == 0 || stolen.to == stolen.from {
            return Ok(()); // they have them already
        }
        self.state.steals.ask(stolen, n);
        self.did(|control| {
            format!("{} asks {} for {n} threads", control.name(to), control.name(from))
        });
        self.serve_steals();
        Ok(())
    }

    fn set_priority(&mut self, stage: StageId, priority: i32) -> Result<(), Refused> {
        self.stage(stage)?;
        self.core.set_priority(stage.0, priority);
        self.did(|control| format!("{} has priority {priority}", control.name(stage)));
        Ok(())
    }

    fn priority(&self, stage: StageId) -> Result<i32, Refused> {
        self.stage(stage)?;
        Ok(self.core.priorities.own(stage.0))
    }

    fn set_max_events_when_focused(&mut self, focus: Focus, n: usize) -> Result<(), Refused> {
        self.only_per_stage("set_max_events_when_focused")?;
        limits::events_of_visit(n)?;
        match focus {
            Focus::All => self.state.visit_order.set_most_everywhere(n),
            Focus::Stage(stage) => {
                self.stage(stage)?;
                self.state.visit_order.set_most(stage.0, n);
            }
        }
        self.new_order = true;
        self.did(|control| {
            let to = match focus {
                Focus::All => String::new(),
                Focus::Stage(stage) => format!(" to {}", control.name(stage)),
            };
            format!("a visit{to} takes {n} events at most")
        });
        Ok(())
    }

    fn set_color(&mut self, stage: StageId, color: Option<u32>) -> Result<(), Refused> {
        self.stage(stage)?;
        // Colors of another cluster are other colors.
        let among_all = color.and_then(|color| {
            let clusters = self.core.policy_hosts.len() as u32;
            NonZeroU32::new(
                1 + (color % (u32::MAX / clusters - 1)) * clusters + self.cluster as u32,
            )
        });
        self.core.set_color(stage.0, among_all);
        let color = color.map_or_else(|| "no color".to_owned(), |color| format!("color {color}"));
        self.did(|control| format!("{} has {color}", control.name(stage)));
        Ok(())
    }

    // --- 5. instances

    fn add_instances(&mut self, stage: StageId, n: usize) -> Result<(), Refused> {
        let now = self.reading(stage)?.instances;
        self.set_instances(stage, now.saturating_add(n))
    }

    fn kill_instances(&mut self, stage: StageId, n: usize) -> Result<(), Refused> {
        let now = self.reading(stage)?.instances;
        self.set_instances(stage, now.saturating_sub(n))
    }

    fn instances(&self, stage: StageId) -> Result<usize, Refused> {
        Ok(self.reading(stage)?.instances)
    }

    fn free_instances(&self, stage: StageId) -> Result<usize, Refused> {
        Ok(self.reading(stage)?.free)
    }
}

/// `1 thread`, `2 threads`.
fn so_many(threads: usize) -> String {
    format!("{threads} thread{}", if threads == 1 { "" } else { "s" })
}
