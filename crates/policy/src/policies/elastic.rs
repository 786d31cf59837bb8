//! Every stage that may have several instances has a pool whose threads follow its load, by one of the controllers of
//! `elastic/`: the published one (`elastic`), or that of DS2 (`ds2`). What a plan says of single stages
//! (`stage.NAME.elastic`) is the same, beside any other policy.
//!
//! Stateful stages, stages whose handlers wait, ordered ones and those for which the plan says one instance stay in the main pool,
//! with its threads; if there are none, it has one thread, for the sources.

use std::num::NonZeroUsize;

use comporta_model::plan::{Choice, Offer};

use super::pools;
use crate::control::{PolicyControl, Refused, StageInfo, TimerId};
use crate::elastic::{Controller, Group, Member, PARAMS_DS2, PARAMS_ELASTIC, cites};
use crate::policy::Policy;
use crate::registry::Entry;

/// Threads of every stage follow its load.
pub struct Elastic {
    validated: Choice,
    group: Option<Group>,
}

pub(super) fn entry() -> Entry {
    let offer = Offer {
        name: "elastic",
        aliases: &[],
        about: "a pool of threads for each stage, which grows when its queue cannot be worked off in time",
        cites: cites::ELASTIC,
        params: PARAMS_ELASTIC,
    };
    Entry::new(offer, Elastic::new)
}

pub(super) fn ds2() -> Entry {
    let offer = Offer {
        name: "ds2",
        aliases: &["true-rates"],
        about: "a pool of threads for each stage, as many as the time that its events take needs",
        cites: cites::DS2,
        params: PARAMS_DS2,
    };
    Entry::new(offer, Elastic::new)
}

impl std::fmt::Debug for Elastic {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Elastic").field(&self.validated).finish()
    }
}

impl Elastic {
    /// From its parameters.
    #[must_use]
    pub fn new(validated: &Choice) -> Self {
        Elastic { validated: validated.clone(), group: None }
    }
}

/// Whether more threads are of use to a stage.
fn can_grow(stage: &StageInfo, control: &dyn PolicyControl) -> Result<bool, Refused> {
    if stage.stateful || stage.waits {
        return Ok(false);
    }
    Ok(if stage.instances_said { control.instances(stage.id)? > 1 } else { !stage.ordered })
}

impl Policy for Elastic {
    fn start(&mut self, control: &mut dyn PolicyControl) -> Result<(), Refused> {
        let controller = Controller::of(&self.validated);
        let priorities = self.validated.stages("priorities");
        let staged = pools::staged(control);
        let mut members = Vec::new();
        for info in &staged {
            if can_grow(info, control)? {
                let priority = priorities.get(&info.name).copied().unwrap_or(0);
                members.push(Member {
                    info: info.clone(),
                    controller: controller.clone(),
                    priority,
                });
            }
        }
        let main = control.main_pool();
        let spare = control.threads(main)?.saturating_sub(1);
        let threads_max = NonZeroUsize::new(self.validated.count("threads"));
        let all = !members.is_empty() && members.len() == staged.len();
        self.group = Some(Group::start(members, threads_max, control)?);
        if all && spare > 0 {
            control.explain("every stage has a pool: sources need one thread".to_owned());
            control.kill_threads(main, spare)?;
        }
        Ok(())
    }

    fn on_timer(&mut self, timer: TimerId, control: &mut dyn PolicyControl) -> Result<(), Refused> {
        match &mut self.group {
            Some(group) => group.on_timer(timer, control).map(|_| ()),
            None => Ok(()),
        }
    }
}
