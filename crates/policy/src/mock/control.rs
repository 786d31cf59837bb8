//! What a mock does when a policy calls it: the checks of `PolicyControl`, in the order of its groups. A
//! program must answer alike: `crates/comporta/tests/it/control/alike.rs` compares them.

use std::num::NonZeroUsize;
use std::time::Duration;

use comporta_model::event::Time;
use comporta_model::graph::{Kind, StageId};
use comporta_model::plan::WhenFull;

use super::{Mock, MockStage, Queues};
use crate::control::{
    Focus, KeyLoad, PolicyControl, PoolId, Refused, StageInfo, StageSample, TimerId, sealed,
};
use crate::limits;
use crate::steal_queue::Stolen;

impl Mock {
    /// Does what `act` does and writes it down; or writes down why it was refused.
    fn change<T>(
        &mut self,
        call: String,
        act: impl FnOnce(&mut Self) -> Result<T, Refused>,
    ) -> Result<T, Refused> {
        let outcome = act(self);
        match &outcome {
            Ok(_) => self.log.push(call),
            Err(why) => self.refused.push(format!("{call}: {why}")),
        }
        outcome
    }

    fn place(&self, stage: StageId) -> Result<usize, Refused> {
        let stranger =
            || Refused::NotInCluster { stage: stage.0.to_string(), cluster: self.cluster.clone() };
        self.infos.iter().position(|info| info.id == stage).ok_or_else(stranger)
    }

    fn of(&self, stage: StageId) -> Result<&MockStage, Refused> {
        Ok(&self.stages[self.place(stage)?])
    }

    fn of_mut(&mut self, stage: StageId) -> Result<&mut MockStage, Refused> {
        let place = self.place(stage)?;
        Ok(&mut self.stages[place])
    }

    /// The place of a stage that has a queue.
    fn queue(&self, stage: StageId) -> Result<usize, Refused> {
        let place = self.place(stage)?;
        let info = &self.infos[place];
        if info.has_queue() { Ok(place) } else { Err(Refused::NoQueue(info.name.clone())) }
    }

    fn pool(&self, pool: PoolId) -> Result<usize, Refused> {
        let threads = self.pools.get(pool.0 as usize);
        threads.copied().ok_or(Refused::NoPool(pool.0))
    }

    /// Whether the cluster may have so many threads more, and the system has them.
    fn more_threads(&mut self, pool: PoolId, more: usize) -> Result<(), Refused> {
        limits::more_threads(&self.cluster, self.pools.iter().sum(), more)?;
        let name = self.pool_name(pool);
        let Some(left) = &mut self.threads_left else { return Ok(()) };
        if more > *left {
            return Err(Refused::Failed(format!(
                "the system gave {left} of {more} threads more to `{name}`: no more threads"
            )));
        }
        *left -= more;
        Ok(())
    }

    /// Whether a pool may lose so many threads.
    fn fewer_threads(&self, pool: PoolId, less: usize) -> Result<(), Refused> {
        let threads = self.pool(pool)?;
        let has_stages = self.stages.iter().any(|stage| stage.pool == pool);
        limits::fewer_threads(&self.pool_name(pool), threads, less, has_stages)
    }

    /// Moves the threads that were asked for and can go.
    fn serve_steals(&mut self) {
        let Mock { steals, pools, stages, .. } = self;
        let kept = |pool| usize::from(stages.iter().any(|stage| stage.pool == pool));
        while let Some(Stolen { to, from }) =
            steals.next(|pool| pools[pool.0 as usize].saturating_sub(kept(pool)))
        {
            pools[from.0 as usize] -= 1;
            pools[to.0 as usize] += 1;
        }
    }

    fn only_per_stage(&self, method: &'static str) -> Result<(), Refused> {
        match self.queues {
            Queues::PerStage => Ok(()),
            Queues::One | Queues::PerWorker => Err(Refused::NeedsPerStageQueues(method)),
        }
    }

    fn fix_queues(&mut self, queues: Queues) -> Result<(), Refused> {
        if self.started || self.queues != Queues::One {
            return Err(Refused::Started);
        }
        self.queues = queues;
        Ok(())
    }

    fn pool_name(&self, pool: PoolId) -> String {
        if pool.0 == 0 { self.cluster.clone() } else { format!("pool{}", pool.0) }
    }

    /// Stages that threads can visit: inputs have no work of their own.
    fn visited(&self) -> impl Iterator<Item = StageId> {
        self.infos.iter().filter(|info| info.kind != Kind::Input).map(|info| info.id)
    }
}

impl sealed::Sealed for Mock {}

impl PolicyControl for Mock {
    fn now(&self) -> Time {
        self.now
    }

    fn stages(&self) -> &[StageInfo] {
        &self.infos
    }

    fn main_pool(&self) -> PoolId {
        PoolId(0)
    }

    fn explain(&mut self, why: String) {
        self.explained.push(why);
    }

    fn record(&mut self, did: String) {
        self.recorded.push(did);
    }

    fn decide_as(&mut self, _: &str) {} // what is logged here has no name

    // --- 1. queues

    fn use_per_stage_queues(&mut self) -> Result<(), Refused> {
        self.change("use_per_stage_queues".to_owned(), |mock| {
            mock.fix_queues(Queues::PerStage)?;
            mock.order = mock.visited().collect();
            Ok(())
        })
    }

    fn use_per_worker_queues(&mut self) -> Result<(), Refused> {
        self.change("use_per_worker_queues".to_owned(), |mock| mock.fix_queues(Queues::PerWorker))
    }

    fn set_queue_capacity(&mut self, stage: StageId, max: usize) -> Result<(), Refused> {
        self.change(format!("set_queue_capacity {} {max}", self.name(stage)), |mock| {
            let place = mock.queue(stage)?;
            limits::capacity(&mock.infos[place], max)?;
            mock.stages[place].capacity = max;
            Ok(())
        })
    }

    fn queue_capacity(&self, stage: StageId) -> Result<usize, Refused> {
        Ok(self.stages[self.queue(stage)?].capacity)
    }

    fn set_when_full(&mut self, stage: StageId, when_full: WhenFull) -> Result<(), Refused> {
        let word = WhenFull::ALL.iter().find(|(one, _)| *one == when_full);
        let word = word.map_or("?", |(_, word)| word);
        self.change(format!("set_when_full {} {word}", self.name(stage)), |mock| {
            let place = mock.queue(stage)?;
            mock.stages[place].when_full = when_full;
            Ok(())
        })
    }

    fn disable_queue(&mut self, stage: StageId) -> Result<(), Refused> {
        self.change(format!("disable_queue {}", self.name(stage)), |mock| {
            let place = mock.queue(stage)?;
            mock.stages[place].enabled = false;
            Ok(())
        })
    }

    fn enable_queue(&mut self, stage: StageId) -> Result<(), Refused> {
        self.change(format!("enable_queue {}", self.name(stage)), |mock| {
            let place = mock.queue(stage)?;
            mock.stages[place].enabled = true;
            Ok(())
        })
    }

    fn queue_is_enabled(&self, stage: StageId) -> Result<bool, Refused> {
        Ok(self.stages[self.queue(stage)?].enabled)
    }

    // --- 2. pools

    fn new_pool(&mut self, threads: usize) -> Result<PoolId, Refused> {
        let pool = PoolId(self.pools.len() as u32);
        self.change(format!("new_pool {threads} -> {}", self.pool_name(pool)), |mock| {
            limits::another_pool(mock.pools.len() - 1, mock.infos.len())?;
            mock.more_threads(pool, threads)?;
            mock.pools.push(threads);
            Ok(pool)
        })
    }

    fn set_pool(&mut self, pool: PoolId, stage: StageId) -> Result<(), Refused> {
        let call = format!("set_pool {} {}", self.pool_name(pool), self.name(stage));
        self.change(call, |mock| {
            mock.place(stage)?;
            limits::runs_stages(&mock.pool_name(pool), mock.pool(pool)?)?;
            mock.of_mut(stage)?.pool = pool;
            mock.serve_steals();
            Ok(())
        })
    }

    fn add_threads(&mut self, pool: PoolId, n: usize) -> Result<(), Refused> {
        self.change(format!("add_threads {} {n}", self.pool_name(pool)), |mock| {
            mock.pool(pool)?;
            mock.more_threads(pool, n)?;
            mock.pools[pool.0 as usize] += n;
            mock.serve_steals();
            Ok(())
        })
    }

    fn kill_threads(&mut self, pool: PoolId, n: usize) -> Result<(), Refused> {
        self.change(format!("kill_threads {} {n}", self.pool_name(pool)), |mock| {
            mock.fewer_threads(pool, n)?;
            mock.pools[pool.0 as usize] -= n;
            Ok(())
        })
    }

    fn pool_of(&self, stage: StageId) -> Result<PoolId, Refused> {
        Ok(self.of(stage)?.pool)
    }

    fn threads(&self, pool: PoolId) -> Result<usize, Refused> {
        self.pool(pool)
    }

    // --- 3. monitoring

    fn add_timer(&mut self, every: Duration) -> Result<TimerId, Refused> {
        self.change(format!("add_timer {every:?}"), |mock| {
            limits::another_timer(mock.timers.len(), every)?;
            mock.timers.push(every);
            Ok(TimerId(mock.timers.len() as u32 - 1))
        })
    }

    fn cpus(&self) -> usize {
        self.cpus
    }

    fn cpu_usage(&mut self) -> u32 {
        self.cpu_usage
    }

    fn queue_size(&self, stage: StageId) -> Result<usize, Refused> {
        Ok(self.of(stage)?.queued)
    }

    fn processed_count(&self, stage: StageId) -> Result<u64, Refused> {
        Ok(self.of(stage)?.processed)
    }

    fn input_count(&self, stage: StageId) -> Result<u64, Refused> {
        Ok(self.of(stage)?.arrived)
    }

    fn reset_statistics(&mut self, stage: StageId) -> Result<(), Refused> {
        self.change(format!("reset_statistics {}", self.name(stage)), |mock| {
            let stage = mock.of_mut(stage)?;
            stage.before.0 = stage.before.0.wrapping_add(stage.arrived);
            stage.before.1 = stage.before.1.wrapping_add(stage.processed);
            (stage.arrived, stage.processed) = (0, 0);
            Ok(())
        })
    }

    fn sample(&self, stage: StageId) -> Result<StageSample, Refused> {
        let stage = self.of(stage)?;
        Ok(StageSample {
            arrived: stage.before.0.wrapping_add(stage.arrived),
            processed: stage.before.1.wrapping_add(stage.processed),
            queued: stage.queued,
            instances: stage.instances,
            free: stage.instances.saturating_sub(stage.busy),
            busy: stage.busy_time,
            cpu: stage.cpu_time,
        })
    }

    fn key_loads(&mut self, stage: StageId, most: usize) -> Result<Vec<KeyLoad>, Refused> {
        let mut keys = std::mem::take(&mut self.of_mut(stage)?.keys);
        keys.sort_by_key(|load| std::cmp::Reverse(load.handled.max(load.arrived)));
        keys.truncate(most);
        Ok(keys)
    }

    fn set_fire_last_focused(&mut self, fire: bool) -> Result<(), Refused> {
        self.change(format!("set_fire_last_focused {fire}"), |mock| {
            if fire {
                mock.only_per_stage("set_fire_last_focused")?;
            }
            mock.last_focused = fire;
            Ok(())
        })
    }

    // --- 4. scheduling

    fn set_visit_order(&mut self, stages: &[StageId]) -> Result<(), Refused> {
        let names: Vec<&str> = stages.iter().map(|stage| self.name(*stage)).collect();
        self.change(format!("set_visit_order {}", names.join(" ")), |mock| {
            mock.only_per_stage("set_visit_order")?;
            if stages.is_empty() {
                return Err(Refused::EmptyOrder);
            }
            stages.iter().try_for_each(|stage| mock.place(*stage).map(|_| ()))?;
            let mut order = stages.to_vec();
            order.extend(mock.visited().filter(|stage| !stages.contains(stage)));
            let len = order.len();
            if let Some(index) = mock.restart.filter(|index| *index >= len) {
                return Err(Refused::NoPlace { index, len });
            }
            mock.order = order;
            Ok(())
        })
    }

    fn set_max_visits(&mut self, visits: Option<NonZeroUsize>) -> Result<(), Refused> {
        let often = visits.map_or_else(|| "none".to_owned(), |visits| visits.to_string());
        self.change(format!("set_max_visits {often}"), |mock| {
            if visits.is_some() {
                mock.only_per_stage("set_max_visits")?;
            }
            mock.visits_max = visits;
            Ok(())
        })
    }

    fn set_restart_at(&mut self, index: Option<usize>) -> Result<(), Refused> {
        let place = index.map_or_else(|| "none".to_owned(), |index| index.to_string());
        self.change(format!("set_restart_at {place}"), |mock| {
            if let Some(index) = index {
                mock.only_per_stage("set_restart_at")?;
                let len = mock.order.len();
                if index >= len {
                    return Err(Refused::NoPlace { index, len });
                }
            }
            mock.restart = index;
            Ok(())
        })
    }

    fn steal(&mut self, to: StageId, from: StageId, n: usize) -> Result<(), Refused> {
        self.change(format!("steal {} {} {n}", self.name(to), self.name(from)), |mock| {
            let stolen = Stolen { to: mock.of(to)?.pool, from: mock.of(from)?.pool };
            mock.steals.ask(stolen, n);
            mock.serve_steals();
            Ok(())
        })
    }

    fn set_priority(&mut self, stage: StageId, priority: i32) -> Result<(), Refused> {
        self.change(format!("set_priority {} {priority}", self.name(stage)), |mock| {
            mock.of_mut(stage)?.priority = priority;
            Ok(())
        })
    }

    fn priority(&self, stage: StageId) -> Result<i32, Refused> {
        Ok(self.of(stage)?.priority)
    }

    fn set_max_events_when_focused(&mut self, focus: Focus, n: usize) -> Result<(), Refused> {
        let whom = match focus {
            Focus::All => "all",
            Focus::Stage(stage) => self.name(stage),
        };
        self.change(format!("set_max_events_when_focused {whom} {n}"), |mock| {
            mock.only_per_stage("set_max_events_when_focused")?;
            limits::events_of_visit(n)?;
            match focus {
                Focus::All => mock.stages.iter_mut().for_each(|stage| stage.events_max = Some(n)),
                Focus::Stage(stage) => mock.of_mut(stage)?.events_max = Some(n),
            }
            Ok(())
        })
    }

    fn set_color(&mut self, stage: StageId, color: Option<u32>) -> Result<(), Refused> {
        let word = color.map_or("none".to_owned(), |color| color.to_string());
        self.change(format!("set_color {} {word}", self.name(stage)), |mock| {
            mock.of_mut(stage)?.color = color;
            Ok(())
        })
    }

    // --- 5. instances

    fn add_instances(&mut self, stage: StageId, n: usize) -> Result<(), Refused> {
        self.change(format!("add_instances {} {n}", self.name(stage)), |mock| {
            let place = mock.place(stage)?;
            let instances = mock.stages[place].instances;
            let wanted = instances.saturating_add(n);
            limits::instances(&mock.infos[place], instances, wanted)?;
            mock.stages[place].instances = wanted;
            Ok(())
        })
    }

    fn kill_instances(&mut self, stage: StageId, n: usize) -> Result<(), Refused> {
        self.change(format!("kill_instances {} {n}", self.name(stage)), |mock| {
            let place = mock.place(stage)?;
            let instances = mock.stages[place].instances;
            let wanted = instances.saturating_sub(n);
            limits::instances(&mock.infos[place], instances, wanted)?;
            mock.stages[place].instances = wanted;
            Ok(())
        })
    }

    fn instances(&self, stage: StageId) -> Result<usize, Refused> {
        Ok(self.of(stage)?.instances)
    }

    fn free_instances(&self, stage: StageId) -> Result<usize, Refused> {
        let stage = self.of(stage)?;
        Ok(stage.instances.saturating_sub(stage.busy))
    }
}
