//! Peer `loop`: for each query the loop that one would write by hand, on rayon. Where there is state for each key, every
//! thread goes over all events and keeps to the keys that are its own: nothing is handed on and nothing is locked.

use super::Query;
use crate::nexmark::events::{Event, Log};
use crate::nexmark::steps::{self, Average, Counts, Found, Newcomer, Seller, Winning};
use ::rayon::prelude::*;
use std::collections::HashMap;

pub(crate) fn run(query: Query, log: &Log, threads: usize) -> Found {
    let pool = ::rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .build()
        .expect("a rayon pool of a few threads can be built");
    pool.install(|| match query {
        Query::PassThrough => each(log, |event, found| found.add(steps::as_it_is(&event))),
        Query::Currency => each(log, |event, found| {
            if let Some(bid) = steps::bid(event) {
                found.add(steps::parts(&steps::in_euros(bid)));
            }
        }),
        Query::Selection => each(log, |event, found| {
            if let Some(bid) = steps::bid(event).filter(steps::is_selected) {
                found.add([bid.auction, bid.price]);
            }
        }),
        Query::LocalItems => local_items(log, threads),
        Query::AveragePrice => average_price(log, threads),
        Query::HotItems => hot_items(log, threads),
        Query::HighestBid => highest_bid(log),
        Query::NewUsers => new_users(log, threads),
    })
}

/// Without state: every event by itself.
fn each(log: &Log, take: impl Fn(Event, &mut Found) + Sync) -> Found {
    (0..log.len())
        .into_par_iter()
        .fold(Found::default, |mut found, at| {
            take(log.event(at), &mut found);
            found
        })
        .reduce(Found::default, Found::join)
}

/// What each part of the keys leads to.
fn parts<R: Send>(threads: usize, part: impl Fn(u64) -> R + Sync + Send) -> Vec<R> {
    (0..threads as u64).into_par_iter().map(part).collect()
}

fn local_items(log: &Log, threads: usize) -> Found {
    let found = parts(threads, |part| {
        let (mut found, mut sellers) = (Found::default(), HashMap::<u64, Seller>::new());
        for (seller, local) in log.events().filter_map(steps::local) {
            if seller % threads as u64 == part {
                sellers.entry(seller).or_default().take(local, |pair| found.add(pair));
            }
        }
        found
    });
    found.into_iter().fold(Found::default(), Found::join)
}

fn average_price(log: &Log, threads: usize) -> Found {
    let averages = parts(threads, |part| {
        let mut auctions: HashMap<u64, Winning> = HashMap::new();
        for (auction, lot) in log.events().filter_map(steps::lot) {
            if auction % threads as u64 == part {
                auctions.entry(auction).or_default().take(lot);
            }
        }
        let mut categories: HashMap<u64, Average> = HashMap::new();
        for (category, price) in auctions.values().filter_map(Winning::end) {
            categories.entry(category).or_default().take(price);
        }
        categories
    });
    let mut all: HashMap<u64, Average> = HashMap::new();
    for (category, average) in averages.into_iter().flatten() {
        all.entry(category).or_default().join(average);
    }
    let mut found = Found::default();
    all.iter().for_each(|(category, of)| found.add(of.end(*category)));
    found
}

/// The greatest value of each window.
fn greatest(of: impl IntoIterator<Item = (u64, u64)>) -> HashMap<u64, u64> {
    let mut most: HashMap<u64, u64> = HashMap::new();
    for (window, value) in of {
        let most = most.entry(window).or_default();
        *most = value.max(*most);
    }
    most
}

fn of_windows(windows: &HashMap<u64, u64>) -> Found {
    let mut found = Found::default();
    windows.iter().for_each(|(window, value)| found.add([*window, *value]));
    found
}

fn hot_items(log: &Log, threads: usize) -> Found {
    let most = parts(threads, |part| {
        let (mut auctions, mut over) = (HashMap::<u64, Counts>::new(), HashMap::<u64, u64>::new());
        let mut more = |window: u64, count: u64| {
            let most = over.entry(window).or_default();
            *most = count.max(*most);
        };
        for bid in log.events().filter_map(steps::bid) {
            if bid.auction % threads as u64 == part {
                auctions.entry(bid.auction).or_default().take(bid.time_ms, &mut more);
            }
        }
        let rest = auctions.into_values().flat_map(Counts::end);
        rest.for_each(|(window, count)| more(window, count));
        over
    });
    of_windows(&greatest(most.into_iter().flatten()))
}

fn highest_bid(log: &Log) -> Found {
    let windows = (0..log.len())
        .into_par_iter()
        .fold(HashMap::<u64, u64>::new, |mut windows, at| {
            if let Some(bid) = steps::bid(log.event(at)) {
                let highest = windows.entry(steps::window(bid.time_ms)).or_default();
                *highest = bid.price.max(*highest);
            }
            windows
        })
        .reduce(HashMap::new, |a, b| greatest(a.into_iter().chain(b)));
    of_windows(&windows)
}

fn new_users(log: &Log, threads: usize) -> Found {
    let found = parts(threads, |part| {
        let (mut found, mut people) = (Found::default(), HashMap::<u64, Newcomer>::new());
        for (person, window, new) in log.events().filter_map(steps::newcomer) {
            if person % threads as u64 == part {
                people.entry(person).or_default().take(window, new, |pair| found.add(pair));
            }
        }
        found
    });
    found.into_iter().fold(Found::default(), Found::join)
}
