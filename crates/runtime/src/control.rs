//! Changing how a program runs while it runs. What is said here goes with the plan: a policy may
//! change it again, and the next one begins with it.

use std::any::{TypeId, type_name};
use std::fmt;

use comporta_model::graph::StageId;
use comporta_model::plan::{
    self, Choice, PlanFault, capacity_allowed, instances_allowed, threads_allowed, validate_choice,
};

use crate::core::Core;
use crate::effects::Effects;
use crate::failure::Failure;
use crate::policy_host::{Decision, InstallError, is_calling};
use crate::stage::gate::Controller;
use crate::sync::Arc;

/// Changes how a program runs while it runs. Every call checks first, and changes nothing if it refuses.
///
/// ```
/// # mod comporta { pub use comporta_model::plan::Plan; pub use comporta_runtime::{App, testing}; }
/// use comporta::{App, Plan, testing::TestRuntime};
///
/// let app = App::new("parser");
/// let texts = app.source("texts", || ["1", "two", "3"].map(String::from).into_iter());
/// let parse = app.sink("parse", |text: String| text.parse::<u64>().map(drop)).retain();
/// app.connect(texts, parse);
///
/// let mut runtime = TestRuntime::new(app, &Plan::new())?; // or `app.start(&plan)?` on threads
/// let control = runtime.control();
/// control.set_instances("parse", 2)?;
/// assert_eq!(
///     control.set_instances("prase", 2).unwrap_err().to_string(),
///     "the program has no stage `prase`: did you mean `parse`?"
/// );
/// runtime.run_until_idle();
/// let failures = control.take_failures::<String>("parse")?;
/// assert_eq!(failures[0].0.reason.to_string(), "invalid digit found in string");
/// assert_eq!(failures[0].1.as_deref(), Some("two"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Control {
    core: Arc<Core>,
}

/// Why a change was refused. Nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ControlError {
    /// It would not make a valid plan.
    Plan(PlanFault),
    /// The new instance could not be made.
    Instance(String),
    /// The policy would not start; the one before goes on.
    Policy(String),
    /// The system has no more threads; there are as many as it gave.
    Threads(String),
    /// A policy said it while it was called: it acts through the control it is handed.
    ByPolicy,
    /// The events of a stage were asked for as another type.
    WrongType {
        /// The stage.
        stage: String,
        /// What it takes.
        takes: &'static str,
        /// What was asked for.
        asked: &'static str,
    },
}

impl fmt::Display for ControlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ControlError::Plan(fault) => fault.fmt(f),
            ControlError::Instance(message) => {
                write!(f, "an instance could not be made: {message}")
            }
            ControlError::Policy(message) => write!(f, "the policy did not start: {message}"),
            ControlError::Threads(message) => f.write_str(message),
            ControlError::ByPolicy => {
                f.write_str("a policy acts through the control it is handed, while it is called")
            }
            ControlError::WrongType { stage, takes, asked } => {
                write!(f, "`{stage}` takes `{takes}`, not `{asked}`")
            }
        }
    }
}

impl std::error::Error for ControlError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ControlError::Plan(fault) => fault.source(), // the fault itself is what is shown
            _ => None,
        }
    }
}

impl From<PlanFault> for ControlError {
    fn from(fault: PlanFault) -> Self {
        ControlError::Plan(fault)
    }
}

impl Control {
    pub(crate) fn new(core: Arc<Core>) -> Self {
        Control { core }
    }

    fn stage(&self, name: &str) -> Result<StageId, PlanFault> {
        self.core.graph.find(name).ok_or_else(|| plan::no_stage(&self.core.graph, name, ""))
    }

    fn cluster(&self, name: &str) -> Result<usize, PlanFault> {
        let names = || self.core.settings.clusters.iter().map(|cluster| cluster.name.as_str());
        names().position(|cluster| cluster == name).ok_or_else(|| PlanFault::UnknownCluster {
            name: name.to_owned(),
            near: plan::nearest(name, names()),
        })
    }

    fn queue(&self, name: &str) -> Result<StageId, PlanFault> {
        let id = self.stage(name)?;
        plan::has_queue(&self.core.graph.stages[id.index()])?;
        Ok(id)
    }

    /// Sets the number of threads of a cluster; the main one is called `main`. A policy may change
    /// it again; the next one begins with this number.
    ///
    /// # Errors
    /// For an unknown cluster, or a number that is not from 1 to 1,024.
    pub fn set_threads(&self, cluster: &str, threads: usize) -> Result<(), ControlError> {
        let at = self.cluster(cluster)?;
        let threads = threads_allowed(cluster, threads)?;
        not_calling()?;
        let set = self.core.policy_hosts[at].set_threads(&self.core, threads);
        set.map_err(ControlError::Threads)
    }

    /// Sets the number of instances of a stage. Free ones go first, others after their visit; each
    /// finishes.
    ///
    /// # Errors
    /// For an unknown stage, a number it may not have, or an instance that cannot be made.
    pub fn set_instances(&self, stage: &str, instances: usize) -> Result<(), ControlError> {
        let id = self.stage(stage)?;
        let instances = instances_allowed(&self.core.graph.stages[id.index()], instances)?;
        let mut effects = Effects::default();
        let set = self.core.node(id.0).set_instances(&self.core, instances, &mut effects);
        self.core.dispatch(effects);
        set.map_err(ControlError::Instance)?;
        let mut base = self.core.assignments[id.index()].base.lock();
        (base.instances, base.instances_said) = (instances, true);
        Ok(())
    }

    /// Sets how many events a queue holds. Below what it holds now it keeps them, and admits none
    /// until there is room again.
    ///
    /// # Errors
    /// For an unknown stage, one without a queue, zero, or less than the groups it is handed.
    pub fn set_capacity(&self, stage: &str, capacity: usize) -> Result<(), ControlError> {
        let id = self.queue(stage)?;
        let spec = &self.core.graph.stages[id.index()];
        let capacity = capacity_allowed(spec, capacity)?;
        let batch = self.core.node(id.0).capacity_min();
        if batch > capacity {
            let name = spec.name.to_string();
            return Err(PlanFault::BatchOverCapacity { name, batch, capacity }.into());
        }
        let mut effects = Effects::default();
        {
            let mut base = self.core.assignments[id.index()].base.lock();
            (base.capacity, base.capacity_said) = (capacity, true);
        }
        self.core.node(id.0).set_capacity(&self.core, capacity, &mut effects);
        self.core.dispatch(effects);
        Ok(())
    }

    /// Sets the priority of a stage: higher is served sooner.
    ///
    /// # Errors
    /// For an unknown stage.
    pub fn set_priority(&self, stage: &str, priority: i32) -> Result<(), ControlError> {
        let id = self.stage(stage)?;
        self.core.assignments[id.index()].base.lock().priority = priority;
        self.core.set_priority(id.0, priority);
        Ok(())
    }

    /// Installs another policy in a cluster: how its threads choose what to do next. It begins with
    /// the cluster as the plan has it, and as this handle has changed it since.
    ///
    /// ```
    /// # mod comporta { pub use comporta_model::plan::{Choice, Plan}; pub use comporta_runtime::{App, testing}; }
    /// # use comporta::{App, Choice, Plan, testing::TestRuntime};
    /// # let app = App::new("short");
    /// # let numbers = app.source("numbers", || 0..9_u64);
    /// # let show = app.sink("show", |_: u64| ());
    /// # app.connect(numbers, show);
    /// # let runtime = TestRuntime::new(app, &Plan::new())?;
    /// let control = runtime.control();
    /// control.set_policy("main", "srpt")?;
    /// let refused = control.set_policy("main", Choice::new("srpt").with("threads", 3));
    /// assert_eq!(refused.unwrap_err().to_string(), "`srpt` has no parameter `threads`");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// For an unknown cluster, policy or parameter, or a policy that will not start. The one before
    /// stays installed.
    pub fn set_policy(&self, cluster: &str, policy: impl Into<Choice>) -> Result<(), ControlError> {
        let at = self.cluster(cluster)?;
        let key = format!("cluster.{cluster}.policy");
        let offers = self.core.registry.offers();
        let choice = validate_choice("policy", &offers, &policy.into(), &key)
            .map_err(|mut faults| ControlError::Plan(faults.swap_remove(0)))?;
        not_calling()?;
        self.core.policy_hosts[at].install(&self.core, choice).map_err(|refused| match refused {
            InstallError::Policy(message) => ControlError::Policy(message),
            InstallError::Threads(message) => ControlError::Threads(message),
        })
    }

    /// Has another admission controller decide who is let into the queue of a stage; `none` lets
    /// everybody in for whom there is room. Who waits there already stays.
    ///
    /// ```
    /// # mod comporta { pub use comporta_model::plan::{Choice, Plan}; pub use comporta_runtime::{App, testing}; }
    /// # use std::time::Duration;
    /// # use comporta::{App, Choice, Plan, testing::TestRuntime};
    /// # let app = App::new("short");
    /// # let numbers = app.source("numbers", || 0..9_u64);
    /// # let show = app.sink("show", |_: u64| ());
    /// # app.connect(numbers, show);
    /// # let runtime = TestRuntime::new(app, &Plan::new())?;
    /// let control = runtime.control();
    /// control.set_admission("show", "codel")?;
    /// let slower = Choice::new("codel").with("target", Duration::from_millis(20));
    /// control.set_admission("show", slower)?;
    /// control.set_admission("show", "none")?;
    /// let refused = control.set_admission("show", "codle").unwrap_err();
    /// assert_eq!(
    ///     refused.to_string(),
    ///     "there is no admission controller `codle`: did you mean `codel`?"
    /// );
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// For an unknown stage, controller or parameter, or a stage without a queue.
    pub fn set_admission(
        &self,
        stage: &str,
        controller: impl Into<Choice>,
    ) -> Result<(), ControlError> {
        let id = self.queue(stage)?;
        let key = format!("stage.{stage}.admission");
        let offers = self.core.admissions.offers();
        let choice = validate_choice("admission controller", &offers, &controller.into(), &key)
            .map_err(|mut faults| ControlError::Plan(faults.swap_remove(0)))?;
        let controller = Controller::new(&self.core.admissions, &choice);
        self.core.node(id.0).set_controller(controller);
        Ok(())
    }

    /// What the policy of a cluster has done lately, and why: the last 256 decisions, oldest first.
    /// [`decisions_forgotten`](Self::decisions_forgotten) returns how many there were before them.
    ///
    /// # Errors
    /// For an unknown cluster.
    pub fn decisions(&self, cluster: &str) -> Result<Vec<Decision>, ControlError> {
        Ok(self.core.policy_hosts[self.cluster(cluster)?].decisions())
    }

    /// How many decisions of the policy of a cluster are no longer among its
    /// [`decisions`](Self::decisions).
    ///
    /// # Errors
    /// For an unknown cluster.
    pub fn decisions_forgotten(&self, cluster: &str) -> Result<u64, ControlError> {
        Ok(self.core.policy_hosts[self.cluster(cluster)?].decisions_forgotten())
    }

    /// Moves a stage to another cluster. The policies of both begin anew.
    ///
    /// # Errors
    /// For an unknown stage or cluster.
    pub fn move_stage(&self, stage: &str, cluster: &str) -> Result<(), ControlError> {
        let (stage, to) = (self.stage(stage)?, self.cluster(cluster)?);
        not_calling()?;
        let hosts = &self.core.policy_hosts;
        loop {
            let from = self.core.assignments[stage.index()].base.lock().cluster;
            if from == to {
                return Ok(());
            }
            self.may_move(stage, to)?;
            if hosts[from].hand_over(&self.core, stage.0, &hosts[to]) {
                return Ok(());
            }
        }
    }

    /// Whether a stage may be in a cluster: what a local connector joins stays together.
    fn may_move(&self, stage: StageId, to: usize) -> Result<(), PlanFault> {
        let graph = &self.core.graph;
        let cluster = |id: StageId| self.core.assignments[id.index()].base.lock().cluster;
        let local = graph.connectors.iter().filter(|connector| connector.local);
        for (from, end) in local.flat_map(|c| c.to.iter().map(|end| (c.from, *end))) {
            let other = match stage {
                _ if from == stage => end,
                _ if end == stage => from,
                _ => continue,
            };
            if other != stage && cluster(other) != to {
                let name = |id: StageId| graph.stages[id.index()].name.to_string();
                let cluster_name = |at: usize| self.core.settings.clusters[at].name.clone();
                let (a, b) = match from == stage {
                    true => (cluster_name(to), cluster_name(cluster(end))),
                    false => (cluster_name(cluster(from)), cluster_name(to)),
                };
                return Err(PlanFault::LocalApart { from: name(from), to: name(end), a, b });
            }
        }
        Ok(())
    }

    /// Opens or shuts a queue: a shut one sheds what arrives, with reason `disabled`.
    ///
    /// # Errors
    /// For an unknown stage, or one without a queue.
    pub fn set_enabled(&self, stage: &str, enabled: bool) -> Result<(), ControlError> {
        let id = self.queue(stage)?;
        self.core.assignments[id.index()].base.lock().enabled = enabled;
        let mut effects = Effects::default();
        self.core.node(id.0).set_enabled(&self.core, enabled, &mut effects);
        self.core.dispatch(effects);
        Ok(())
    }

    /// The failed events of a stage, without the events, oldest first.
    ///
    /// # Errors
    /// For an unknown stage.
    pub fn failures(&self, stage: &str) -> Result<Vec<Failure>, ControlError> {
        Ok(self.core.node(self.stage(stage)?.0).failures())
    }

    /// Takes out the failed events of a stage with the events that are still there.
    ///
    /// # Errors
    /// For an unknown stage, one without a queue, or a `T` that is not what the stage takes. Nothing
    /// is taken then.
    pub fn take_failures<T: 'static>(
        &self,
        stage: &str,
    ) -> Result<Vec<(Failure, Option<T>)>, ControlError> {
        let id = self.queue(stage)?;
        let taken = self.core.node(id.0).take_failures(TypeId::of::<T>()).downcast();
        taken.map(|taken| *taken).map_err(|_| ControlError::WrongType {
            stage: stage.to_owned(),
            takes: self.core.graph.stages[id.index()].takes,
            asked: type_name::<T>(),
        })
    }

    /// Puts up to `max` failed events of a stage back into its queue, oldest first, as far as there
    /// is room. Returns how many.
    ///
    /// # Errors
    /// For an unknown stage.
    pub fn replay(&self, stage: &str, max: usize) -> Result<usize, ControlError> {
        let id = self.stage(stage)?;
        let mut effects = Effects::default();
        let replayed = self.core.node(id.0).replay(&self.core, max, &mut effects);
        self.core.dispatch(effects);
        Ok(replayed)
    }
}

/// A policy that waited for its own call to end would wait for ever.
fn not_calling() -> Result<(), ControlError> {
    if is_calling() { Err(ControlError::ByPolicy) } else { Ok(()) }
}

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Control").field("app", &self.core.graph.name).finish_non_exhaustive()
    }
}
