//! Which stages may have replicas: those whose events need know nothing of each other. Used by `validate`.

use crate::graph::{Graph, Kind, StageSpec};
use crate::plan::defaults;
use crate::plan::fault::{PlanFault, in_range};
use crate::plan::validate::in_cycle;

pub(super) const EXPECTED: &str = "1 to 1,024";

/// Why a stage must be one, if it must.
pub(super) fn why_not(graph: &Graph, spec: &StageSpec, elastic: bool) -> Option<&'static str> {
    match spec.kind {
        Kind::Input if spec.gateway => {
            return Some("it is a gateway: its requests come in at one place");
        }
        Kind::Input => return Some("it is an input: its events come in at one place"),
        Kind::Source if !spec.in_parts => {
            return Some("its source is not in parts: declare it by `App::source_parts`");
        }
        Kind::Source | Kind::Stage => {}
    }
    if spec.stateful {
        Some("it is stateful, and must see all events")
    } else if spec.ordered {
        Some("it is ordered, and its results leave in the order of all events")
    } else if spec.keyed {
        Some("it is keyed: give it several `instances`, or the stages before it by `by_key`")
    } else if elastic {
        Some("it is elastic: its threads follow the load of one queue")
    } else if in_cycle(graph, &spec.name) {
        Some("it is part of a cycle")
    } else {
        None
    }
}

/// Returns how many replicas a stage has, if it may have so many.
pub(super) fn allowed(
    graph: &Graph,
    spec: &StageSpec,
    said: Option<usize>,
    elastic: bool,
) -> Result<usize, PlanFault> {
    let replicas = said.unwrap_or(1);
    let what = || format!("the number of replicas of `{}`", spec.name);
    let key = || format!("stage.{}.replicas", spec.name);
    let replicas = in_range((what, key), replicas, defaults::REPLICAS_MAX, EXPECTED)?;
    match why_not(graph, spec, elastic).filter(|_| replicas > 1) {
        Some(why) => Err(PlanFault::NotReplicable { name: spec.name.to_string(), why, key: key() }),
        None => Ok(replicas),
    }
}
