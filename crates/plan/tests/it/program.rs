//! The program that the plans of these tests are for.

use comporta_model::graph::{Connector, Graph, Kind, Route, StageId, StageSpec};
use comporta_model::plan::{Catalogue, Plan};
use comporta_plan::{Effective, PlanSpec, Report};
use std::time::Duration;

/// `read` and `push` -> `split` -> `count` (two ports) -> `show`; `split` -> `log` (local).
pub(crate) fn graph() -> Graph {
    let spec = |name: &str, kind, ports| StageSpec {
        stateful: name == "count",
        batched: (name == "log").then_some((100, Duration::from_secs(1))),
        ..StageSpec::new(name, kind, "String", ports)
    };
    let join = |from, port, to, local| Connector {
        from: StageId(from),
        port,
        to: vec![StageId(to)],
        route: Route::One,
        local,
        again: false,
    };
    Graph {
        name: "words".into(),
        stages: vec![
            spec("read", Kind::Source, &["out"]),
            spec("push", Kind::Input, &["out"]),
            spec("split", Kind::Stage, &["words", "lines"]),
            spec("count", Kind::Stage, &["out"]),
            spec("show", Kind::Stage, &[]),
            spec("log", Kind::Stage, &[]),
        ],
        connectors: vec![
            join(0, 0, 2, false),
            join(1, 0, 2, false),
            join(2, 0, 3, false),
            join(2, 1, 5, true),
            join(3, 0, 4, false),
        ],
        faults: Vec::new(),
        warnings: Vec::new(),
    }
}

/// What the program says itself.
pub(crate) fn program() -> Plan {
    Plan::new().stage("split", |split| split.instances(2))
}

/// What can be chosen by name.
pub(crate) fn catalogue() -> Catalogue {
    let mut catalogue = Catalogue::default();
    catalogue.policies = comporta_policy::Registry::new().offers();
    catalogue.admissions = comporta_policy::admission::Registry::new().offers();
    catalogue.controllers = comporta_policy::elastic::offers();
    catalogue
}

pub(crate) fn env(name: &str) -> Option<String> {
    match name {
        "FOUR" => Some("4".to_owned()),
        "PASSWORD" => Some("hunter2".to_owned()),
        _ => None,
    }
}

/// The texts, one over the other, held against the program; a name that starts with `--` is a flag.
pub(crate) fn validate(texts: &[(&str, &str)]) -> Result<Effective, Report> {
    let mut spec = PlanSpec::with_env(env);
    for (name, text) in texts {
        if name.starts_with("--") { spec.set(name, text) } else { spec.text(*name, *text) }
    }
    spec.validate(&graph(), &program(), &catalogue(), 8)
}
