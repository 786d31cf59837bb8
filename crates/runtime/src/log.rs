//! What is logged, if the feature `tracing` is on. Nothing is only logged: problems are in the summary,
//! and decisions can be asked for.

use std::fmt::Display;

/// Something went wrong.
pub(crate) fn warn(app: &str, problem: &dyn Display) {
    #[cfg(feature = "tracing")]
    tracing::warn!(app, "{problem}");
    #[cfg(not(feature = "tracing"))]
    let _ = (app, problem);
}

/// A policy has done something.
pub(crate) fn decided(app: &str, cluster: &str, policy: &str, did: &dyn Display) {
    #[cfg(feature = "tracing")]
    tracing::debug!(app, cluster, policy, "{did}");
    #[cfg(not(feature = "tracing"))]
    let _ = (app, cluster, policy, did);
}
