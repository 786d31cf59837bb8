//! A rehearsal: policies are started on clusters that are not there, so that what they would be
//! refused is known before anything runs.

use comporta_model::graph::Graph;
use comporta_model::plan::{ClusterSettings, Settings};
use comporta_policy::Registry;
use comporta_policy::mock::Mock;

use crate::cluster_state::stage_infos;
use crate::env::cpus;
use crate::start_error::StartError;
use crate::user;

/// Starts every policy of these settings.
pub(crate) fn rehearse(
    registry: &Registry,
    graph: &Graph,
    depths: &[u32],
    settings: &Settings,
) -> Result<(), Vec<StartError>> {
    let mut refused = Vec::new();
    for (number, cluster) in settings.clusters.iter().enumerate() {
        let mut mock = cluster_of(graph, depths, settings, number);
        if let Err(message) = start(registry, cluster, &mut mock) {
            let (cluster, policy) = (cluster.name.clone(), cluster.policy.to_string());
            refused.push(StartError::Policy { cluster, policy, message });
        }
    }
    if refused.is_empty() { Ok(()) } else { Err(refused) }
}

/// A cluster as its policy would find it.
fn cluster_of(graph: &Graph, depths: &[u32], settings: &Settings, number: usize) -> Mock {
    let infos = stage_infos(graph, depths, |id| settings.stages[id].cluster == number);
    let cluster = &settings.clusters[number];
    let mut mock =
        Mock::cluster(&cluster.name, infos).with_threads(cluster.threads).with_cpus(cpus(), 0);
    for (spec, stage_settings) in graph.stages.iter().zip(&settings.stages) {
        if stage_settings.cluster == number {
            let stage = mock.at_mut(&spec.name);
            stage.instances = stage_settings.instances;
            stage.capacity = stage_settings.capacity;
            stage.when_full = stage_settings.when_full;
            stage.priority = stage_settings.priority;
        }
    }
    mock
}

fn start(registry: &Registry, cluster: &ClusterSettings, mock: &mut Mock) -> Result<(), String> {
    let entry = registry.find(&cluster.policy.name);
    let entry = entry.ok_or_else(|| format!("there is no policy `{}`", cluster.policy.name))?;
    match user::call(|| mock.start(&mut *entry.make(&cluster.policy))) {
        Ok(started) => started.map_err(|refused| refused.to_string()),
        Err(panic) => Err(panic.to_string()),
    }
}
