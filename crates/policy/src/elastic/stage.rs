//! One elastic stage: its pool, its samples and its controller. `group` decides where more threads come from.
//!
//! A stage has as many instances as it may come to have threads, unless the plan says how many: then these bound its threads.
//! Time that does not pass between two samples gives no sample; more than four periods mean that the clock has jumped, or that
//! nobody could look, and the measurement begins again.

use comporta_model::event::Time;

use super::bounds::{Allowed, KEYS_MAX, Monitor, Usage};
use super::params::{Controller, Limits};
use super::sample::{Grown, Rules, Sample, Verdict};
use crate::control::{PolicyControl, PoolId, Refused, StageInfo, StageSample};

/// Periods without a sample after which what was measured says nothing.
const GAP: u32 = 4;

/// An elastic stage.
pub(crate) struct Elastic {
    pub(super) info: StageInfo,
    pub(super) controller: Controller,
    pub(super) priority: i64,
    pub(super) pool: PoolId,
    rules: Box<dyn Rules>,
    monitor: Monitor,
    last: Option<(Time, StageSample)>,
    /// What was recorded last without a change: it is recorded once.
    recorded: Option<String>,
    /// The clock jumped before the last sample.
    jumped: bool,
    /// The policy beside has moved it away.
    gone: bool,
}

/// What a stage wants.
#[derive(Debug)]
pub(super) enum Wish {
    /// So many threads in all, more than it has.
    Grow { total: usize, why: String },
    /// So many threads fewer.
    Shrink { by: usize, why: String },
}

impl Elastic {
    /// Gives the stage a pool of its own, with the least threads.
    ///
    /// # Errors
    /// Refused if the parameters do not fit each other, or the pool is refused.
    pub(crate) fn start(
        info: StageInfo,
        controller: Controller,
        priority: i64,
        control: &mut dyn PolicyControl,
    ) -> Result<Self, Refused> {
        let Limits { least, most } = controller.limits;
        control.decide_as(controller.name());
        if !info.instances_said {
            let instances = control.instances(info.id)?;
            if instances > 0 && instances < most {
                control.add_instances(info.id, most - instances)?;
            }
        }
        control.explain(format!(
            "`{}` is elastic ({}): {least} to {most} threads",
            info.name,
            controller.name()
        ));
        let pool = control.new_pool(least)?;
        control.set_pool(pool, info.id)?;
        let (rules, monitor) = (controller.rules(), controller.monitor());
        let first = (control.now(), control.sample(info.id)?);
        if monitor.wants_keys() {
            control.key_loads(info.id, 0)?; // from now on
        }
        Ok(Elastic {
            info,
            controller,
            priority,
            pool,
            rules,
            monitor,
            last: Some(first),
            recorded: None,
            jumped: false,
            gone: false,
        })
    }

    /// Takes a sample and decides. `host` is the percent of the CPUs that is used.
    pub(super) fn look(
        &mut self,
        host: u32,
        control: &mut dyn PolicyControl,
    ) -> Result<Option<Wish>, Refused> {
        control.decide_as(self.controller.name());
        if self.gone || self.has_gone(control)? {
            return Ok(None);
        }
        let now = control.sample(self.info.id)?;
        if now.instances == 0 {
            return self.ended(control);
        }
        let Some((sample, usage)) = self.sample(now, host, control)? else { return Ok(None) };
        let keys = if self.monitor.wants_keys() && self.info.keyed {
            control.key_loads(self.info.id, KEYS_MAX)?
        } else {
            Vec::new()
        };
        self.monitor.note(&usage, &keys);
        match self.rules.judge(&sample) {
            Verdict::Keep => Ok(None),
            Verdict::Watch => {
                self.monitor.restart();
                Ok(None)
            }
            Verdict::Shrink { by, why } => {
                let surplus = sample.threads.saturating_sub(self.controller.limits.least);
                Ok(Some(Wish::Shrink { by: by.min(surplus), why }).filter(|_| by.min(surplus) > 0))
            }
            Verdict::Grow { total, why } => self.bounded(&sample, total, why, control),
        }
    }

    /// The change since the sample before, if there is one.
    fn sample(
        &mut self,
        now: StageSample,
        host: u32,
        control: &mut dyn PolicyControl,
    ) -> Result<Option<(Sample, Usage)>, Refused> {
        let at = control.now();
        let Some((before_at, before)) = self.last.replace((at, now)) else { return Ok(None) };
        let elapsed = at.duration_since(before_at);
        if elapsed.is_zero() {
            self.last = Some((before_at, before)); // the next sample has what this one would have
            return Ok(None);
        }
        let jumped = elapsed > self.controller.every.saturating_mul(GAP);
        let before_too = std::mem::replace(&mut self.jumped, jumped);
        if jumped {
            self.rules.forget();
            self.monitor.restart();
            if !before_too {
                control.explain(format!("no sample for {elapsed:.1?}"));
                control.record(format!("`{}` is measured anew", self.info.name));
            }
            return Ok(None);
        }
        let threads = control.threads(self.pool)?.max(1);
        let paired = now.instances.saturating_sub(now.free);
        // An instance that is paired with an event waits for a thread where there are fewer of these.
        let queue = now.queued.saturating_add(paired.saturating_sub(threads));
        let (input, output) = (
            now.arrived.saturating_sub(before.arrived),
            now.processed.saturating_sub(before.processed),
        );
        // Senders that wait outside are let in when a quarter of the queue is free; what comes is then what goes.
        let capacity = control.queue_capacity(self.info.id)?;
        let full = queue >= capacity - capacity / 4
            && input.saturating_mul(10) >= output.saturating_mul(9);
        let busy = now.busy.saturating_sub(before.busy);
        let cpu = now.cpu.unwrap_or_default().saturating_sub(before.cpu.unwrap_or_default());
        let cpu = cpu.min(busy); // what is measured now changes what was estimated of visits before
        let sample = Sample { at, elapsed, input, output, queue, full, threads, busy };
        Ok(Some((sample, Usage { elapsed, threads, input, output, busy, cpu, host })))
    }

    /// It has seen its last event: one thread is left, since a pool with a stage has one.
    fn ended(&self, control: &dyn PolicyControl) -> Result<Option<Wish>, Refused> {
        let by = control.threads(self.pool)?.saturating_sub(1);
        let why = "it has seen its last event".to_owned();
        Ok((by > 0).then_some(Wish::Shrink { by, why }))
    }

    /// How far it may grow.
    fn bounded(
        &mut self,
        sample: &Sample,
        total: usize,
        mut why: String,
        control: &mut dyn PolicyControl,
    ) -> Result<Option<Wish>, Refused> {
        let threads = sample.threads;
        let mut allowed = total;
        let mut bound = |by: Option<Allowed>| {
            if let Some(Allowed { total, why: bound }) = by.filter(|by| by.total < allowed) {
                allowed = total.max(threads);
                why += &format!("; {bound}");
            }
        };
        bound(self.monitor.by_use(threads));
        bound(self.monitor.by_cpu(total, threads, control.cpus()));
        bound(self.monitor.by_keys(total, threads));
        let most = self.controller.limits.most;
        bound(Some(Allowed { total: most, why: format!("`threads_max` is {most}") }));
        let instances = control.instances(self.info.id)?;
        bound(Some(Allowed { total: instances, why: format!("it has {instances} instances") }));
        self.monitor.restart();
        if allowed <= threads {
            self.held_back(why, control);
            return Ok(None);
        }
        Ok(Some(Wish::Grow { total: allowed, why }))
    }

    /// A bound leaves no thread to add.
    pub(super) fn held_back(&mut self, why: String, control: &mut dyn PolicyControl) {
        self.rules.grew(Grown::Bounded, control.now());
        self.record(control, why, "has no thread more");
    }

    /// The system gave no thread.
    pub(super) fn refused(&mut self, why: String, control: &mut dyn PolicyControl) {
        self.rules.grew(Grown::Refused, control.now());
        self.record(control, why, "has no thread more, and asks again");
    }

    /// It has so many threads now, more than before.
    pub(super) fn made(&mut self, threads: usize, control: &dyn PolicyControl) {
        self.recorded = None;
        self.monitor.grew(threads);
        self.rules.grew(Grown::Made, control.now());
    }

    /// Threads that it has above its least; none if the policy beside has moved it to another pool.
    pub(super) fn surplus(&self, control: &dyn PolicyControl) -> Result<usize, Refused> {
        if control.pool_of(self.info.id)? != self.pool {
            return Ok(0);
        }
        Ok(control.threads(self.pool)?.saturating_sub(self.controller.limits.least))
    }

    pub(super) fn shrunk(&mut self) {
        self.recorded = None;
        self.monitor.forget_keys();
    }

    /// Another stage has taken threads of it: what was measured says nothing of those that are left.
    pub(super) fn was_taken_from(&mut self) {
        self.shrunk();
        self.rules.forget();
        self.monitor.restart();
    }

    fn has_gone(&mut self, control: &mut dyn PolicyControl) -> Result<bool, Refused> {
        self.gone = control.pool_of(self.info.id)? != self.pool;
        if self.gone {
            let why = "the policy has moved it to another pool".to_owned();
            self.record(control, why, "is elastic no more");
            // Refused, and so left as it is, if another stage was moved there.
            let _ = control.kill_threads(self.pool, control.threads(self.pool)?);
        }
        Ok(self.gone)
    }

    /// Records what is not done, once: figures differ from sample to sample, and the sentence does not.
    fn record(&mut self, control: &mut dyn PolicyControl, why: String, what: &str) {
        if self.recorded.as_deref() != Some(what) {
            control.explain(why);
            control.record(format!("`{}` {what}", self.info.name));
            self.recorded = Some(what.to_owned());
        }
    }
}
