//! A policy of `crates/policy` on the cores of a node: which replica a free core serves next. Without one, replicas take
//! turns (`work`).
//!
//! The policy is the code that a program runs. It sees and changes a mock of the node, whose stages are the replicas there and whose
//! threads are the cores. Modelled are one ready queue with priorities, and visit orders with their bounds, restarts and the
//! call at the last place. A policy that makes pools, timers or colors or adds instances is refused. One starts anew when
//! a replica comes or goes.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use comporta_placement::Choice;
use comporta_policy::mock::{Mock, MockStage};
use comporta_policy::{Kind, Policy, PoolId, Registry, StageId, StageInfo};

/// A replica as a policy sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stage {
    pub(super) replica: u32,
    /// Operators before it, on the longest way.
    pub(super) depth: usize,
    pub(super) queued: usize,
}

/// A policy and the node that it schedules.
pub(super) struct NodePolicy {
    policy: Box<dyn Policy>,
    mock: Mock,
    /// What the mock calls each replica.
    names: HashMap<u32, String>,
    priorities: HashMap<u32, i32>,
    /// The visit order, and after it what it leaves out. Empty where there is one ready queue.
    order: Vec<u32>,
    /// The last place of the order as the policy made it.
    last: usize,
    /// Of each core.
    visits: Vec<Visit>,
    /// How often a core came to the last place.
    came_to_last: usize,
    now_ns: u64,
}

/// Where a core is in the visit order, and how many events it has handled there.
#[derive(Clone, Copy, Debug, Default)]
struct Visit {
    place: usize,
    handled: usize,
}

impl std::fmt::Debug for NodePolicy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NodePolicy").field("order", &self.order).finish_non_exhaustive()
    }
}

/// Starts a policy on a node of two replicas.
///
/// # Errors
/// Why it cannot run a node of the model.
pub(crate) fn rehearse(choice: &Choice, cores: usize) -> Result<(), String> {
    let stage = |replica: u32| Stage { replica, depth: replica as usize, queued: 0 };
    NodePolicy::start(choice, cores, &[stage(1), stage(2)]).map(|_| ())
}

/// Makes the policy of a choice, or returns what is wrong with the choice.
fn make(choice: &Choice) -> Result<Box<dyn Policy>, String> {
    let registry = Registry::new();
    let offers = registry.offers();
    let full = comporta_model::plan::validate_choice("policy", &offers, choice, "policy")
        .map_err(|faults| faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))?;
    let entry = registry.find(&full.name).expect("the choice was found among its offers");
    Ok(entry.make(&full))
}

impl NodePolicy {
    /// Starts a policy on a node of so many cores.
    pub(super) fn start(choice: &Choice, cores: usize, stages: &[Stage]) -> Result<Self, String> {
        let mut stages = stages.to_vec();
        stages.sort_by_key(|stage| stage.depth);
        let info = |stage: &Stage| {
            let name = stage.replica.to_string();
            StageInfo::new(StageId(stage.replica), name, Kind::Stage, stage.depth)
        };
        let mock = Mock::cluster("node", stages.iter().map(info).collect());
        let mut this = NodePolicy {
            policy: make(choice)?,
            mock: mock.with_threads(cores).with_cpus(cores, 0),
            names: stages.iter().map(|one| (one.replica, one.replica.to_string())).collect(),
            priorities: HashMap::new(),
            order: Vec::new(),
            last: 0,
            visits: vec![Visit::default(); cores],
            came_to_last: 0,
            now_ns: 0,
        };
        stages.iter().for_each(|stage| this.stage(stage.replica).queued = stage.queued);
        this.mock.start(&mut *this.policy).map_err(|refused| refused.to_string())?;
        let fresh = |stage: &MockStage| {
            stage.pool == PoolId(0) && stage.color.is_none() && stage.instances == 1
        };
        let is_modelled = this.names.values().all(|name| fresh(this.mock.at(name)));
        if !is_modelled || !this.mock.timers().is_empty() {
            return Err(
                "it makes pools, timers, colors or instances, which a node of the model has not"
                    .to_owned(),
            );
        }
        this.read_back();
        Ok(this)
    }

    fn stage(&mut self, replica: u32) -> &mut MockStage {
        self.mock.at_mut(&self.names[&replica])
    }

    /// What the policy has made of the node.
    fn read_back(&mut self) {
        let priority = |(replica, name): (&u32, &String)| (*replica, self.mock.at(name).priority);
        self.priorities = self.names.iter().map(priority).collect();
        let numbers = self
            .mock
            .order()
            .into_iter()
            .map(|name| name.parse().expect("the names of stages are the numbers of replicas"));
        let mut order: Vec<u32> = numbers.collect();
        self.last = order.len().saturating_sub(1);
        if !order.is_empty() {
            let mut left_out: Vec<u32> =
                self.names.keys().copied().filter(|replica| !order.contains(replica)).collect();
            left_out.sort_unstable();
            order.extend(left_out);
        }
        if order != self.order {
            self.order = order;
            self.visits.fill(Visit::default());
        }
        self.mock.take_log();
        self.mock.take_explained();
    }

    /// An event has entered the queue of a replica.
    pub(super) fn arrived(&mut self, replica: u32) {
        let stage = self.stage(replica);
        (stage.queued, stage.arrived) = (stage.queued + 1, stage.arrived + 1);
    }

    /// An event of a replica has been handled.
    pub(super) fn handled(&mut self, replica: u32) {
        self.stage(replica).processed += 1;
    }

    /// Takes the replica that a core serves next from those that are ready.
    pub(super) fn pick(
        &mut self,
        core: usize,
        ready: &mut VecDeque<u32>,
        now_ns: u64,
    ) -> Option<u32> {
        if ready.is_empty() {
            return None;
        }
        self.mock.pass(Duration::from_nanos(now_ns - self.now_ns));
        self.now_ns = now_ns;
        let picked = if self.order.is_empty() {
            let priority = |replica: &u32| self.priorities.get(replica).copied().unwrap_or(0);
            // Of equal ones the first.
            let best = ready.iter().enumerate().rev().max_by_key(|(_, replica)| priority(replica));
            let place = best.map(|(place, _)| place)?;
            ready.remove(place)?
        } else {
            self.visit(core, ready)
        };
        let stage = self.stage(picked);
        stage.queued = stage.queued.saturating_sub(1);
        Some(picked)
    }

    /// Goes through the visit order to the next replica that is ready; some are.
    fn visit(&mut self, core: usize, ready: &mut VecDeque<u32>) -> u32 {
        let visit = self.visits[core];
        let here = self.order[visit.place];
        let bound = self.stage(here).events_max.unwrap_or(usize::MAX);
        if visit.handled > 0 && visit.handled < bound && take(ready, here) {
            self.visits[core].handled += 1;
            return here;
        }
        let restart = self.mock.restart_index().filter(|_| visit.handled > 0);
        let next = |place: usize, places: usize| (place + 1) % places;
        let begins = visit.handled == 0;
        let mut place = match restart {
            Some(place) => place,
            None if begins => visit.place,
            None => next(visit.place, self.order.len()),
        };
        // Twice round at most: the order may be made anew on the way.
        for _ in 0..2 * self.order.len() {
            if place == self.last && self.come_to_last() {
                place = 0;
            }
            let there = self.order[place];
            if take(ready, there) {
                self.visits[core] = Visit { place, handled: 1 };
                return there;
            }
            place = next(place, self.order.len());
        }
        let first = ready.pop_front().expect("some are ready");
        self.visits[core] = Visit { place: 0, handled: 0 };
        first
    }

    /// A core comes to the last place: once for a round of all of them the policy is called. Returns `true` if it made the order anew.
    fn come_to_last(&mut self) -> bool {
        let calls = self.came_to_last.is_multiple_of(self.visits.len());
        self.came_to_last += 1;
        if !calls {
            return false;
        }
        let before = self.order.clone();
        // What is refused changes nothing, as in a program, where it is reported.
        let _ = self.mock.fire_last_focused(&mut *self.policy);
        self.read_back();
        self.order != before
    }
}

/// Takes a replica out of those that are ready, if it is there.
fn take(ready: &mut VecDeque<u32>, replica: u32) -> bool {
    let place = ready.iter().position(|one| *one == replica);
    place.and_then(|place| ready.remove(place)).is_some()
}
