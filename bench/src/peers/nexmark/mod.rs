//! The entrants of `nexmark`: ours, renoir, and a loop by hand for each query on rayon. All use `nexmark::steps`, take their
//! events from `Log::event`, and find the same (asserted after every run).

pub(crate) mod comporta;
pub(crate) mod renoir;
pub(crate) mod by_hand;

use crate::nexmark::events::Log;
use crate::nexmark::steps::Found;

/// The queries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Query {
    PassThrough,
    Currency,
    Selection,
    LocalItems,
    AveragePrice,
    HotItems,
    HighestBid,
    NewUsers,
}

impl Query {
    pub(crate) const ALL: [Query; 8] = [
        Query::PassThrough,
        Query::Currency,
        Query::Selection,
        Query::LocalItems,
        Query::AveragePrice,
        Query::HotItems,
        Query::HighestBid,
        Query::NewUsers,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Query::PassThrough => "q0",
            Query::Currency => "q1",
            Query::Selection => "q2",
            Query::LocalItems => "q3",
            Query::AveragePrice => "q4",
            Query::HotItems => "q5",
            Query::HighestBid => "q7",
            Query::NewUsers => "q8",
        }
    }

    pub(crate) fn about(self) -> &'static str {
        match self {
            Query::PassThrough => "every event as it is",
            Query::Currency => "bids in another currency",
            Query::Selection => "bids for some auctions",
            Query::LocalItems => "who sells in a category, of three states: a join",
            Query::AveragePrice => "the average price that won, by category",
            Query::HotItems => "the most bids for an auction, in windows of 10 s every 2 s",
            Query::HighestBid => "the highest bid, in windows of 10 s",
            Query::NewUsers => "new people who sell, in windows of 10 s: a join",
        }
    }
}

pub(crate) struct NexmarkPeer {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    /// The query, the events, and how many threads to use.
    pub(crate) run: fn(Query, &Log, usize) -> Found,
}

pub(crate) const PEERS: &[NexmarkPeer] = &[
    NexmarkPeer {
        name: "comporta",
        about: "stages, keyed where they have state",
        run: comporta::run,
    },
    NexmarkPeer { name: "renoir", about: "renoir's streams, in one process", run: renoir::run },
    NexmarkPeer {
        name: "loop",
        about: "a loop by hand for each query, on rayon",
        run: by_hand::run,
    },
];
