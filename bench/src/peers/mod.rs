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
pub(crate) mod split;
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

/// The peers of one bench: their names, and what each is.
pub(crate) struct Listed {
    pub(crate) bench: &'static str,
    pub(crate) peers: Vec<(&'static str, &'static str)>,
}

/// The peers of every bench that was built.
pub(crate) fn listed() -> Vec<Listed> {
    /// Lists a table of peers, whatever else its rows hold.
    macro_rules! peers {
        ($bench:literal, $table:expr) => {
            Listed {
                bench: $bench,
                peers: $table.iter().map(|peer| (peer.name, peer.about)).collect(),
            }
        };
    }
    vec![
        #[cfg(feature = "core")]
        peers!("pipeline", PIPELINE),
        #[cfg(feature = "core")]
        peers!("latency", LATENCY),
        #[cfg(feature = "core")]
        peers!("wake", WAKE),
        #[cfg(feature = "programs")]
        peers!("cep", cep::PEERS),
        #[cfg(feature = "programs")]
        peers!("images", images::PEERS),
        #[cfg(feature = "keyed")]
        peers!("keyed", keyed::PEERS),
        #[cfg(feature = "nexmark")]
        peers!("nexmark", nexmark::PEERS),
        #[cfg(feature = "coroutine")]
        peers!("coroutine", echo::PEERS),
    ]
}

/// Whether any bench knows a peer of this name.
pub(crate) fn is_known(name: &str) -> bool {
    listed().iter().flat_map(|bench| &bench.peers).any(|(known, _)| *known == name)
}
