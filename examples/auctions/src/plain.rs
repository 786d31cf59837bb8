//! The hottest auctions of every window by one loop over all bids, from the definition: to compare with.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use comporta::Time;

use crate::generate;
use crate::program::{Settings, Top};

/// By the end of each window that has bids, the hottest auctions.
pub type ByEnd = BTreeMap<Time, Top>;

/// The hottest auctions of every window.
#[must_use]
pub fn hottest(settings: &Settings) -> ByEnd {
    let Settings { bids: n, per_second, seed, window: (size, step), .. } = settings;
    let ns = |span: Duration| u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
    let (size, step) = (ns(*size), ns(*step));
    let mut counts: BTreeMap<Time, HashMap<u64, u64>> = BTreeMap::new();
    for bid in generate::bids(*seed, *per_second).take(*n) {
        let time = bid.time.as_nanos();
        // Ends of windows that cover it: after it, by no more than the size.
        let last = time / step * step + size;
        let mut end = last;
        while end > time {
            *counts.entry(Time::from_nanos(end)).or_default().entry(bid.auction).or_default() += 1;
            let Some(before) = end.checked_sub(step) else { break };
            end = before;
        }
    }
    let top = |counts: HashMap<u64, u64>| {
        let mut top = Top::default();
        counts.into_iter().for_each(|(auction, bids)| top.add(bids, auction));
        top
    };
    counts.into_iter().map(|(end, counts)| (end, top(counts))).collect()
}
