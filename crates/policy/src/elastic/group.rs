//! The elastic stages of a cluster: when they are looked at, and where their threads come from when threads are scarce.
//!
//! Stages of higher priority are looked at first. A stage that wants more threads than the bound of all together
//! leaves takes them from stages of lower priority, the lowest first, each down to its least; equals take
//! nothing from each other. A thread that is taken goes after the event in hand; the stage that had it is measured anew.

use std::num::NonZeroUsize;
use std::time::Duration;

use comporta_model::plan::defaults::THREADS_MAX;

use super::params::{Controller, Limits};
use super::stage::{Elastic, Wish};
use crate::control::{PolicyControl, Refused, StageInfo, TimerId};

/// A stage that is to be elastic.
pub(crate) struct Member {
    pub(crate) info: StageInfo,
    pub(crate) controller: Controller,
    pub(crate) priority: i64,
}

/// The elastic stages of a cluster.
pub(crate) struct Group {
    /// Higher priorities first.
    stages: Vec<Elastic>,
    /// One for each period that stages have.
    timers: Vec<(TimerId, Duration)>,
    /// The most threads of all of them.
    threads_max: Option<NonZeroUsize>,
}

impl Group {
    /// Gives each stage its pool, and looks at them from now on.
    ///
    /// # Errors
    /// Refused if parameters do not fit, or the cluster has no room for the pools.
    pub(crate) fn start(
        mut members: Vec<Member>,
        threads_max: Option<NonZeroUsize>,
        control: &mut dyn PolicyControl,
    ) -> Result<Self, Refused> {
        members.iter().try_for_each(|member| member.controller.check())?;
        let guaranteed: usize = members.iter().map(|member| member.controller.limits.least).sum();
        if let Some(most) = threads_max.filter(|most| most.get() < guaranteed) {
            let what = "the number of threads of all elastic stages".to_owned();
            let expected = format!("their `threads_min` together, {guaranteed}, or more");
            return Err(Refused::OutOfRange { what, given: most.get(), expected });
        }
        // Where all have grown, the cluster still has no more threads than it may.
        let main = control.threads(control.main_pool())?;
        let share = (THREADS_MAX.saturating_sub(main) / members.len().max(1)).max(1);
        members.sort_by_key(|member| std::cmp::Reverse(member.priority));
        let mut group = Group { stages: Vec::new(), timers: Vec::new(), threads_max };
        for Member { info, mut controller, priority } in members {
            let Limits { least, most } = controller.limits;
            controller.limits = Limits { least: least.min(share), most: most.min(share) };
            if group.timers.iter().all(|(_, every)| *every != controller.every) {
                group.timers.push((control.add_timer(controller.every)?, controller.every));
            }
            group.stages.push(Elastic::start(info, controller, priority, control)?);
        }
        Ok(group)
    }

    /// Looks at the stages of this timer. Returns `false` if it is not one of theirs.
    ///
    /// # Errors
    /// Refused if a reading is, which the runtime refuses for stages that have left the cluster only.
    pub(crate) fn on_timer(
        &mut self,
        timer: TimerId,
        control: &mut dyn PolicyControl,
    ) -> Result<bool, Refused> {
        let Some((_, every)) = self.timers.iter().find(|(own, _)| *own == timer).copied() else {
            return Ok(false);
        };
        let host = control.cpu_usage();
        for place in 0..self.stages.len() {
            let stage = &mut self.stages[place];
            if stage.controller.every != every {
                continue;
            }
            match stage.look(host, control)? {
                None => {}
                Some(Wish::Shrink { by, why }) => {
                    control.explain(format!("`{}`: {why}", stage.info.name));
                    control.kill_threads(stage.pool, by)?;
                    stage.shrunk();
                }
                Some(Wish::Grow { total, why }) => self.grow(place, total, &why, control)?,
            }
        }
        Ok(true)
    }

    fn grow(
        &mut self,
        place: usize,
        total: usize,
        why: &str,
        control: &mut dyn PolicyControl,
    ) -> Result<(), Refused> {
        let stage = &self.stages[place];
        let threads = control.threads(stage.pool)?;
        let more = total.saturating_sub(threads);
        let new = more.min(self.free(control)?);
        let reason = format!("`{}`: {why}", stage.info.name);
        let (made, refused) = add(stage, new, &reason, control)?;
        let mut taken = 0;
        if refused.is_none() {
            taken = self.take(place, more - made, &reason, control)?;
        }
        let stage = &mut self.stages[place];
        match refused {
            Some(message) if made + taken == 0 => {
                stage.refused(format!("{reason}; {message}"), control);
            }
            _ if made + taken == 0 => {
                let why = format!(
                    "{reason}; all threads of elastic stages are used, and none of lower priority has one to give"
                );
                stage.held_back(why, control);
            }
            _ => stage.made(threads + made + taken, control),
        }
        Ok(())
    }

    /// Threads that there may be more.
    fn free(&self, control: &dyn PolicyControl) -> Result<usize, Refused> {
        let Some(most) = self.threads_max else { return Ok(usize::MAX) };
        let mut used = 0_usize;
        for stage in &self.stages {
            used = used.saturating_add(control.threads(stage.pool)?);
        }
        Ok(most.get().saturating_sub(used))
    }

    /// Takes so many threads from stages of lower priority, as far as they have them.
    fn take(
        &mut self,
        place: usize,
        wanted: usize,
        reason: &str,
        control: &mut dyn PolicyControl,
    ) -> Result<usize, Refused> {
        let (taker, high) = (self.stages[place].info.id, self.stages[place].priority);
        let mut taken = 0;
        for victim in self.stages.iter_mut().rev().take_while(|other| other.priority < high) {
            let n = victim.surplus(control)?.min(wanted - taken);
            if n > 0 {
                let (name, low) = (&victim.info.name, victim.priority);
                control.explain(format!("{reason}; priority {high} > {low} of `{name}`"));
                control.steal(taker, victim.info.id, n)?;
                victim.was_taken_from();
                taken += n;
            }
        }
        Ok(taken)
    }
}

/// Adds threads: all, or as many as the system gives. Returns how many, and what it said if it gave fewer.
fn add(
    stage: &Elastic,
    new: usize,
    reason: &str,
    control: &mut dyn PolicyControl,
) -> Result<(usize, Option<String>), Refused> {
    if new == 0 {
        return Ok((0, None));
    }
    control.explain(reason.to_owned());
    if control.add_threads(stage.pool, new).is_ok() {
        return Ok((new, None));
    }
    for made in 0..new {
        control.explain(reason.to_owned());
        match control.add_threads(stage.pool, 1) {
            Ok(()) => {}
            Err(Refused::Failed(message)) => return Ok((made, Some(message))),
            Err(refused) => return Ok((made, Some(refused.to_string()))),
        }
    }
    Ok((new, None))
}
