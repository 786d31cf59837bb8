//! The peers, one file each, with the same verbs: `run` (pipeline), `paced` (latency) and `up`
//! (wake); those of `cep`, `echo` and others have a folder of their own. To add one: write its file, declare it here, and list it under the benches it takes
//! part in (`chains`, or its folder). Whichever is called `comporta` (or `--ours`) is set against the others.
//!
//! Delivery guarantee of all of them: in memory, each event once, in order; bounded queues.

#[cfg(feature = "core")]
pub(crate) mod comporta;
#[cfg(feature = "core")]
pub(crate) mod one_loop;
#[cfg(feature = "core")]
pub(crate) mod two_loops;
#[cfg(feature = "core")]
pub(crate) mod rayon_fused;
#[cfg(feature = "core")]
pub(crate) mod timely;
#[cfg(feature = "core")]
pub(crate) mod tokio_vec;
#[cfg(feature = "core")]
pub(crate) mod tokio_mpsc;
#[cfg(feature = "core")]
pub(crate) mod kameo;
#[cfg(feature = "core")]
pub(crate) mod crossbeam;
#[cfg(feature = "core")]
pub(crate) mod flume;
#[cfg(feature = "core")]
pub(crate) mod park;
#[cfg(feature = "core")]
mod chains;
#[cfg(feature = "programs")]
pub(crate) mod cep;
#[cfg(feature = "programs")]
pub(crate) mod images;
#[cfg(feature = "coroutine")]
pub(crate) mod echo;
#[cfg(feature = "keyed")]
pub(crate) mod keyed;
#[cfg(feature = "nexmark")]
pub(crate) mod nexmark;

#[cfg(feature = "core")]
pub(crate) use chains::{LATENCY, LatencyPeer, PIPELINE, Paced, PipelinePeer, WAKE, WakePeer};

/// Whether any bench knows a peer of this name.
pub(crate) fn is_known(name: &str) -> bool {
    let mut names: Vec<&str> = Vec::new();
    #[cfg(feature = "core")]
    {
        names.extend(PIPELINE.iter().map(|peer| peer.name));
        names.extend(LATENCY.iter().map(|peer| peer.name));
        names.extend(WAKE.iter().map(|peer| peer.name));
    }
    #[cfg(feature = "programs")]
    {
        names.extend(cep::PEERS.iter().map(|peer| peer.name));
        names.extend(images::PEERS.iter().map(|peer| peer.name));
    }
    #[cfg(feature = "coroutine")]
    names.extend(echo::PEERS.iter().map(|peer| peer.name));
    #[cfg(feature = "keyed")]
    names.extend(keyed::PEERS.iter().map(|peer| peer.name));
    #[cfg(feature = "nexmark")]
    names.extend(nexmark::PEERS.iter().map(|peer| peer.name));
    names.contains(&name)
}
