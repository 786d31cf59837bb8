//! What holds of a cluster under its policy, and how it is reset to what the plan, and people since, say.
//! Used by `cluster_control`, which changes it, and `policy_host`, which holds it.

use std::collections::HashMap;
use std::time::Duration;

use comporta_model::event::Time;
use comporta_model::graph::{Graph, Kind, StageId};
use comporta_policy::{StageInfo, StealQueue};

use crate::core::Core;
use crate::effects::Effects;
use crate::env::CpuMeter;
use crate::node::Reading;
use crate::path::visit_order::VisitOrder;
use crate::sync::Arc;
use crate::timer::{Alarm, PolicyTimer};

/// What holds of a cluster under its policy.
#[derive(Default)]
pub(crate) struct ClusterState {
    /// Which policy this is of; timers of an earlier one fire no more.
    pub(crate) epoch: u32,
    pub(super) stages: Vec<StageInfo>,
    /// Pools made by the policy, and made before and free to use again: the last of these first.
    pub(super) pools: Vec<usize>,
    pub(super) spare: Vec<usize>,
    /// Threads that were asked for and cannot go yet.
    pub(super) steals: StealQueue,
    /// Threads visit stages in an order.
    pub(super) per_stage: bool,
    pub(super) visit_order: VisitOrder,
    pub(super) visit_orders: u64,
    pub(super) timers: Vec<Duration>,
    /// What the counts of a stage were when its statistics were last reset.
    pub(super) since: HashMap<u32, Since>,
    pub(super) cpu: CpuMeter,
    /// What the policy did in this call.
    pub(crate) acts: Vec<Act>,
    pub(super) acted: Option<Time>,
}

/// What the counts of a stage were at some time.
#[derive(Clone, Copy, Default)]
pub(super) struct Since {
    pub(super) arrived: u64,
    pub(super) processed: u64,
}

impl Since {
    pub(super) fn now(reading: Reading) -> Self {
        Since { arrived: reading.arrived, processed: reading.processed }
    }
}

/// Something that a policy did, and why, if it said so.
pub(crate) struct Act {
    /// Who did it, if it was not the policy.
    pub(crate) by: Option<String>,
    pub(crate) why: Option<String>,
    pub(crate) did: String,
}

impl ClusterState {
    /// Everything as the plan has it, and as a person has said since.
    ///
    /// # Errors
    /// The system has no more threads.
    pub(crate) fn reset(
        &mut self,
        core: &Arc<Core>,
        cluster: usize,
        threads: usize,
    ) -> Result<(), String> {
        self.epoch += 1;
        self.timers.clear();
        core.timers.forget(cluster);
        self.since.clear();
        self.cpu = core.cpu_ticks().map_or_else(CpuMeter::begin, CpuMeter::begin_at);
        self.acts.clear();
        self.per_stage = false;
        self.visit_order = VisitOrder::default();
        self.stages = stages_of(core, cluster);
        let main = &core.pools[cluster];
        let own: Vec<usize> = std::mem::take(&mut self.pools);
        self.steals.clear();
        for pool in own.iter().map(|pool| &core.pools[*pool]).chain([main]) {
            pool.forget_asks(&core.pools);
        }
        core.cut_threads(main, main.threads().saturating_sub(threads));
        // As many as there are: a cluster with stages needs one.
        let set = (main.threads()..threads).try_for_each(|_| core.add_threads(main, 1));
        let workers = &core.worker_groups[cluster];
        workers.set_per_worker_queues(false);
        workers.set_pooled(false);
        workers.set_measures_cpu(false);
        workers.shared.set_visit_order(None, |stage| core.priorities.of(stage));
        let mut effects = Effects::default();
        for StageInfo { id, kind, name, .. } in &self.stages {
            let base = *core.assignments[id.index()].base.lock();
            core.move_stage(id.0, cluster);
            core.set_priority(id.0, base.priority);
            core.set_color(id.0, None);
            self.since.insert(id.0, Since::now(core.node(id.0).reading()));
            if *kind != Kind::Stage {
                continue;
            }
            let node = core.node(id.0);
            node.set_capacity(core, base.capacity, &mut effects);
            node.set_when_full(base.when_full);
            node.set_enabled(core, base.enabled, &mut effects);
            let instances = node.reading().instances;
            if instances != base.instances && instances > 0 {
                effects.hand_over(core); // factories are user code
                let set = node.set_instances(core, base.instances, &mut effects);
                // It may have ended meanwhile.
                if let Err(message) = set
                    && node.reading().instances > 0
                {
                    core.report(format!("instances of `{name}`: {message}"));
                }
            }
        }
        core.dispatch(effects);
        core.empty(main);
        // Last, when nothing leads there any more.
        for pool in &own {
            let pool = &core.pools[*pool];
            core.empty(pool);
            core.cut_threads(pool, pool.threads());
        }
        self.spare.extend(own);
        self.spare.sort_unstable_by(|a, b| b.cmp(a)); // the first is used first
        set
    }

    /// The visit order that holds, or is published at the end of this call.
    pub(crate) fn visit_order(&self) -> &VisitOrder {
        &self.visit_order
    }

    /// Sets a timer for the next time.
    pub(crate) fn set_timer(&self, core: &Core, cluster: usize, timer: u32) {
        if let Some(every) = self.timers.get(timer as usize) {
            let alarm = Alarm::Policy(PolicyTimer { cluster, timer, epoch: self.epoch });
            core.timers.add(core.clock.now() + *every, alarm);
        }
    }
}

fn stages_of(core: &Core, cluster: usize) -> Vec<StageInfo> {
    let own = |id: usize| core.assignments[id].base.lock().cluster == cluster;
    let mut stages = stage_infos(&core.graph, &core.depths, own);
    for stage in &mut stages {
        stage.capacity_min = core.node(stage.id.0).capacity_min();
        let base = *core.assignments[stage.id.index()].base.lock();
        (stage.instances_said, stage.capacity_said) = (base.instances_said, base.capacity_said);
    }
    stages
}

/// Stages as their policy knows them, in the order of the pipeline.
pub(crate) fn stage_infos(
    graph: &Graph,
    depths: &[u32],
    own: impl Fn(usize) -> bool,
) -> Vec<StageInfo> {
    let all = graph.stages.iter().zip(depths).zip(0u32..);
    let mut own: Vec<_> = all
        .filter(|(_, id)| own(*id as usize))
        .map(|((spec, depth), id)| {
            let mut info = StageInfo::new(StageId(id), &*spec.name, spec.kind, *depth as usize);
            info.stateful = spec.stateful || spec.kind != Kind::Stage;
            info.ordered = spec.ordered;
            (info.keyed, info.waits) = (spec.keyed, spec.waits);
            info.capacity_min = spec.batched.map_or(1, |(events, _)| events);
            info
        })
        .collect();
    own.sort_by_key(|stage| (stage.depth, stage.id));
    own
}
