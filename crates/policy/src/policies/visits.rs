//! Threads that visit the queues of the stages: what the policies on per-stage queues have in common.

use comporta_model::graph::{Kind, StageId};

use crate::control::{PolicyControl, Refused, StageInfo};

/// The stages that can be visited, in the order of the pipeline, sources first. Inputs never have
/// work: what they bring stands in the queues behind them.
pub(super) fn visited(control: &dyn PolicyControl) -> Vec<StageInfo> {
    control.stages().iter().filter(|stage| stage.kind != Kind::Input).cloned().collect()
}

/// Their numbers.
pub(super) fn ids(stages: &[StageInfo]) -> Vec<StageId> {
    stages.iter().map(|stage| stage.id).collect()
}

/// Begins with per-stage queues and this order; without anything to visit there is nothing to do.
/// Returns whether there is.
pub(super) fn begin(control: &mut dyn PolicyControl, order: &[StageId]) -> Result<bool, Refused> {
    if order.is_empty() {
        return Ok(false);
    }
    control.use_per_stage_queues()?;
    control.set_visit_order(order)?;
    Ok(true)
}
