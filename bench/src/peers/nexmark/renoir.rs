//! Peer `renoir`: streams in one process, with the batches of renoir's own benchmark. Its event-time windows begin at the
//! first event of each key and not at a common moment, so they find something else than the queries ask for: here
//! the window is part of the key, and both steps of an aggregate that renoir can take before it hands on are taken.

use super::Query;
use crate::nexmark::events::{Event, Log};
use crate::nexmark::steps::{self, Average, Found, Local, Lot, New, Winning};
use ::renoir::operator::Operator;
use ::renoir::prelude::*;
use ::renoir::{RuntimeConfig, Stream};

/// As in renoir's own benchmark.
const BATCH: usize = 16 << 10;

pub(crate) fn run(query: Query, log: &Log, threads: usize) -> Found {
    let config = RuntimeConfig::local(threads as u64).expect("one thread or more");
    let env = StreamContext::new(config);
    let log = log.clone();
    let events = env
        .stream_par_iter(move |part, parts| {
            let log = log.clone();
            (part as usize..log.len()).step_by(parts as usize).map(move |at| log.event(at))
        })
        .batch_mode(BatchMode::fixed(BATCH));
    let found = match query {
        Query::PassThrough => gather(events, |event, found| found.add(steps::as_it_is(&event))),
        Query::Currency => {
            let euros = events.filter_map(steps::bid).map(steps::in_euros);
            gather(euros, |bid, found| found.add(steps::parts(&bid)))
        }
        Query::Selection => {
            let selected = events.filter_map(steps::bid).filter(steps::is_selected);
            gather(selected, |bid, found| found.add([bid.auction, bid.price]))
        }
        Query::LocalItems => local_items(events),
        Query::AveragePrice => average_price(events),
        Query::HotItems => hot_items(events),
        Query::HighestBid => {
            let bids = events.filter_map(steps::bid);
            let highest = bids.group_by_fold(
                |bid| steps::window(bid.time_ms),
                0,
                |highest, bid| *highest = bid.price.max(*highest),
                |highest, other| *highest = other.max(*highest),
            );
            gather(highest.unkey(), |(window, price), found| found.add([window, price]))
        }
        Query::NewUsers => new_users(events),
    };
    env.execute_blocking();
    found.get().and_then(|found| found.into_iter().next()).unwrap_or_default()
}

type Output = ::renoir::operator::sink::StreamOutput<Vec<Found>>;

/// Adds the results up.
fn gather<T: Send + 'static>(
    results: Stream<impl Operator<Out = T> + 'static>,
    add: impl Fn(T, &mut Found) + Clone + Send + 'static,
) -> Output {
    let local = move |found: &mut Found, result: T| add(result, found);
    let joined = |found: &mut Found, other: Found| *found = found.join(other);
    results.fold_assoc(Found::default(), local, joined).collect_vec()
}

fn local_items(events: Stream<impl Operator<Out = Event> + 'static>) -> Output {
    let mut routes = events
        .filter_map(steps::local)
        .route()
        .add_route(|(_, local)| matches!(local, Local::Person(_)))
        .add_route(|(_, local)| matches!(local, Local::Auction(_)))
        .build()
        .into_iter();
    let (Some(people), Some(auctions)) = (routes.next(), routes.next()) else {
        unreachable!("two routes were added");
    };
    let joined = people.join(auctions, |(id, _)| *id, |(seller, _)| *seller).drop_key();
    gather(joined, |pair, found| {
        if let ((_, Local::Person(person)), (_, Local::Auction(auction))) = pair {
            found.add(steps::suggestion(&person, auction));
        }
    })
}

fn average_price(events: Stream<impl Operator<Out = Event> + 'static>) -> Output {
    let averages = events
        .filter_map(steps::lot)
        .group_by(|(auction, _): &(u64, Lot)| *auction)
        .fold(Winning::default(), |winning, (_, lot)| winning.take(lot))
        .drop_key()
        .filter_map(|winning: Winning| winning.end())
        .group_by_fold(
            |(category, _)| *category,
            Average::default(),
            |average, (_, price)| average.take(price),
            |average, other| average.join(other),
        )
        .unkey();
    gather(averages, |(category, average), found| found.add(average.end(category)))
}

fn hot_items(events: Stream<impl Operator<Out = Event> + 'static>) -> Output {
    let most = events
        .filter_map(steps::bid)
        .flat_map(|bid| steps::hot_windows(bid.time_ms).map(move |window| (window, bid.auction)))
        .group_by_fold(|key| *key, 0, |count, _| *count += 1, |count, other| *count += other)
        .unkey()
        .group_by_fold(
            |((window, _), _)| *window,
            0_u64,
            |most, (_, count)| *most = count.max(*most),
            |most, other| *most = other.max(*most),
        )
        .unkey();
    gather(most, |(window, count), found| found.add([window, count]))
}

fn new_users(events: Stream<impl Operator<Out = Event> + 'static>) -> Output {
    let mut routes = events
        .filter_map(steps::newcomer)
        .route()
        .add_route(|(_, _, new)| matches!(new, New::Person(_)))
        .add_route(|(_, _, new)| matches!(new, New::Reserve(_)))
        .build()
        .into_iter();
    let (Some(people), Some(sales)) = (routes.next(), routes.next()) else {
        unreachable!("two routes were added");
    };
    let key = |(person, window, _): &(u64, u64, New)| (*person, *window);
    let joined = people.join(sales, key, key).drop_key();
    gather(joined, |pair, found| {
        if let ((_, _, New::Person(person)), (_, _, New::Reserve(reserve))) = pair {
            found.add(steps::monitored(&person, reserve));
        }
    })
}
