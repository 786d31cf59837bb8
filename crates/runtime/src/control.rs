//! Changing how a program runs while it runs. Changes made here count as changes of the plan: a policy may
//! override them, and the next policy starts from them.

use std::fmt;

use comporta_model::graph::StageId;
use comporta_model::plan::{
    self, Choice, PlanFault, capacity_allowed, instances_allowed, threads_allowed, validate_choice,
};

use crate::assignment::Base;
use crate::core::Core;
use crate::effects::Effects;
use crate::policy_host::{Decision, InstallError, is_calling};
use crate::stage::gate::Controller;
use crate::sync::Arc;

/// Changes how a program runs while it runs. Every call checks its arguments first; a call that is refused
/// changes nothing.
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
    pub(crate) core: Arc<Core>,
}

/// The reason why a change was refused. Nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ControlError {
    /// The plan would not be valid.
    Plan(PlanFault),
    /// The new instance could not be made.
    Instance(String),
    /// The policy refused to start; the previous one stays installed.
    Policy(String),
    /// The system has no more threads.
    Threads(String),
    /// The call was made by a policy, which must use its [`PolicyControl`](comporta_policy::PolicyControl)
    /// instead.
    ByPolicy,
    /// The stage is not keyed, or its keys or their state are of another type.
    NotKeyed {
        /// The stage.
        stage: String,
        /// The type of the key that was asked for.
        key: &'static str,
        /// The type of its state.
        state: &'static str,
    },
    /// The stage is not keyed.
    NoKeys {
        /// The stage.
        stage: String,
    },
    /// The program's code panicked that hashes, compares or copies.
    KeyFailed {
        /// The stage.
        stage: String,
        /// What it said.
        reason: String,
    },
    /// A handler has the state of the key, and does not return.
    KeyBusy(String),
    /// The requested type is not the input type of the stage.
    WrongType {
        /// The stage.
        stage: String,
        /// The type that it takes.
        takes: &'static str,
        /// The type that was requested.
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
            ControlError::NotKeyed { stage, key, state } => {
                write!(f, "`{stage}` has no keys of type `{key}` with state of type `{state}`")
            }
            ControlError::NoKeys { stage } => write!(f, "`{stage}` is not keyed"),
            ControlError::KeyFailed { stage, reason } => {
                write!(f, "the state of a key of `{stage}` cannot be had: {reason}")
            }
            ControlError::KeyBusy(stage) => {
                write!(f, "a handler of `{stage}` has the state of this key, and does not return")
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

    pub(crate) fn stage(&self, name: &str) -> Result<StageId, PlanFault> {
        self.core.graph.find(name).ok_or_else(|| plan::no_stage(&self.core.graph, name, ""))
    }

    fn cluster(&self, name: &str) -> Result<usize, PlanFault> {
        let names = || self.core.settings.clusters.iter().map(|cluster| cluster.name.as_str());
        names().position(|cluster| cluster == name).ok_or_else(|| PlanFault::UnknownCluster {
            name: name.to_owned(),
            near: plan::nearest(name, names()),
        })
    }

    pub(crate) fn queue(&self, name: &str) -> Result<StageId, PlanFault> {
        let id = self.stage(name)?;
        plan::has_queue(&self.core.graph.stages[id.index()])?;
        Ok(id)
    }

    /// Sets the number of threads of a cluster; the default cluster is called `main`. A policy may change
    /// the number again; the next policy starts with this one.
    ///
    /// # Errors
    /// Returns an error if the cluster is unknown, or the number is not from 1 to 1,024.
    pub fn set_threads(&self, cluster: &str, threads: usize) -> Result<(), ControlError> {
        let at = self.cluster(cluster)?;
        let threads = threads_allowed(cluster, threads)?;
        not_calling()?;
        let set = self.core.policy_hosts[at].set_threads(&self.core, threads);
        set.map_err(ControlError::Threads)
    }

    /// Sets the number of instances of a stage. If there are too many, idle instances are retired at once
    /// and others after their visit; `finish` is called on each.
    ///
    /// # Errors
    /// Returns an error if the stage is unknown or may not have that many instances, or if an instance
    /// cannot be made.
    pub fn set_instances(&self, stage: &str, instances: usize) -> Result<(), ControlError> {
        let id = self.stage(stage)?;
        let instances = instances_allowed(&self.core.graph.stages[id.index()], instances)?;
        let mut effects = Effects::default();
        let replicas = self.core.replicas.of(id);
        // Parts of a source end one by one, and so do the stages behind them.
        let has_ended = |id: &StageId| self.core.node(id.0).reading().instances == 0;
        let mut set =
            |id: &StageId, n| self.core.node(id.0).set_instances(&self.core, n, &mut effects);
        let mut done: Vec<(&StageId, usize)> = Vec::new();
        let mut refused = None;
        for replica in replicas.iter().filter(|id| replicas.len() == 1 || !has_ended(id)) {
            let before = self.core.node(replica.0).reading().instances;
            match set(replica, instances) {
                Ok(()) => done.push((replica, before)),
                Err(_) if replicas.len() > 1 && has_ended(replica) => {} // just now
                Err(message) => refused = Some(message),
            }
            if refused.is_some() {
                break;
            }
        }
        if done.is_empty() && refused.is_none() {
            refused = Some("the stage has ended".to_owned());
        }
        if refused.is_some() {
            for (replica, before) in done {
                let _ = set(replica, before); // as many as there were: none is made
            }
        }
        self.core.dispatch(effects);
        if let Some(message) = refused {
            return Err(ControlError::Instance(message));
        }
        let write = |base: &mut Base, n| (base.instances, base.instances_said) = (n, true);
        let mut effects = Effects::default();
        self.agree(
            id,
            instances,
            |base| base.instances,
            write,
            |replica, n| {
                let _ = self.core.node(replica.0).set_instances(&self.core, n, &mut effects);
            },
        );
        self.core.dispatch(effects);
        Ok(())
    }

    /// Makes a change to all replicas of a stage. Where others make such a change at the same time, the last is made to all
    /// in the end.
    fn agree<T: Copy + PartialEq>(
        &self,
        stage: StageId,
        value: T,
        read: impl Fn(&Base) -> T,
        write: impl Fn(&mut Base, T),
        mut apply: impl FnMut(StageId, T),
    ) {
        let base = |id: StageId| self.core.assignments[id.index()].base.lock();
        let replicas = self.core.replicas.of(stage);
        write(&mut base(stage), value);
        loop {
            let value = read(&base(stage));
            for replica in replicas {
                if *replica != stage {
                    write(&mut base(*replica), value);
                }
                apply(*replica, value);
            }
            if read(&base(stage)) == value {
                return;
            }
        }
    }

    /// Sets the capacity of a queue. A queue that holds more keeps its events, and admits none until
    /// there is room again.
    ///
    /// # Errors
    /// Returns an error if the stage is unknown or has no queue, or if the capacity is zero or less than
    /// the size of its groups.
    pub fn set_capacity(&self, stage: &str, capacity: usize) -> Result<(), ControlError> {
        let id = self.queue(stage)?;
        let spec = &self.core.graph.stages[id.index()];
        let capacity = capacity_allowed(spec, capacity)?;
        let replicas = self.core.replicas.of(id).iter();
        let batch = replicas.map(|id| self.core.node(id.0).capacity_min()).max().unwrap_or(1);
        if batch > capacity {
            let name = spec.name.to_string();
            return Err(PlanFault::BatchOverCapacity { name, batch, capacity }.into());
        }
        let mut effects = Effects::default();
        let write = |base: &mut Base, n| (base.capacity, base.capacity_said) = (n, true);
        self.agree(
            id,
            capacity,
            |base| base.capacity,
            write,
            |replica, n| {
                self.core.node(replica.0).set_capacity(&self.core, n, &mut effects);
            },
        );
        self.core.dispatch(effects);
        Ok(())
    }

    /// Sets the priority of a stage: a higher one is served sooner.
    ///
    /// # Errors
    /// Returns an error if the stage is unknown.
    pub fn set_priority(&self, stage: &str, priority: i32) -> Result<(), ControlError> {
        let id = self.stage(stage)?;
        let write = |base: &mut Base, priority| base.priority = priority;
        self.agree(
            id,
            priority,
            |base| base.priority,
            write,
            |replica, priority| {
                self.core.set_priority(replica.0, priority);
            },
        );
        Ok(())
    }

    /// Installs another policy in a cluster. It starts from the settings of the plan, with the changes that
    /// were made by `Control` since.
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
    /// Returns an error if the cluster, the policy or a parameter is unknown, or if the policy refuses to
    /// start. The previous policy then stays installed.
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

    /// Sets the admission controller of a stage; `none` admits every event for which there is room. Events
    /// in the queue stay there.
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
    /// Returns an error if the stage, the controller or a parameter is unknown, or if the stage has no
    /// queue.
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
        for replica in self.core.replicas.of(id) {
            let controller = Controller::new(&self.core.admissions, &choice);
            self.core.node(replica.0).set_controller(controller);
        }
        Ok(())
    }

    /// Returns the last 256 decisions of the policy of a cluster with their reasons, oldest first.
    /// [`decisions_forgotten`](Self::decisions_forgotten) returns how many there were before them.
    ///
    /// # Errors
    /// Returns an error if the cluster is unknown.
    pub fn decisions(&self, cluster: &str) -> Result<Vec<Decision>, ControlError> {
        Ok(self.core.policy_hosts[self.cluster(cluster)?].decisions())
    }

    /// Returns how many decisions of the policy of a cluster are no longer among its
    /// [`decisions`](Self::decisions).
    ///
    /// # Errors
    /// Returns an error if the cluster is unknown.
    pub fn decisions_forgotten(&self, cluster: &str) -> Result<u64, ControlError> {
        Ok(self.core.policy_hosts[self.cluster(cluster)?].decisions_forgotten())
    }

    /// Moves a stage to another cluster. The policies of both clusters are started again.
    ///
    /// # Errors
    /// Returns an error if the stage or the cluster is unknown, if a local connector joins the stage to
    /// one of another cluster, or if the policy of that cluster refuses to start with the stage, such as one with pools of its
    /// own with a stage that the plan makes elastic.
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
            let replicas = self.core.replicas.of(stage);
            let moved = hosts[from].hand_over(&self.core, replicas, &hosts[to]);
            if moved.map_err(ControlError::Policy)? {
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

    /// Enables or disables a queue. A disabled queue sheds arriving events with reason `disabled`.
    ///
    /// # Errors
    /// Returns an error if the stage is unknown or has no queue.
    pub fn set_enabled(&self, stage: &str, enabled: bool) -> Result<(), ControlError> {
        let id = self.queue(stage)?;
        let mut effects = Effects::default();
        let write = |base: &mut Base, enabled| base.enabled = enabled;
        self.agree(
            id,
            enabled,
            |base| base.enabled,
            write,
            |replica, enabled| {
                self.core.node(replica.0).set_enabled(&self.core, enabled, &mut effects);
            },
        );
        self.core.dispatch(effects);
        Ok(())
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
