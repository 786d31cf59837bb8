//! The service rate of a stage: events processed for each that arrived. A low one marks a
//! bottleneck. Two policies order stages by it.

use crate::control::{PolicyControl, Refused, StageInfo};

/// A stage and its service rate.
pub(super) struct Rated<'a> {
    pub(super) stage: &'a StageInfo,
    /// Above 1 where a backlog is worked off. 0 where nothing arrived, as published.
    pub(super) rate: f64,
}

/// The stages from the lowest service rate to the highest, since this was last asked; equal ones
/// in the order given.
pub(super) fn ascending<'a>(
    stages: &'a [StageInfo],
    control: &mut dyn PolicyControl,
) -> Result<Vec<Rated<'a>>, Refused> {
    let mut rated = Vec::with_capacity(stages.len());
    for stage in stages {
        let arrived = control.input_count(stage.id)?;
        let processed = control.processed_count(stage.id)?;
        let rate = if arrived == 0 { 0.0 } else { processed as f64 / arrived as f64 };
        control.reset_statistics(stage.id)?;
        rated.push(Rated { stage, rate });
    }
    rated.sort_by(|a, b| a.rate.total_cmp(&b.rate));
    Ok(rated)
}

impl std::fmt::Display for Rated<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {:.0} %", self.stage.name, self.rate * 100.0)
    }
}
