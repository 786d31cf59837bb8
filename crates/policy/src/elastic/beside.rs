//! A policy, and elastic stages beside it: the stages of a plan that say `elastic`. The policy runs the cluster as if they were
//! not there, but for their threads, which are those of a pool that they have to themselves.
//!
//! A policy that gives stages pools of its own cannot be beside them: each would undo what the other does. It is refused at its
//! start, so that `check` reports it, and nothing runs. The policy starts first, so its timers have the
//! numbers that it expects.

use std::num::NonZeroUsize;

use comporta_model::plan::{Choice, bare};

use super::group::{Group, Member};
use super::params::Controller;
use crate::control::{PolicyControl, Refused, TimerId};
use crate::policy::Policy;

/// A stage that a plan makes elastic.
#[derive(Clone, Debug, PartialEq)]
pub struct ElasticChoice {
    /// Its name.
    pub stage: String,
    /// The controller, with every parameter set: see [`offers`](super::offers).
    pub controller: Choice,
}

/// A policy with elastic stages beside it.
pub struct Beside {
    policy: Box<dyn Policy>,
    stages: Vec<ElasticChoice>,
    threads_max: Option<NonZeroUsize>,
    group: Option<Group>,
}

impl std::fmt::Debug for Beside {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Beside").field("stages", &self.stages).finish_non_exhaustive()
    }
}

impl Beside {
    /// Returns the policy with these stages beside it, those that its cluster has; the policy itself if there are
    /// none. `threads_max` bounds the threads of all of them together.
    #[must_use]
    pub fn wrap(
        policy: Box<dyn Policy>,
        stages: Vec<ElasticChoice>,
        threads_max: Option<NonZeroUsize>,
    ) -> Box<dyn Policy> {
        if stages.is_empty() {
            return policy;
        }
        Box::new(Beside { policy, stages, threads_max, group: None })
    }

    fn members(&self, control: &dyn PolicyControl) -> Result<Vec<Member>, Refused> {
        let mut members = Vec::new();
        for ElasticChoice { stage, controller } in &self.stages {
            let Some(info) = control.stages().iter().find(|info| info.name == *stage) else {
                continue;
            };
            if control.pool_of(info.id)? != control.main_pool() {
                return Err(Refused::Failed(format!(
                    "the policy gives `{stage}` a pool of its own, and `stage.{}.elastic` another: use a policy \
                     that leaves stages in the main pool, such as `stealing`, or leave `elastic` out",
                    bare(stage)
                )));
            }
            let priority = controller.count("priority") as i64;
            let controller = Controller::of(controller);
            members.push(Member { info: info.clone(), controller, priority });
        }
        Ok(members)
    }
}

impl Policy for Beside {
    fn start(&mut self, control: &mut dyn PolicyControl) -> Result<(), Refused> {
        self.group = None;
        self.policy.start(control)?;
        let members = self.members(control)?;
        if !members.is_empty() {
            self.group = Some(Group::start(members, self.threads_max, control)?);
        }
        Ok(())
    }

    fn on_timer(&mut self, timer: TimerId, control: &mut dyn PolicyControl) -> Result<(), Refused> {
        if let Some(group) = &mut self.group
            && group.on_timer(timer, control)?
        {
            return Ok(());
        }
        self.policy.on_timer(timer, control)
    }

    fn on_last_focused(&mut self, control: &mut dyn PolicyControl) -> Result<(), Refused> {
        self.policy.on_last_focused(control)
    }

    fn on_max_visits(&mut self, control: &mut dyn PolicyControl) -> Result<(), Refused> {
        self.policy.on_max_visits(control)
    }
}
