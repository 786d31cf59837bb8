//! Ours: each query as a user writes it. Stages with state are keyed, and windows are keyed windows of event time; nothing
//! is said of how they run but the number of threads, and that every stage that may have several has a replica for each, as
//! with renoir. (A stage with event time has one.)

use super::Query;
use crate::nexmark::events::{Bid, Event, Log, Person};
use crate::nexmark::steps::Winning;
use crate::nexmark::steps::{self, Average, Found, Local, Lot, New, Seller};
use comporta::windows::{self, Aggregate, Count, Windowed, Windows};
use comporta::{
    App, Cx, Ended, Ev, KeyedCx, KeyedStage, Out, Plan, Port, Result, Stage, StagePlan, Time,
};
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

// Long because the queries are written out one after the other, as a user would.
pub(crate) fn run(query: Query, log: &Log, threads: usize) -> Found {
    let app = App::new("nexmark");
    let log = log.clone();
    let events = app.source_parts("events", move |part| log.part(part.index(), part.count()));
    let found = Arc::new(Mutex::new(Found::default()));
    match query {
        Query::PassThrough => {
            gather(&app, events, &found, |event: Event, found| found.add(steps::as_it_is(&event)));
        }
        Query::Currency => {
            let euros =
                app.filter_map("euros", |event: Event| steps::bid(event).map(steps::in_euros));
            app.connect(events, euros);
            gather(&app, *euros, &found, |bid: Bid, found| found.add(steps::parts(&bid)));
        }
        Query::Selection => {
            let selected = app.filter_map("selected", |event: Event| {
                steps::bid(event).filter(steps::is_selected)
            });
            app.connect(events, selected);
            gather(&app, *selected, &found, |bid: Bid, found| {
                found.add([bid.auction, bid.price]);
            });
        }
        Query::LocalItems => {
            let local = app.filter_map("local", steps::local);
            let join = app.keyed(
                "join",
                |(seller, _): &(u64, Local)| *seller,
                |seller: &mut Seller, (_, local), out: &mut Out<[u64; 4]>| {
                    seller.take(local, |pair| out.send(pair));
                },
            );
            app.connect(events, local);
            app.connect(local, join);
            gather(&app, *join, &found, |pair, found| found.add(pair));
        }
        Query::AveragePrice => {
            let lots = app.filter_map("lots", steps::lot);
            let (winners, averages) =
                (app.stage("winners", Winners), app.stage("averages", Averages));
            app.connect(events, lots);
            app.connect(lots, winners);
            app.connect(winners, averages);
            gather(&app, *averages, &found, |average, found| found.add(average));
        }
        Query::HotItems => {
            let bids = app.filter_map("bids", steps::bid);
            let every = 2 * SECOND;
            let counts = app.window(
                "counts",
                |bid: &Bid| bid.auction,
                |bid: &Bid| Time::from_millis(bid.time_ms),
                Windows::sliding(10 * SECOND, every),
                Count,
            );
            // A result is of the last moment of its window: those of one window are in one of these.
            let most = app.window(
                "most",
                |_: &Windowed<u64, u64>| (),
                Windowed::time,
                Windows::tumbling(every),
                windows::max(|count: &Windowed<u64, u64>| count.value),
            );
            app.connect(events, bids);
            app.connect(bids, counts);
            app.connect(counts.windows, most);
            gather(&app, most.windows, &found, |most: Windowed<(), u64>, found| {
                found.add([(most.end - 10 * SECOND).as_millis(), most.value]);
            });
        }
        Query::HighestBid => {
            let bids = app.filter_map("bids", steps::bid);
            let highest = app.window(
                "highest",
                |_: &Bid| (),
                |bid: &Bid| Time::from_millis(bid.time_ms),
                Windows::tumbling(10 * SECOND),
                windows::max(|bid: &Bid| bid.price),
            );
            app.connect(events, bids);
            app.connect(bids, highest);
            gather(&app, highest.windows, &found, |highest: Windowed<(), u64>, found| {
                found.add([highest.start.as_millis(), highest.value]);
            });
        }
        Query::NewUsers => {
            // People and auctions, in windows of one stage.
            let new = app.filter_map("new", steps::newcomer);
            let join = app.window(
                "join",
                |(person, _, _): &(u64, u64, New)| *person,
                |(_, window, _): &(u64, u64, New)| Time::from_millis(*window),
                Windows::tumbling(10 * SECOND),
                Pairs,
            );
            app.connect(events, new);
            app.connect(new, join);
            gather(&app, join.windows, &found, |of: Windowed<u64, Vec<[u64; 3]>>, found| {
                of.value.into_iter().for_each(|pair| found.add(pair));
            });
        }
    }
    let every = |stage: StagePlan| stage.emit_max(usize::MAX).replicas(threads);
    let plan = Plan::new().threads(threads).every(every);
    let summary = app.run(&plan).expect("a valid graph");
    assert_eq!(summary.ended, Ended::Complete, "{summary}");
    *found.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A sink that adds results up, and joins what it has to that of its other instances when the last has come.
struct Gather<T, F> {
    found: Found,
    add: F,
    all: Arc<Mutex<Found>>,
    of: PhantomData<fn(T)>,
}

impl<T, F: Clone> Clone for Gather<T, F> {
    fn clone(&self) -> Self {
        Gather { found: self.found, add: self.add.clone(), all: self.all.clone(), of: PhantomData }
    }
}

impl<T: Send + 'static, F: FnMut(T, &mut Found) + Send + 'static> Stage for Gather<T, F> {
    type In = T;
    type Ports = ();

    fn handle(&mut self, result: Ev<'_, T>, (): &mut (), _: &Cx) -> Result {
        (self.add)(result.take(), &mut self.found);
        Ok(())
    }

    fn finish(&mut self, (): &mut (), _: &Cx) -> Result {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        *all = all.join(self.found);
        Ok(())
    }
}

fn gather<T, F>(app: &App, results: Port<T>, all: &Arc<Mutex<Found>>, add: F)
where
    T: Clone + Send + serde::Serialize + serde::de::DeserializeOwned + 'static,
    F: FnMut(T, &mut Found) + Clone + Send + Sync + 'static,
{
    let gather = Gather { found: Found::default(), add, all: all.clone(), of: PhantomData };
    app.connect(results, app.stage("gather", gather));
}

/// Query 4: the price that won each auction.
#[derive(Clone)]
struct Winners;

impl KeyedStage for Winners {
    type In = (u64, Lot);
    type Key = u64;
    type State = Winning;
    type Ports = Out<(u64, u64)>;

    fn key(&self, (auction, _): &(u64, Lot)) -> u64 {
        *auction
    }

    fn handle(
        &mut self,
        winning: &mut Winning,
        lot: Ev<'_, (u64, Lot)>,
        _: &mut Self::Ports,
        _: &KeyedCx<'_, u64>,
    ) -> Result {
        winning.take(lot.1);
        Ok(())
    }

    fn finish(&mut self, winning: Winning, out: &mut Self::Ports, _: &KeyedCx<'_, u64>) -> Result {
        if let Some(won) = winning.end() {
            out.send(won);
        }
        Ok(())
    }
}

/// Query 4: the average of each category.
#[derive(Clone)]
struct Averages;

impl KeyedStage for Averages {
    type In = (u64, u64);
    type Key = u64;
    type State = Average;
    type Ports = Out<[u64; 2]>;

    fn key(&self, (category, _): &(u64, u64)) -> u64 {
        *category
    }

    fn handle(
        &mut self,
        average: &mut Average,
        won: Ev<'_, (u64, u64)>,
        _: &mut Self::Ports,
        _: &KeyedCx<'_, u64>,
    ) -> Result {
        average.take(won.1);
        Ok(())
    }

    fn finish(&mut self, average: Average, out: &mut Self::Ports, cx: &KeyedCx<'_, u64>) -> Result {
        out.send(average.end(*cx.key()));
        Ok(())
    }
}

/// Query 8: a new person with everything that the person offers in the same window.
#[derive(Clone)]
struct Pairs;

impl Aggregate<(u64, u64, New)> for Pairs {
    type Acc = (Option<Box<Person>>, Vec<u64>);
    type Out = Vec<[u64; 3]>;

    fn init(&self) -> Self::Acc {
        (None, Vec::new())
    }

    fn add(&self, (person, reserves): &mut Self::Acc, (_, _, new): &(u64, u64, New)) {
        match new {
            New::Person(new) => *person = Some(new.clone()),
            New::Reserve(reserve) => reserves.push(*reserve),
        }
    }

    fn merge(&self, (person, reserves): &mut Self::Acc, (other, more): &Self::Acc) {
        *person = person.take().or_else(|| other.clone());
        reserves.extend(more);
    }

    fn result(&self, (person, reserves): &Self::Acc) -> Vec<[u64; 3]> {
        let pairs = |person| reserves.iter().map(move |reserve| steps::monitored(person, *reserve));
        person.as_deref().into_iter().flat_map(pairs).collect()
    }
}
