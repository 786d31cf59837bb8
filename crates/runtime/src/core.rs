//! What all parts of a running program share: its nodes, pools, clock and timers; how tokens are
//! made ready, and how the end of one stage reaches the next.
//! Long because the life of a run, from its nodes to its threads, is one struct under one set of rules.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::OnceLock;
use std::time::Duration;

use comporta_model::event::Time;
use comporta_model::graph::{Graph, Kind, StageId, Topology};
use comporta_model::plan::{Settings, WhenFull};
use comporta_model::stage::Host;
use comporta_policy::{Registry, admission, limits};

use crate::color::{self, Colors};
use crate::cycle::Cycle;
use crate::effects::{Effects, Visit};
use crate::env::{Clock, cpus};
use crate::failure::Failure;
use crate::path::emit::{Edge, Tap};
use crate::path::outlet::Inlet;
use crate::path::ready::{Task, Token};
use crate::policy_host::PolicyHost;
use crate::pool::{Door, Pool, Pools};
use crate::priority::{Changed, Priorities};
use crate::sleep::Awake;
use crate::snapshot::{PoolSnapshot, Snapshot, StageSnapshot};
use crate::stage::gate::Controller;
use crate::stage::handle::Fault;
use crate::sync::{
    Arc, AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Condvar, Mutex, Relaxed, SeqCst, wait,
};
use crate::threads::LONG;
use crate::timer::{Alarm, Timers};
use crate::user;
use crate::workers::AnyTray;
use crate::workers::WorkerGroup;

/// A stage, source or input, whatever its types.
pub(crate) trait Node: Send + Sync {
    /// Does what a token stands for.
    fn visit(&self, core: &Arc<Core>, task: Task, visit: &mut Visit);
    /// Makes the instances, or opens the source.
    fn start(&self, core: &Arc<Core>, effects: &mut Effects) -> Result<(), String>;
    /// Its queue, as `Arc<dyn Inlet<Item>>`.
    fn inlet(self: Arc<Self>) -> Box<dyn Any>;
    /// Takes back what a visit that does not return has not begun.
    fn reclaim(&self, _: &Core, _tray: &dyn Any, _: &mut Effects) {}
    /// Nothing more is to come from outside: for sources and inputs.
    fn close(&self, _: &Core, _: &mut Effects) {}
    /// It was closed and does not return from where it waits for events, if it is a source. Returns
    /// whether the program goes on without it.
    fn leave(&self, _: &Core, _: &mut Effects) -> bool {
        false
    }
    /// One of its producers ended.
    fn close_edge(&self, _: &mut Effects) {}
    /// Whether, as far as it is concerned, its cycle may end.
    fn may_finish(&self) -> bool {
        true
    }
    /// If it has seen its last event, its instances finish.
    fn begin_finish(&self, _: &Core, _: &mut Effects) {}
    /// The program stops: what it holds is cancelled.
    fn cancel(&self, effects: &mut Effects);
    /// The program has stopped: a source is told what it has not been told yet, and goes.
    fn farewell(&self, _: &Core, _: &mut Effects) {}
    /// Sheds an event if an instance of its cycle waits for it. Returns whether one did.
    fn break_cycle(&self, _: &Core, _: &mut Effects) -> bool {
        false
    }
    /// Its numbers.
    fn snapshot(&self, name: &str, priority: i32) -> StageSnapshot;
    /// Those whose instances wait for room in its queue.
    fn waiting_stages(&self) -> Vec<u32> {
        Vec::new()
    }
    fn set_capacity(&self, _: &Core, _: usize, _: &mut Effects) {}
    /// The least capacity it can have.
    fn capacity_min(&self) -> usize {
        1
    }
    fn set_enabled(&self, _: bool) {}
    fn set_when_full(&self, _: WhenFull) {}
    fn set_controller(&self, _: Option<Controller>) {}
    /// What a policy asks for.
    fn reading(&self) -> Reading;
    fn set_instances(&self, _: &Arc<Core>, _: usize, _: &mut Effects) -> Result<(), String> {
        Ok(())
    }
    fn failures(&self) -> Vec<Failure>;
    /// All failures with their events, as `Vec<(Failure, Option<Item>)>`, if `item` is the type
    /// of its events.
    fn take_failures(&self, _item: TypeId) -> Box<dyn Any> {
        Box::new(())
    }
    fn replay(&self, _: &Core, _: usize, _: &mut Effects) -> usize {
        0
    }
    fn inject(&self, _: Fault) {}
}

/// The numbers of a stage that policies look at.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reading {
    pub(crate) queued: usize,
    /// Events that came in; that a source sent.
    pub(crate) arrived: u64,
    /// Events that were handled, or failed; that a source sent.
    pub(crate) processed: u64,
    /// Those that leave after what they have in hand do not count; 0 if the stage has ended.
    pub(crate) instances: usize,
    pub(crate) free: usize,
    pub(crate) capacity: usize,
    pub(crate) enabled: bool,
}

/// Where a stage stands with its pool; changed while events flow.
pub(crate) struct Place {
    pool: AtomicUsize,
    color: AtomicU32,
    is_source: bool,
    /// Its visits take long.
    slow: AtomicBool,
    /// What the plan says, and what a person has said since. A policy changes what holds, never
    /// this; the next policy begins with it.
    pub(crate) base: Mutex<Base>,
}

/// How a stage runs where no policy says otherwise.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Base {
    pub(crate) cluster: usize,
    pub(crate) priority: i32,
    pub(crate) capacity: usize,
    pub(crate) when_full: WhenFull,
    pub(crate) enabled: bool,
    pub(crate) instances: usize,
}

/// The connectors and taps of a program, by stage and port, with their types erased.
#[derive(Default)]
pub(crate) struct Wiring {
    pub(crate) edges: HashMap<(u32, usize), Vec<Box<dyn Any + Send + Sync>>>,
    pub(crate) taps: HashMap<(u32, usize), Box<dyn Any + Send + Sync>>,
}

pub(crate) struct Core {
    pub(crate) graph: Graph,
    pub(crate) settings: Settings,
    pub(crate) clock: Clock,
    pub(crate) timers: Arc<Timers>,
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
    pub(crate) places: Vec<Place>,
    pub(crate) priorities: Priorities,
    /// For each sender and each queue it leads to, how many events it has sent there.
    flows: HashMap<(u32, u32), Arc<AtomicU64>>,
    cycles: Vec<Option<Arc<Cycle>>>,
    wiring: Wiring,
    /// For the ports of which the plan says what happens at a full queue, in the order of their edges.
    rules: HashMap<(u32, usize), Vec<Vec<Option<WhenFull>>>>,
    /// For each stage, where its ports lead.
    outgoing: Vec<Vec<(usize, StageId)>>,
    /// For each stage, the edges that lead to it from outside of its cycle.
    incoming: Vec<usize>,
    nodes: OnceLock<Vec<Arc<dyn Node>>>,
    tested: bool,
    /// What a test says of the machine's CPUs.
    pub(crate) cpu_usage: AtomicU32,
    /// Stages that a test holds back, and their tokens.
    held: Mutex<HashMap<u32, Vec<Token>>>,
    stopped: AtomicBool,
    pub(crate) run: Mutex<RunState>,
    pub(crate) changed: Condvar,
}

/// Called once, when the run has come to its end.
pub(crate) type OnEnd = Box<dyn FnOnce() + Send>;

#[derive(Default)]
pub(crate) struct RunState {
    /// Nodes that have not ended.
    pub(crate) live: usize,
    /// Threads that have not ended.
    pub(crate) threads: usize,
    /// So many of them are in sources that were left.
    pub(crate) left: usize,
    pub(crate) quit: bool,
    /// Sources and inputs were closed: the end that follows is a drain's.
    pub(crate) closed: bool,
    /// The program was stopped.
    pub(crate) stopped: bool,
    /// What is to be called at the end.
    on_end: Vec<OnEnd>,
    pub(crate) result: Option<Box<dyn Any + Send>>,
    pub(crate) problems: Vec<String>,
    /// Problems past the bound.
    pub(crate) problems_more: usize,
}

impl RunState {
    pub(crate) fn is_ended(&self) -> bool {
        self.live == 0 || self.quit || self.stopped
    }

    fn take_on_end(&mut self) -> Vec<OnEnd> {
        std::mem::take(&mut self.on_end)
    }
}

/// How long a drain waits for a source that does not return.
pub(crate) const PATIENCE: Duration = Duration::from_secs(1);
/// How many problems are remembered; the rest is counted.
const PROBLEMS_MAX: usize = 100;

impl Core {
    pub(crate) fn new(
        graph: Graph,
        topology: &Topology,
        settings: Settings,
        (registry, admissions): (Registry, admission::Registry),
        wiring: Wiring,
        clock: Clock,
        tested: bool,
    ) -> Self {
        let places = settings.stages.iter().zip(&graph.stages).map(|(stage, spec)| Place {
            pool: AtomicUsize::new(stage.pool),
            color: AtomicU32::new(color::NONE),
            is_source: spec.kind == Kind::Source,
            slow: AtomicBool::new(false),
            base: Mutex::new(Base {
                cluster: stage.pool,
                priority: stage.priority,
                capacity: stage.capacity,
                when_full: stage.when_full,
                enabled: true,
                instances: stage.instances,
            }),
        });
        let places = places.collect();
        let clusters = settings.pools.len();
        // A cluster may come to have all stages.
        let each = 1 + limits::pools_max(graph.stages.len());
        let pools = Pools::new(clusters * each);
        for (cluster, pool) in settings.pools.iter().enumerate() {
            let _ = pools.make(|_| pool.name.clone(), cluster);
        }
        let timers = Arc::<Timers>::default();
        // Models explore what happens when everybody is woken who can be.
        let cpus = if cfg!(shuttle) { usize::MAX } else { cpus() };
        let awake = Arc::new(Awake::new(cpus, timers.clone()));
        let worker_groups = settings.pools.iter().enumerate();
        let worker_groups = worker_groups
            .map(|(i, pool)| WorkerGroup::new(i, pool.name.clone(), awake.clone()))
            .collect();
        let policy_hosts = settings.pools.iter().enumerate();
        let mut outgoing = vec![Vec::new(); graph.stages.len()];
        let mut incoming = vec![0; graph.stages.len()];
        for connector in &graph.connectors {
            for to in &connector.to {
                outgoing[connector.from.index()].push((connector.port, *to));
                let (from, to) = (connector.from.index(), to.index());
                let inside = topology.component[from] == topology.component[to];
                incoming[to] += usize::from(!inside);
            }
        }
        let pairs = graph.connectors.iter().flat_map(|c| c.to.iter().map(|to| (c.from.0, to.0)));
        let flows = pairs.map(|pair| (pair, Arc::default())).collect();
        let live = graph.stages.len();
        let rules = ruled_ports(&graph, &settings);
        Core {
            priorities: Priorities::new(settings.stages.iter().map(|s| s.priority).collect()),
            flows,
            places,
            worker_groups,
            pools,
            policy_hosts: policy_hosts.map(|(i, pool)| PolicyHost::new(i, pool)).collect(),
            registry,
            admissions,
            colors: Colors::default(),
            depths: topology.depth.clone(),
            cycles: cycles(&graph, topology),
            graph,
            settings,
            clock,
            timers,
            wiring,
            rules,
            outgoing,
            incoming,
            nodes: OnceLock::new(),
            tested,
            cpu_usage: AtomicU32::new(0),
            held: Mutex::default(),
            stopped: AtomicBool::new(false),
            run: Mutex::new(RunState { live, ..RunState::default() }),
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

    /// How busy CPUs are, if this is a test: what it says.
    pub(crate) fn cpu_said(&self) -> Option<u32> {
        self.tested.then(|| self.cpu_usage.load(Relaxed))
    }

    /// Whether this is a test that may inject faults.
    #[inline]
    pub(crate) fn is_tested(&self) -> bool {
        self.tested
    }

    pub(crate) fn cycle_of(&self, stage: u32) -> Option<Arc<Cycle>> {
        self.cycles[stage as usize].clone()
    }

    /// Edges that lead to a stage from outside of its cycle.
    pub(crate) fn open_edges(&self, stage: u32) -> usize {
        self.incoming[stage as usize]
    }

    /// For tests: a held stage's tokens are set aside until it is let go.
    pub(crate) fn hold(&self, stage: u32, hold: bool) {
        let mut held = self.held.lock();
        if hold {
            held.entry(stage).or_default();
        } else if let Some(tokens) = held.remove(&stage) {
            drop(held);
            tokens.into_iter().for_each(|token| self.make_ready(token));
        }
    }

    /// For tests: whether a token belongs to a held stage, which then keeps it.
    pub(crate) fn is_held(&self, token: Token) -> bool {
        self.tested && self.held.lock().get_mut(&token.stage).map(|kept| kept.push(token)).is_some()
    }

    // --- types found again

    pub(crate) fn edges_of<T: 'static>(&self, stage: u32, port: usize) -> Vec<&Edge<T>> {
        let edges = self.wiring.edges.get(&(stage, port));
        edges.into_iter().flatten().filter_map(|edge| edge.downcast_ref()).collect()
    }

    /// How to copy the events that come to a stage, if one of the edges that lead to it knows.
    pub(crate) fn copy_for<T: 'static>(&self, stage: u32) -> Option<fn(&T) -> T> {
        let edges = self.wiring.edges.values().flatten();
        let typed = edges.filter_map(|edge| edge.downcast_ref::<Edge<T>>());
        typed.filter(|edge| edge.to.contains(&StageId(stage))).find_map(|edge| edge.copy)
    }

    /// For each of these edges and each of its ends, what happens at a full queue, where that is
    /// not as the queue has it.
    pub(crate) fn rules_of(&self, stage: u32, port: usize) -> &[Vec<Option<WhenFull>>] {
        self.rules.get(&(stage, port)).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn tap<T: 'static>(&self, stage: u32, port: usize) -> Option<Tap<T>> {
        self.wiring.taps.get(&(stage, port))?.downcast_ref::<Tap<T>>().cloned()
    }

    pub(crate) fn inlet<T: 'static>(&self, stage: StageId) -> Arc<dyn Inlet<T>> {
        let inlet = self.node(stage.0).clone().inlet().downcast::<Arc<dyn Inlet<T>>>();
        *inlet.expect("`connect` joins only what carries the same type")
    }

    /// Whether two ports of a stage lead to one queue.
    pub(crate) fn ports_share_a_queue(&self, stage: u32) -> bool {
        let mut seen: HashMap<StageId, usize> = HashMap::new();
        let mut own = self.outgoing[stage as usize].iter();
        own.any(|(port, to)| *seen.entry(*to).or_insert(*port) != *port)
    }

    /// Whether nothing leads on from a stage.
    pub(crate) fn leads_nowhere(&self, stage: u32) -> bool {
        self.outgoing[stage as usize].is_empty()
    }

    /// How many events a stage has sent to the queue of another.
    pub(crate) fn flow(&self, from: u32, to: StageId) -> Arc<AtomicU64> {
        self.flows.get(&(from, to.0)).cloned().unwrap_or_default()
    }

    // --- making ready

    #[inline]
    pub(crate) fn pool_of(&self, stage: u32) -> usize {
        self.places[stage as usize].pool.load(SeqCst)
    }

    /// The workers whose threads run a stage.
    #[inline]
    pub(crate) fn workers_of(&self, stage: u32) -> usize {
        self.pools[self.pool_of(stage)].cluster
    }

    /// Stages of one color never run at once.
    #[inline]
    pub(crate) fn color(&self, stage: u32) -> u32 {
        self.places[stage as usize].color.load(Relaxed)
    }

    pub(crate) fn set_color(&self, stage: u32, color: u32) {
        self.places[stage as usize].color.store(color, Relaxed);
    }

    /// Whether a stage is one that is pulled.
    pub(crate) fn is_source(&self, stage: u32) -> bool {
        self.places[stage as usize].is_source
    }

    /// Whether visits to a stage usually take long.
    #[inline]
    pub(crate) fn is_slow(&self, stage: u32) -> bool {
        self.places[stage as usize].slow.load(Relaxed)
    }

    /// A visit to a stage usually takes so long.
    pub(crate) fn set_pace(&self, stage: u32, visit: Duration) {
        let slow = visit > LONG;
        if self.is_slow(stage) != slow {
            self.places[stage as usize].slow.store(slow, Relaxed);
        }
    }

    /// Whether the workers of a cluster take tokens from queues of their own, and steal.
    #[inline]
    pub(crate) fn is_stealing(&self, group: usize) -> bool {
        self.worker_groups[group].own_queues() && !self.priorities.are_used()
    }

    /// Moves a stage to another pool; tokens that stand with another workers are forwarded.
    pub(crate) fn move_stage(&self, stage: u32, pool: usize) {
        let from = self.places[stage as usize].pool.swap(pool, SeqCst);
        if from != pool {
            self.empty(&self.pools[from]);
        }
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
                self.priorities.set_waiting(id, node.waiting_stages());
            }
            // What stands in the queues of workers comes to where priorities count.
            for handle in self.worker_groups.iter().flat_map(|group| group.members().to_vec()) {
                self.make_all_ready(handle.local.take_all());
            }
        }
        self.rank(&self.priorities.inherit());
    }

    /// Those who wait for room in the queue of a stage have changed.
    pub(crate) fn waiting_changed(&self, stage: u32, waiting: impl FnOnce() -> Vec<u32>) {
        if self.priorities.are_used() {
            self.priorities.set_waiting(stage, waiting());
            self.rank(&self.priorities.inherit());
        }
    }

    /// Tokens of these stages stand where their priority belongs now.
    fn rank(&self, changed: &[Changed]) {
        for (stage, priority) in changed {
            self.worker_groups[self.workers_of(*stage)].shared.rank(*stage, *priority);
        }
    }

    /// Puts a token into the shared queue of its workers and sees to it that someone finds it.
    pub(crate) fn make_ready(&self, token: Token) {
        let workers = &self.worker_groups[self.workers_of(token.stage)];
        workers.shared.push(token, self.priorities.of(token.stage));
        workers.sleep.work_made();
    }

    pub(crate) fn make_all_ready(&self, tokens: Vec<Token>) {
        tokens.into_iter().for_each(|token| self.make_ready(token));
    }

    /// A token's visit is to be made by a worker of `workers`. Says in which pool, if there are several;
    /// nothing if it is not to be made now, and the token is where it will be found.
    pub(crate) fn enter_pool(&self, workers: &WorkerGroup, token: Token) -> Option<Option<&Pool>> {
        while workers.is_pooled() {
            let pool = &self.pools[self.pool_of(token.stage)];
            if pool.cluster != workers.cluster {
                break;
            }
            let belongs = || workers.is_pooled() && self.pool_of(token.stage) == pool.index;
            match pool.enter(token, self.priorities.of(token.stage), belongs) {
                Door::Entered => return Some(Some(pool)),
                Door::Waits => return None,
                Door::Moved => {}
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
            Alarm::Govern { cluster, timer, epoch } => {
                self.policy_hosts[cluster].timer_due(self, timer, epoch);
            }
            Alarm::Leave => self.leave_sources(),
        }
    }

    /// From outside the workers: hands everything over, and drops what is no longer wanted.
    pub(crate) fn dispatch(&self, mut effects: Effects) {
        effects.hand_over(self);
        effects.empty_trash();
    }

    /// Ends what is over and breaks what is stuck, until only tokens and callers are left.
    pub(crate) fn resolve(&self, effects: &mut Effects) {
        loop {
            if let Some(stage) = effects.over.pop() {
                match &self.cycles[stage as usize] {
                    Some(cycle) => {
                        // The last of its instances to come to rest finds that all have.
                        let members = || cycle.stages.iter().map(|member| self.node(*member));
                        if members().all(|member| member.may_finish()) {
                            members().for_each(|member| member.begin_finish(self, effects));
                        }
                    }
                    None => self.node(stage).begin_finish(self, effects),
                }
            } else if let Some(cycle) = effects.stuck.take() {
                if cycle.is_stuck() {
                    let mut stages = cycle.stages.iter();
                    let _ = stages.any(|stage| self.node(*stage).break_cycle(self, effects));
                }
            } else {
                return;
            }
        }
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

    // --- the end

    /// A stage has ended: so have its edges.
    pub(crate) fn stage_ended(&self, stage: u32, effects: &mut Effects) {
        self.close_edges(stage, effects);
        self.stage_gone(effects);
    }

    pub(crate) fn close_edges(&self, stage: u32, effects: &mut Effects) {
        for (_, to) in &self.outgoing[stage as usize] {
            match &self.cycles[to.index()] {
                Some(cycle) if cycle.stages.binary_search(&stage).is_ok() => {}
                Some(cycle) => {
                    if cycle.close_edge() {
                        effects.over.push(to.0);
                    }
                }
                None => self.node(to.0).close_edge(effects),
            }
        }
    }

    pub(crate) fn stage_gone(&self, effects: &mut Effects) {
        let mut run = self.run.lock();
        run.live -= 1;
        if run.live == 0 {
            self.changed.notify_all();
            effects.call_later(run.take_on_end());
        }
    }

    /// Has `call` called at the end of the run; at once if that has come.
    pub(crate) fn on_end(&self, call: OnEnd) {
        let mut run = self.run.lock();
        if run.is_ended() {
            drop(run);
            let _ = user::call(call);
        } else {
            run.on_end.push(call);
        }
    }

    /// Nothing more comes in from outside.
    pub(crate) fn close(&self) {
        self.run.lock().closed = true;
        let mut effects = Effects::default();
        for node in self.nodes() {
            node.close(self, &mut effects);
        }
        self.dispatch(effects);
        self.timers.add(self.clock.now() + PATIENCE, Alarm::Leave);
    }

    /// Sources that were asked to end, and wait for events that may never come, are left: what they
    /// have sent is handled, and the stages finish. A worker stands in for the one they hold.
    fn leave_sources(self: &Arc<Self>) {
        let mut effects = Effects::default();
        for node in self.nodes() {
            let left = node.leave(self, &mut effects);
            self.run.lock().left += usize::from(left);
        }
        self.watch(self.clock.now());
        self.dispatch(effects);
    }

    /// Something went wrong that costs no event and stops nothing.
    pub(crate) fn report(&self, problem: String) {
        tracing::warn!(app = %self.graph.name, "{problem}");
        let mut run = self.run.lock();
        if run.problems.len() < PROBLEMS_MAX {
            run.problems.push(problem);
        } else {
            run.problems_more += 1;
        }
    }

    pub(crate) fn run_state(&self) -> crate::sync::MutexGuard<'_, RunState> {
        self.run.lock()
    }

    /// Waits until `done` says so or the time is up. Returns whether it did.
    pub(crate) fn wait_until(
        &self,
        bound: Option<Duration>,
        done: impl Fn(&RunState) -> bool,
    ) -> bool {
        let start = self.clock.now();
        let mut run = self.run.lock();
        loop {
            if done(&run) {
                return true;
            }
            let left = bound.map(|bound| bound.saturating_sub(self.clock.now().since(start)));
            if left.is_some_and(|left| left.is_zero()) {
                return false;
            }
            run = wait(&self.changed, run, left);
        }
    }

    #[inline]
    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(SeqCst)
    }

    /// Workers leave after their visit, and no timer fires any more.
    fn halt(&self) {
        self.stopped.store(true, SeqCst);
        self.timers.stop();
        for workers in &self.worker_groups {
            workers.sleep.wake_all();
        }
    }

    /// Stops everything: workers leave after their visit, what is queued is cancelled.
    pub(crate) fn stop(&self) {
        self.halt();
        let on_end = {
            let mut run = self.run.lock();
            run.stopped = true;
            run.take_on_end()
        };
        self.changed.notify_all();
        self.cancel();
        on_end.into_iter().for_each(|call| drop(user::call(call)));
    }

    /// Cancels what nodes hold.
    pub(crate) fn cancel(&self) {
        let mut effects = Effects::default();
        for node in self.nodes() {
            node.cancel(&mut effects);
        }
        self.dispatch(effects);
    }

    /// After the stop, when the workers are gone: cancels what their last visits left behind, and tells
    /// sources what has settled.
    pub(crate) fn farewell(&self) {
        self.cancel();
        let mut effects = Effects::default();
        for node in self.nodes() {
            node.farewell(self, &mut effects);
        }
        self.dispatch(effects);
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        let stages = self.graph.stages.iter().zip(self.nodes()).zip(0u32..);
        Snapshot {
            app: self.graph.name.to_string(),
            elapsed: self.clock.now().since(Time::ZERO),
            stages: stages
                .map(|((spec, node), id)| {
                    let mut stage = node.snapshot(&spec.name, self.priorities.own(id));
                    stage.sent = self.sent_by(id);
                    stage
                })
                .collect(),
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

impl Core {
    /// How many events a stage has sent to each that it leads to.
    fn sent_by(&self, stage: u32) -> Vec<(String, u64)> {
        let mut to: Vec<StageId> =
            self.outgoing[stage as usize].iter().map(|(_, to)| *to).collect();
        to.sort_unstable();
        to.dedup();
        let name = |to: StageId| self.graph.stages[to.index()].name.to_string();
        to.into_iter().map(|to| (name(to), self.flow(stage, to).load(Relaxed))).collect()
    }

    /// The names of the stages that a pool runs.
    fn stages_in(&self, pool: &Pool) -> Vec<String> {
        let all = self.graph.stages.iter().zip(0u32..);
        let own = all.filter(|(_, id)| self.pool_of(*id) == pool.index);
        own.map(|(spec, _)| spec.name.to_string()).collect()
    }
}

impl Host for Core {
    fn now(&self) -> Time {
        self.clock.now()
    }

    fn quit(&self, result: Box<dyn Any + Send>) {
        let mut run = self.run.lock();
        if !run.quit {
            run.quit = true;
            run.result = Some(result);
        }
        self.changed.notify_all();
        let on_end = run.take_on_end();
        drop(run);
        self.halt();
        on_end.into_iter().for_each(|call| drop(user::call(call)));
    }
}

/// What a plan says of connectors, by the port they start from.
fn ruled_ports(
    graph: &Graph,
    settings: &Settings,
) -> HashMap<(u32, usize), Vec<Vec<Option<WhenFull>>>> {
    let mut rules: HashMap<(u32, usize), Vec<Vec<Option<WhenFull>>>> = HashMap::new();
    if settings.connectors.iter().flatten().any(Option::is_some) {
        for (connector, said) in graph.connectors.iter().zip(&settings.connectors) {
            rules.entry((connector.from.0, connector.port)).or_default().push(said.clone());
        }
    }
    rules
}

fn cycles(graph: &Graph, topology: &Topology) -> Vec<Option<Arc<Cycle>>> {
    let mut made: HashMap<usize, Arc<Cycle>> = HashMap::new();
    let component = &topology.component;
    let of = |stage: usize| {
        let own = component[stage];
        if !topology.cyclic[own] {
            return None;
        }
        let cycle = made.entry(own).or_insert_with(|| {
            let stages = (0u32..).zip(component).filter(|(_, c)| **c == own).map(|(s, _)| s);
            let into = graph.connectors.iter().filter(|c| component[c.from.index()] != own);
            let open = into.flat_map(|c| &c.to).filter(|to| component[to.index()] == own).count();
            Arc::new(Cycle::new(stages.collect(), open))
        });
        Some(cycle.clone())
    };
    (0..component.len()).map(of).collect()
}
