//! A pool of threads for every stage: what SEDA, and what came after it, begins with.

use std::num::NonZeroUsize;

use comporta_model::plan::defaults::{INSTANCES_MAX, THREADS_MAX};
use comporta_model::plan::{Choice, ParamKind, ParamSpec};

use crate::control::{PolicyControl, Refused, StageInfo};

/// How many threads the pool of each stage has.
pub(super) const THREADS: ParamSpec = ParamSpec {
    name: "threads",
    about: "threads of each stage",
    kind: ParamKind::Count(1, THREADS_MAX),
    default: "2", // published runs: 2, 4 and 8
};

/// How many instances each stage has.
pub(super) const INSTANCES: ParamSpec = ParamSpec {
    name: "instances",
    about: "instances of each stage, unless it is stateful or the plan sets them; 0: as many as it may have threads",
    kind: ParamKind::Count(0, INSTANCES_MAX),
    default: "0",
};

/// The stages that have a queue, and so a pool.
pub(super) fn staged(control: &dyn PolicyControl) -> Vec<StageInfo> {
    control.stages().iter().filter(|stage| stage.has_queue()).cloned().collect()
}

/// Gives every stage a pool of its own with so many threads. Sources and inputs stay in the main
/// pool, for which one thread will do: they are never more than a part of the work.
pub(super) fn one_for_each(control: &mut dyn PolicyControl, threads: usize) -> Result<(), Refused> {
    let stages = staged(control);
    if stages.is_empty() {
        return Ok(()); // sources alone keep their threads
    }
    control.explain(format!("a pool of {threads} for each of {} stages", stages.len()));
    let main = control.main_pool();
    let spare = control.threads(main)?.saturating_sub(1);
    if spare > 0 {
        control.kill_threads(main, spare)?;
    }
    for stage in stages {
        let pool = control.new_pool(threads)?;
        control.set_pool(pool, stage.id)?;
    }
    Ok(())
}

/// How many instances a choice says each stage has, if it does.
pub(super) fn instances_of(validated: &Choice) -> Option<NonZeroUsize> {
    NonZeroUsize::new(validated.count(INSTANCES.name))
}

/// Gives every stage so many instances, which bound how many threads it can use, or else `follow`. What
/// the plan says of a stage goes before that, a stateful stage keeps its one, and one whose results
/// the program wants in order has more only if somebody asks for them.
pub(super) fn set_instances(
    control: &mut dyn PolicyControl,
    said: Option<NonZeroUsize>,
    follow: usize,
) -> Result<(), Refused> {
    for stage in staged(control).iter().filter(|stage| !stage.stateful && !stage.instances_said) {
        let wanted = match said {
            None if stage.ordered => continue,
            None => follow,
            Some(said) => said.get(),
        };
        let instances = control.instances(stage.id)?;
        if instances < wanted {
            control.add_instances(stage.id, wanted - instances)?;
        } else if instances > wanted {
            control.kill_instances(stage.id, instances - wanted)?;
        }
    }
    Ok(())
}
