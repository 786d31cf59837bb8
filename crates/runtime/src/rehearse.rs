//! A rehearsal: policies are started on clusters that are not there, so that what they would be
//! refused is known before anything runs.

use comporta_model::graph::Graph;
use comporta_model::plan::{PoolSettings, Settings};
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
    for (cluster, pool) in settings.pools.iter().enumerate() {
        let mut mock = cluster_of(graph, depths, settings, cluster);
        if let Err(message) = start(registry, pool, &mut mock) {
            let (cluster, policy) = (pool.name.clone(), pool.policy.to_string());
            refused.push(StartError::Policy { cluster, policy, message });
        }
    }
    if refused.is_empty() { Ok(()) } else { Err(refused) }
}

/// A cluster as its policy would find it.
fn cluster_of(graph: &Graph, depths: &[u32], settings: &Settings, cluster: usize) -> Mock {
    let infos = stage_infos(graph, depths, |id| settings.stages[id].pool == cluster);
    let pool = &settings.pools[cluster];
    let mut mock = Mock::cluster(&pool.name, infos).with_threads(pool.threads).with_cpus(cpus(), 0);
    for (spec, settled) in graph.stages.iter().zip(&settings.stages) {
        if settled.pool == cluster {
            let stage = mock.at_mut(&spec.name);
            stage.instances = settled.instances;
            stage.capacity = settled.capacity;
            stage.when_full = settled.when_full;
            stage.priority = settled.priority;
        }
    }
    mock
}

fn start(registry: &Registry, pool: &PoolSettings, mock: &mut Mock) -> Result<(), String> {
    let entry = registry.find(&pool.policy.name);
    let entry = entry.ok_or_else(|| format!("there is no policy `{}`", pool.policy.name))?;
    match user::call(|| mock.start(&mut *entry.make(&pool.policy))) {
        Ok(started) => started.map_err(|refused| refused.to_string()),
        Err(panic) => Err(panic.to_string()),
    }
}
