//! The service rate of a stage: events processed for each that arrived. A low one marks a
//! bottleneck. Two policies order stages by it.
//!
//! Where full queues discard, as published, that is all there is to know. Where they block, which is
//! the default, what does not fit waits with its sender and has not arrived: every stage then
//! processes what arrives, and every rate is near 1. But the bottleneck is known by its queue: those
//! before it are full too, and those behind it are empty. So, of rates that are as good as equal, that
//! of the deepest stage whose queue is full comes first.

use crate::control::{PolicyControl, Refused, StageInfo};

/// Rates that differ by less from 1 are 1: what came last is still there when rates are taken.
const KEEPS_UP_WITHIN: f64 = 0.05;

/// A queue is full from this part of its capacity on, as senders are let in again only when some of
/// it is free.
const FULL: f64 = 0.5;

/// A stage and its service rate.
pub(super) struct Rated<'a> {
    pub(super) stage: &'a StageInfo,
    /// Above 1 where a backlog is worked off. 0 where nothing arrived, as published.
    rate: f64,
    /// Whether it is the last stage at which events are held up.
    holds_up: bool,
}

impl Rated<'_> {
    /// Whether it is the slower one.
    pub(super) fn is_slower_than(&self, other: &Rated<'_>) -> bool {
        self.compare(other).is_lt()
    }

    fn compare(&self, other: &Rated<'_>) -> std::cmp::Ordering {
        let rates = kept_up(self.rate).total_cmp(&kept_up(other.rate));
        rates.then(other.holds_up.cmp(&self.holds_up))
    }
}

/// The rate, and 1 where it is as good as that.
fn kept_up(rate: f64) -> f64 {
    if (rate - 1.0).abs() < KEEPS_UP_WITHIN { 1.0 } else { rate }
}

/// The stages from the lowest service rate to the highest, since this was last asked; equal ones
/// in the order given.
pub(super) fn ascending<'a>(
    stages: &'a [StageInfo],
    control: &mut dyn PolicyControl,
) -> Result<Vec<Rated<'a>>, Refused> {
    let mut rated = Vec::with_capacity(stages.len());
    let mut full_to = None;
    for stage in stages {
        let arrived = control.input_count(stage.id)?;
        let processed = control.processed_count(stage.id)?;
        let rate = if arrived == 0 { 0.0 } else { processed as f64 / arrived as f64 };
        control.reset_statistics(stage.id)?;
        let holds_up = is_full(stage, control)?;
        full_to = full_to.max(holds_up.then_some(stage.depth));
        rated.push(Rated { stage, rate, holds_up });
    }
    for rated in &mut rated {
        rated.holds_up &= Some(rated.stage.depth) == full_to;
    }
    rated.sort_by(Rated::compare);
    Ok(rated)
}

/// Whether its queue is full: events that wait for a thread wait there too, though each may have an
/// instance.
fn is_full(stage: &StageInfo, control: &dyn PolicyControl) -> Result<bool, Refused> {
    if !stage.has_queue() {
        return Ok(false);
    }
    let instances = control.instances(stage.id)?;
    let paired = instances.saturating_sub(control.free_instances(stage.id)?);
    let in_hand = instances.min(control.threads(control.pool_of(stage.id)?)?);
    let waiting = (control.queue_size(stage.id)? + paired).saturating_sub(in_hand);
    Ok(waiting as f64 >= control.queue_capacity(stage.id)? as f64 * FULL)
}

impl std::fmt::Display for Rated<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {:.0} %", self.stage.name, self.rate * 100.0)?;
        if self.holds_up { write!(f, " (full)") } else { Ok(()) }
    }
}
