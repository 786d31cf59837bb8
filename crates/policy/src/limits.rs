//! The bounds that every [`PolicyControl`](crate::PolicyControl) enforces, in one place, so that a mock refuses
//! the same calls as a program, in the same words.

use std::time::Duration;

use comporta_model::plan::defaults;

use crate::control::{Refused, StageInfo};

/// How many timers a policy may have: a bound against mistakes.
const TIMERS_MAX: usize = 1_024;
/// How many pools a policy may make: a bound against mistakes, above what a pool per stage needs.
const POOLS_PER_STAGE: usize = 2;
const POOLS_MORE: usize = 16;

/// Returns the most pools that a policy may make in a cluster of `stages` stages.
#[must_use]
pub fn pools_max(stages: usize) -> usize {
    stages.saturating_mul(POOLS_PER_STAGE).saturating_add(POOLS_MORE)
}

/// Checks that a policy that made `made` pools, in a cluster of `stages` stages, may make another.
///
/// # Errors
/// Refused if it may not.
pub fn another_pool(made: usize, stages: usize) -> Result<(), Refused> {
    at_most(pools_max(stages), made.saturating_add(1), || "the number of pools".to_owned())
}

/// Checks that a cluster of `threads` threads may have `more` more.
///
/// # Errors
/// Refused if it may not.
pub fn more_threads(cluster: &str, threads: usize, more: usize) -> Result<(), Refused> {
    let what = || format!("the number of threads of `{cluster}`");
    at_most(defaults::THREADS_MAX, threads.saturating_add(more), what)
}

/// Checks that threads of a pool can be removed. A pool that has stages keeps one thread.
///
/// # Errors
/// Refused if they cannot.
pub fn fewer_threads(
    pool: &str,
    threads: usize,
    less: usize,
    has_stages: bool,
) -> Result<(), Refused> {
    at_most(threads, less, || format!("the number of threads to go from `{pool}`"))?;
    if has_stages && less == threads {
        return Err(Refused::NoThreadLeft { pool: pool.to_owned(), threads, less });
    }
    Ok(())
}

/// Checks that a pool of `threads` threads can run stages.
///
/// # Errors
/// Refused if it has none.
pub fn runs_stages(name: &str, threads: usize) -> Result<(), Refused> {
    at_least(1, threads, || format!("the number of threads of the pool `{name}`"))
}

/// Checks that a policy with `timers` timers may have another, of this period.
///
/// # Errors
/// Refused if it may not.
pub fn another_timer(timers: usize, every: Duration) -> Result<(), Refused> {
    let micros = |time: Duration| usize::try_from(time.as_micros()).unwrap_or(usize::MAX);
    let what = || "the time between two calls, in microseconds,".to_owned();
    at_least(micros(defaults::TIMER_MIN), micros(every), what)?;
    at_most(TIMERS_MAX, timers.saturating_add(1), || "the number of timers".to_owned())
}

/// Checks that the queue of a stage may have `max` places.
///
/// # Errors
/// Refused if there are none, or if the groups of the stage are larger.
pub fn capacity(stage: &StageInfo, max: usize) -> Result<(), Refused> {
    at_least(stage.capacity_min, max, || format!("the queue capacity of `{}`", stage.name))
}

/// Checks the bound of the events of a visit.
///
/// # Errors
/// Refused if it is zero.
pub fn events_of_visit(events: usize) -> Result<(), Refused> {
    at_least(1, events, || "the number of events of a visit".to_owned())
}

/// Checks that a stage with `instances` instances may have `wanted`.
///
/// # Errors
/// Refused if it may not.
pub fn instances(stage: &StageInfo, instances: usize, wanted: usize) -> Result<(), Refused> {
    let one = stage.stateful || !stage.has_queue();
    let most = if one { 1 } else { defaults::INSTANCES_MAX };
    if (1..=most).contains(&wanted) {
        return Ok(());
    }
    Err(Refused::Instances { stage: stage.name.clone(), instances, wanted })
}

fn at_least(least: usize, given: usize, what: impl FnOnce() -> String) -> Result<(), Refused> {
    if given >= least {
        return Ok(());
    }
    let expected = format!("at least {least}");
    Err(Refused::OutOfRange { what: what(), given, expected })
}

fn at_most(most: usize, given: usize, what: impl FnOnce() -> String) -> Result<(), Refused> {
    if given <= most {
        return Ok(());
    }
    let expected = format!("at most {most}");
    Err(Refused::OutOfRange { what: what(), given, expected })
}
