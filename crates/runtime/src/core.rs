//! What all parts of a running program share: its nodes, pools, clock and timers; and how tokens are made
//! ready. How stages are joined is in `wiring`, how a run ends in `run_state`, its threads in `threads`.

use std::num::NonZeroU32;
use std::sync::OnceLock;
use std::task::Waker;

use comporta_model::event::Time;
use comporta_model::graph::{Graph, StageId};
use comporta_model::plan::Settings;
use comporta_model::replicas::{Replicas, Replicated};
use comporta_policy::{Registry, admission, limits};

use crate::assignment::{Assignment, cluster_of, placed};
use crate::color::Colors;
use crate::cpu_share::CpuShare;
use crate::effects::Effects;
use crate::env::{self, Clock};
use crate::node::Node;
use crate::path::outlet::Inlet;
use crate::path::ready::Token;
use crate::policy_host::PolicyHost;
use crate::pool::{EnterOutcome, Pool, Pools};
use crate::priority::Priorities;
use crate::reactor::{Entered, Reactor};
use crate::resource::Resources;
use crate::run_state::RunState;
use crate::sleep::Awake;
use crate::snapshot::{PoolSnapshot, Snapshot};
use crate::sync::{Arc, AtomicBool, CachePadded, Condvar, Mutex, Relaxed, SeqCst};
use crate::testing::Hooks;
use crate::timer::{Alarm, Calls, PolicyTimer, Timers};
use crate::user;
use crate::wake_timers::WakeTimers;
use crate::wiring::{Declared, Wiring};
use crate::workers::WorkerGroup;

pub(crate) struct Core {
    /// As it runs: where the plan wants replicas, each is a stage.
    pub(crate) graph: Graph,
    pub(crate) replicas: Replicas,
    pub(crate) settings: Settings,
    pub(crate) clock: Clock,
    pub(crate) timers: Arc<Timers>,
    pub(crate) wake_timers: WakeTimers,
    pub(crate) reactor: Reactor,
    pub(crate) policy_calls: Calls<PolicyTimer>,
    /// Wakers of the program's futures.
    pub(crate) waker_calls: Calls<Waker>,
    /// Of each cluster.
    pub(crate) worker_groups: Vec<WorkerGroup>,
    /// The first are those of the clusters, in their order.
    pub(crate) pools: Pools,
    /// Of each cluster.
    pub(crate) policy_hosts: Vec<PolicyHost>,
    pub(crate) registry: Registry,
    pub(crate) admissions: admission::Registry,
    pub(crate) colors: Colors,
    /// For each stage, how many lie before it.
    pub(crate) depths: Vec<u32>,
    pub(crate) assignments: Vec<Assignment>,
    pub(crate) priorities: Priorities,
    /// For each stage, how much of its visits is CPU time.
    pub(crate) cpu_shares: Vec<CachePadded<CpuShare>>,
    pub(crate) wiring: Wiring,
    pub(crate) resources: Resources,
    nodes: OnceLock<Vec<Arc<dyn Node>>>,
    tested: bool,
    pub(crate) hooks: Hooks,
    pub(crate) stopped: AtomicBool,
    pub(crate) run: Mutex<RunState>,
    pub(crate) changed: Condvar,
}

impl Core {
    pub(crate) fn new(
        replicated: Replicated,
        (registry, admissions): (Registry, admission::Registry),
        declared: Declared,
        clock: Clock,
        tested: bool,
    ) -> Self {
        let Replicated { graph, topology, settings, replicas, .. } = replicated;
        let stages = settings.stages.iter().zip(&graph.stages);
        let mut keys: Vec<usize> = graph.stages.iter().map(|spec| spec.keyed.into()).collect();
        for connector in &graph.connectors {
            let to = connector.to.iter().filter(|to| graph.stages[to.index()].keyed).count();
            keys[connector.from.index()] += to.min(1);
        }
        let assignments = stages.zip(keys);
        let assignments = assignments
            .map(|((stage, spec), keys)| Assignment::new(stage, spec, keys, tested))
            .collect();
        let clusters = settings.clusters.len();
        // A cluster may come to have all stages.
        let each = 1 + limits::pools_max(graph.stages.len());
        let pools = Pools::new(clusters * each);
        for (cluster, of) in settings.clusters.iter().enumerate() {
            let _ = pools.make(|_| of.name.clone(), cluster);
        }
        let timers = Arc::<Timers>::default();
        // Models explore what happens when everybody is woken who can be.
        let cpus = if cfg!(shuttle) { usize::MAX } else { env::cpus() };
        let awake = Arc::new(Awake::new(cpus, timers.clone()));
        let worker_groups = settings.clusters.iter().enumerate();
        let worker_groups = worker_groups
            .map(|(i, cluster)| WorkerGroup::new(i, cluster.name.clone(), awake.clone()))
            .collect();
        let policy_hosts = settings.clusters.iter().enumerate();
        let wiring = Wiring::new(&graph, &topology, &settings, declared);
        Core {
            priorities: Priorities::new(settings.stages.iter().map(|s| s.priority).collect()),
            assignments,
            cpu_shares: graph.stages.iter().map(|_| CachePadded::default()).collect(),
            worker_groups,
            pools,
            policy_hosts: policy_hosts.map(|(i, cluster)| PolicyHost::new(i, cluster)).collect(),
            registry,
            admissions,
            colors: Colors::default(),
            depths: topology.depth,
            run: Mutex::new(RunState::new(graph.stages.len())),
            graph,
            replicas,
            settings,
            clock,
            timers,
            wake_timers: WakeTimers::default(),
            reactor: Reactor::default(),
            policy_calls: Calls::default(),
            waker_calls: Calls::default(),
            wiring,
            resources: Resources::default(),
            nodes: OnceLock::new(),
            tested,
            hooks: Hooks::new(),
            stopped: AtomicBool::new(false),
            changed: Condvar::new(),
        }
    }

    pub(crate) fn set_nodes(&self, nodes: Vec<Arc<dyn Node>>) {
        let _ = self.nodes.set(nodes);
    }

    pub(crate) fn nodes(&self) -> &[Arc<dyn Node>] {
        self.nodes.get().map_or(&[], Vec::as_slice)
    }

    #[inline]
    pub(crate) fn node(&self, stage: u32) -> &Arc<dyn Node> {
        &self.nodes()[stage as usize]
    }

    /// Whether this is a test that may inject faults.
    #[inline]
    pub(crate) fn is_tested(&self) -> bool {
        self.tested
    }

    pub(crate) fn inlet<T: 'static>(&self, stage: StageId) -> Arc<dyn Inlet<T>> {
        let inlet = self.node(stage.0).clone().inlet().downcast::<Arc<dyn Inlet<T>>>();
        *inlet.expect("`connect` joins only what carries the same type")
    }

    // --- making ready

    #[inline]
    pub(crate) fn pool_of(&self, stage: u32) -> usize {
        (self.assignments[stage as usize].place.load(SeqCst) as u32) as usize
    }

    /// The workers whose threads run a stage.
    #[inline]
    pub(crate) fn workers_of(&self, stage: u32) -> usize {
        cluster_of(&self.assignments[stage as usize].place)
    }

    /// Stages of one color never run at once.
    #[inline]
    pub(crate) fn color(&self, stage: u32) -> Option<NonZeroU32> {
        NonZeroU32::new(self.assignments[stage as usize].color.load(Relaxed))
    }

    pub(crate) fn set_color(&self, stage: u32, color: Option<NonZeroU32>) {
        let color = color.map_or(0, NonZeroU32::get);
        self.assignments[stage as usize].color.store(color, Relaxed);
    }

    /// Whether a stage is one that is pulled.
    pub(crate) fn is_source(&self, stage: u32) -> bool {
        self.assignments[stage as usize].is_source
    }

    /// Whether the workers of a cluster take tokens from per-worker queues, and steal.
    #[inline]
    pub(crate) fn are_stealing(&self, workers: &WorkerGroup) -> bool {
        workers.per_worker_queues() && !self.priorities.are_used()
    }

    /// Moves a stage to another pool. Its tokens go along, but for those in queues of workers, who forward
    /// them.
    pub(crate) fn move_stage(&self, stage: u32, pool: usize) {
        let place = &self.assignments[stage as usize].place;
        let from = place.swap(placed(pool, self.pools[pool].cluster), SeqCst) as u32 as usize;
        if from == pool {
            return;
        }
        self.empty(&self.pools[from]);
        let group = self.pools[from].cluster;
        if group != self.pools[pool].cluster {
            self.make_all_ready(self.worker_groups[group].shared.take_stage(stage));
        }
        self.node(stage).threads_changed(self.pools[pool].threads());
    }

    /// What waits in a pool is made ready, and comes to the one where it belongs.
    pub(crate) fn empty(&self, pool: &Pool) {
        let mut waiting = Vec::new();
        pool.take_waiting(&mut waiting);
        self.make_all_ready(waiting);
    }

    pub(crate) fn set_priority(&self, stage: u32, priority: i32) {
        if self.priorities.set(stage, priority) {
            for (node, id) in self.nodes().iter().zip(0u32..) {
                node.with_waiting(&mut |waiting| self.priorities.set_waiting(id, waiting));
            }
            // What stands in the queues of workers comes to where priorities count.
            for handle in self.worker_groups.iter().flat_map(|group| group.members().to_vec()) {
                self.make_all_ready(handle.local.take_all());
            }
        }
        self.inherit();
    }

    /// Those who wait for room in the queue of a stage have changed.
    #[cold]
    pub(crate) fn waiting_changed(&self, stage: u32, waiting: impl FnOnce() -> Vec<u32>) {
        if self.priorities.are_used() {
            self.priorities.set_waiting(stage, waiting());
            self.inherit();
        }
    }

    /// Tokens of stages whose priority changes by what they inherit stand where they belong then.
    fn inherit(&self) {
        self.priorities.inherit(|stage, priority| {
            let workers = &self.worker_groups[self.workers_of(stage)];
            workers.shared.rank(stage, priority);
            if workers.is_pooled() {
                self.pools[self.pool_of(stage)].rank(stage, priority);
            }
        });
    }

    /// While what is returned lives, futures on this thread find tokio's reactor, if there is one.
    pub(crate) fn enter_reactor(&self) -> Option<Entered<'_>> {
        self.reactor.enter()
    }

    /// Puts a token into the shared queue of its group and sees to it that someone finds it.
    pub(crate) fn make_ready(&self, token: Token) {
        loop {
            let workers = &self.worker_groups[self.workers_of(token.stage)];
            if workers.shared.push(token, || self.priority_in(workers, token.stage)) {
                return workers.sleep.work_made();
            }
        }
    }

    /// The priority that a token of this stage has in the shared queue of a group; none if the stage is not
    /// this group's.
    #[inline]
    pub(crate) fn priority_in(&self, workers: &WorkerGroup, stage: u32) -> Option<i32> {
        (self.workers_of(stage) == workers.cluster).then(|| self.priorities.of(stage))
    }

    pub(crate) fn make_all_ready(&self, tokens: Vec<Token>) {
        tokens.into_iter().for_each(|token| self.make_ready(token));
    }

    /// A token's visit is to be made by a worker of `workers`. Returns in which pool, if there are several;
    /// nothing if it is not to be made now, and the token is where it will be found.
    #[inline]
    pub(crate) fn enter_pool(&self, workers: &WorkerGroup, token: Token) -> Option<Option<&Pool>> {
        if workers.is_pooled() || self.workers_of(token.stage) != workers.cluster {
            return self.enter_pool_or_move(workers, token);
        }
        Some(None)
    }

    fn enter_pool_or_move(&self, workers: &WorkerGroup, token: Token) -> Option<Option<&Pool>> {
        while workers.is_pooled() {
            let pool = &self.pools[self.pool_of(token.stage)];
            if pool.cluster != workers.cluster {
                break;
            }
            let belongs = || workers.is_pooled() && self.pool_of(token.stage) == pool.index;
            match pool.enter(token, || self.priorities.of(token.stage), belongs) {
                EnterOutcome::Entered => return Some(Some(pool)),
                EnterOutcome::Waits => return None,
                EnterOutcome::Moved => {}
            }
        }
        if self.workers_of(token.stage) != workers.cluster {
            self.make_ready(token); // its stage has moved
            return None;
        }
        Some(None)
    }

    /// What an alarm was set for happens.
    pub(crate) fn sound(self: &Arc<Self>, alarm: Alarm) {
        match alarm {
            Alarm::Ready(token) => self.make_ready(token),
            Alarm::Policy(PolicyTimer { cluster, timer, epoch }) => {
                self.policy_hosts[cluster].timer_due(self, timer, epoch);
            }
            Alarm::Wakers => self.wake_timers.ring(self),
            Alarm::Gateway(input) => self.node(input).alarm(self),
            Alarm::Leave => self.leave_sources(),
        }
    }

    /// From outside the workers: hands everything over, and drops what is no longer wanted.
    pub(crate) fn dispatch(&self, mut effects: Effects) {
        effects.hand_over(self);
        // What futures hold may need the reactor when it is dropped.
        let _reactor = effects.wants_user_code().then(|| self.enter_reactor());
        effects.call_and_drop();
    }

    /// Ends what is over and breaks what is stuck, until only tokens and callers are left.
    #[inline]
    pub(crate) fn resolve(&self, effects: &mut Effects) {
        if !effects.over.is_empty() || !effects.stuck.is_empty() {
            self.resolve_some(effects);
        }
    }

    #[cold]
    fn resolve_some(&self, effects: &mut Effects) {
        loop {
            if let Some(stage) = effects.over.pop() {
                match self.wiring.cycle(stage) {
                    Some(cycle) => {
                        // The last of its instances to come to rest finds that all have.
                        let members = || cycle.stages.iter().map(|member| self.node(*member));
                        if members().all(|member| member.may_finish()) {
                            members().for_each(|member| member.begin_finish(self, effects));
                        }
                    }
                    None => self.node(stage).begin_finish(self, effects),
                }
            } else if let Some(cycle) = effects.stuck.pop() {
                if cycle.is_stuck() {
                    let mut stages = cycle.stages.iter();
                    let _ = stages.any(|stage| self.node(*stage).break_cycle(self, effects));
                }
            } else {
                return;
            }
        }
    }

    /// The name of a stage; its replicas share it.
    pub(crate) fn name(&self, stage: StageId) -> &str {
        &self.graph.stages[stage.index()].name
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        let gateways: Vec<_> = self.nodes().iter().filter_map(|node| node.gateway()).collect();
        let of = |id: StageId| {
            let mut stage = self.node(id.0).snapshot(self.name(id), self.priorities.own(id.0));
            let sent = self.wiring.sent_by(id.0).into_iter();
            stage.sent = sent.map(|(to, events)| (self.name(to).to_owned(), events)).collect();
            stage.gateway = gateways.iter().find_map(|requests| requests.snapshot(id.0));
            stage
        };
        let stages = self.replicas.all().filter_map(|replicas| {
            replicas.iter().map(|id| of(*id)).reduce(|mut all, one| {
                all.add(one);
                all
            })
        });
        Snapshot {
            app: self.graph.name.to_string(),
            elapsed: self.clock.now().duration_since(Time::ZERO),
            stages: stages.collect(),
            pools: self
                .pools
                .iter()
                .map(|pool| (pool, pool.threads()))
                .filter(|(pool, threads)| pool.index < self.policy_hosts.len() || *threads > 0)
                .map(|(pool, threads)| PoolSnapshot {
                    name: pool.name.clone(),
                    stages: self.stages_in(pool),
                    cluster: self.pools[pool.cluster].name.clone(),
                    threads,
                    policy: self.policy_hosts[pool.cluster].choice(),
                })
                .collect(),
        }
    }
}

impl Drop for Core {
    /// What stages were made of is the program's, and is dropped last, on whichever thread lets go of the run last.
    fn drop(&mut self) {
        self.nodes.take().into_iter().flatten().for_each(user::discard);
    }
}
