//! What a plan may say of elastic stages, whose threads follow their load: which stages can be, which parameters fit each other,
//! and the bound of all those of a cluster. Used by `validate`.

use crate::graph::{Kind, StageSpec};
use crate::plan::duration::show_duration;
use crate::plan::fault::{PlanFault, in_range, number};
use crate::plan::{
    Catalogue, Choice, ClusterSettings, StagePlan, StageSettings, defaults, validate_choice,
};

/// Why a stage cannot use several threads, if it cannot.
pub(super) fn why_not(spec: &StageSpec, own: &StagePlan) -> Option<&'static str> {
    if spec.kind != Kind::Stage {
        Some("it has no queue, and one thread at a time sends its events")
    } else if spec.stateful {
        Some("it is stateful, and its one instance uses one thread")
    } else if spec.waits {
        Some("its handlers wait without a thread; `instances` bounds how many")
    } else if own.instances == Some(1) {
        Some("its one instance uses one thread: leave `instances` out, or use more")
    } else {
        None
    }
}

/// The controller of a stage, if it has one.
pub(super) fn validate(
    spec: &StageSpec,
    own: &StagePlan,
    said: &StagePlan,
    catalogue: &Catalogue,
    faults: &mut Vec<PlanFault>,
) -> Option<Choice> {
    let choice = said.elastic.as_ref()?;
    let part =
        if own.elastic.is_some() { format!("stage.{}", spec.name) } else { "every".to_owned() };
    let key = format!("{part}.elastic");
    if let Some(why) = why_not(spec, own) {
        let (name, key) = (spec.name.to_string(), key.clone());
        faults.push(PlanFault::NotElastic { name, why, key });
    }
    match validate_choice("controller of threads", &catalogue.controllers, choice, &key) {
        Ok(validated) => {
            faults.extend(contradictions(&validated, &key));
            Some(validated)
        }
        Err(wrong) => {
            faults.extend(wrong);
            None
        }
    }
}

/// Parameters that do not fit each other.
fn contradictions(validated: &Choice, key: &str) -> Vec<PlanFault> {
    let bad = |name: &str, value: String, expected: String| PlanFault::BadParam {
        owner: validated.name.clone(),
        name: name.to_owned(),
        value,
        expected,
        key: format!("{key}.{name}"),
    };
    let mut faults = Vec::new();
    let (least, most) = (validated.count("threads_min"), validated.count("threads_max"));
    if most < least {
        faults.push(bad("threads_max", number(most), format!("`threads_min`, {least}, or more")));
    }
    let (deadline, sample) = (validated.span("deadline"), validated.span("sample"));
    if sample < defaults::TIMER_MIN {
        let expected = format!("{} or more", show_duration(defaults::TIMER_MIN));
        faults.push(bad("sample", show_duration(sample), expected));
    } else if sample > deadline / 10 {
        let expected = format!("a tenth of `deadline`, {}, or less", show_duration(deadline / 10));
        faults.push(bad("sample", show_duration(sample), expected));
    }
    faults
}

/// Returns `most` if the elastic stages of a cluster may have that many threads together.
pub(super) fn threads_allowed(cluster: &str, most: usize) -> Result<usize, PlanFault> {
    let what = || format!("the number of threads of all elastic stages of `{cluster}`");
    let key = || format!("cluster.{cluster}.elastic_threads");
    in_range((what, key), most, defaults::THREADS_MAX, "1 to 1,024")
}

/// The bound of a cluster leaves each of its elastic stages the least threads it is to have.
pub(super) fn bounds_refused(
    clusters: &[ClusterSettings],
    stages: &[StageSettings],
    faults: &mut Vec<PlanFault>,
) {
    for (cluster, settings) in clusters.iter().enumerate() {
        let Some(most) = settings.elastic_threads else { continue };
        let own = stages.iter().filter(|stage| stage.cluster == cluster);
        let elastic = own.filter_map(|stage| stage.elastic.as_ref());
        let least: usize = elastic.map(|choice| choice.count("threads_min")).sum();
        let expected = match least {
            0 => "it where a stage of the cluster is elastic",
            least if least > most.get() => "`threads_min` of its elastic stages together, or more",
            _ => continue,
        };
        faults.push(PlanFault::OutOfRange {
            what: format!("the number of threads of all elastic stages of `{}`", settings.name),
            value: most.to_string(),
            expected,
            key: format!("cluster.{}.elastic_threads", settings.name),
        });
    }
}
