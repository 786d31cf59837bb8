//! Each query as one loop over the events, with a map where it needs one: what all entrants must find.

use super::events::Log;
use super::steps::{self, Average, Found, Newcomer, Seller, Winning};
use crate::peers::nexmark::Query;
use std::collections::HashMap;

pub(crate) fn run(query: Query, log: &Log) -> Found {
    let mut found = Found::default();
    let bids = || log.events().filter_map(steps::bid);
    match query {
        Query::PassThrough => log.events().for_each(|event| found.add(steps::as_it_is(&event))),
        Query::Currency => bids().for_each(|bid| found.add(steps::parts(&steps::in_euros(bid)))),
        Query::Selection => {
            bids().filter(steps::is_selected).for_each(|bid| found.add([bid.auction, bid.price]));
        }
        Query::LocalItems => {
            let mut sellers: HashMap<u64, Seller> = HashMap::new();
            for (seller, local) in log.events().filter_map(steps::local) {
                sellers.entry(seller).or_default().take(local, |pair| found.add(pair));
            }
        }
        Query::AveragePrice => {
            let mut auctions: HashMap<u64, Winning> = HashMap::new();
            for (auction, lot) in log.events().filter_map(steps::lot) {
                auctions.entry(auction).or_default().take(lot);
            }
            let mut categories: HashMap<u64, Average> = HashMap::new();
            for (category, price) in auctions.values().filter_map(Winning::end) {
                categories.entry(category).or_default().take(price);
            }
            categories.iter().for_each(|(category, of)| found.add(of.end(*category)));
        }
        Query::HotItems => {
            let mut counts: HashMap<(u64, u64), u64> = HashMap::new();
            for bid in bids() {
                for window in steps::hot_windows(bid.time_ms) {
                    *counts.entry((window, bid.auction)).or_default() += 1;
                }
            }
            let mut most: HashMap<u64, u64> = HashMap::new();
            for ((window, _), count) in counts {
                let most = most.entry(window).or_default();
                *most = count.max(*most);
            }
            most.iter().for_each(|(window, count)| found.add([*window, *count]));
        }
        Query::HighestBid => {
            let mut highest: HashMap<u64, u64> = HashMap::new();
            for bid in bids() {
                let highest = highest.entry(steps::window(bid.time_ms)).or_default();
                *highest = bid.price.max(*highest);
            }
            highest.iter().for_each(|(window, price)| found.add([*window, *price]));
        }
        Query::NewUsers => {
            let mut people: HashMap<u64, Newcomer> = HashMap::new();
            for (person, window, new) in log.events().filter_map(steps::newcomer) {
                people.entry(person).or_default().take(window, new, |pair| found.add(pair));
            }
        }
    }
    found
}
