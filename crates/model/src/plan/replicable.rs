//! Which stages may have replicas: those whose events need know nothing of each other. Used by `validate`.

use crate::graph::{Graph, Kind, StageSpec};
use crate::plan::defaults;
use crate::plan::fault::{PlanFault, in_range};

pub(super) const EXPECTED: &str = "1 to 1,024";

/// What the connectors of a graph make of its stages, by number.
pub(super) struct Shape {
    cyclic: Vec<bool>,
    /// A connector with several ends leads to it.
    chosen: Vec<bool>,
}

impl Shape {
    pub(super) fn of(graph: &Graph) -> Self {
        let mut chosen = vec![false; graph.stages.len()];
        for connector in graph.connectors.iter().filter(|connector| connector.to.len() > 1) {
            connector.to.iter().for_each(|to| chosen[to.index()] = true);
        }
        Shape { cyclic: graph.in_cycles(), chosen }
    }

    /// Whether what a stage sends can come back to it.
    pub(super) fn is_cyclic(&self, stage: usize) -> bool {
        self.cyclic[stage]
    }
}

/// Why a stage must be one, if it must.
pub(super) fn why_not(
    shape: &Shape,
    (id, spec): (usize, &StageSpec),
    elastic: bool,
) -> Option<&'static str> {
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
    } else if spec.event_time {
        Some("it keeps event time, and not all of them would hear how far that has come")
    } else if spec.keyed && spec.autostart {
        Some("it is keyed and has an event at the start, which belongs to one of them")
    } else if spec.keyed && shape.chosen[id] {
        Some("it is keyed, and a connector with several ends chooses it by something else")
    } else if elastic {
        Some("it is elastic: its threads follow the load of one queue")
    } else if shape.is_cyclic(id) {
        Some("it is part of a cycle")
    } else {
        None
    }
}

/// Returns how many replicas a stage has, if it may have so many.
pub(super) fn allowed(
    shape: &Shape,
    (id, spec): (usize, &StageSpec),
    said: Option<usize>,
    elastic: bool,
) -> Result<usize, PlanFault> {
    let replicas = said.unwrap_or(1);
    let what = || format!("the number of replicas of `{}`", spec.name);
    let key = || format!("stage.{}.replicas", spec.name);
    let replicas = in_range((what, key), replicas, defaults::REPLICAS_MAX, EXPECTED)?;
    if replicas == 1 {
        return Ok(1);
    }
    match why_not(shape, (id, spec), elastic) {
        Some(why) => Err(PlanFault::NotReplicable { name: spec.name.to_string(), why, key: key() }),
        None => Ok(replicas),
    }
}
