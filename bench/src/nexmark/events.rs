//! The events of `nexmark`: what the generator of the `nexmark` crate makes, with the fields that the queries look at. It is
//! made once: making an event costs more than any query does.

use ::nexmark::EventGenerator;
use ::nexmark::config::NexmarkConfig;
use ::nexmark::event::Event as Made;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// A multiple of every window, so that none is cut off at the beginning.
const BASE_MS: u64 = 100_000_000;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Event {
    Person(Box<Person>),
    Auction(Auction),
    Bid(Bid),
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Person {
    pub(crate) id: u64,
    pub(crate) name: String,
    pub(crate) city: String,
    pub(crate) state: String,
    pub(crate) time_ms: u64,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Auction {
    pub(crate) id: u64,
    pub(crate) seller: u64,
    pub(crate) category: u64,
    pub(crate) reserve: u64,
    pub(crate) time_ms: u64,
    pub(crate) expires_ms: u64,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Bid {
    pub(crate) auction: u64,
    pub(crate) bidder: u64,
    pub(crate) price: u64,
    pub(crate) time_ms: u64,
}

impl Event {
    fn of(made: Made) -> Self {
        match made {
            Made::Person(person) => Event::Person(Box::new(Person {
                id: person.id as u64,
                name: person.name,
                city: person.city,
                state: person.state,
                time_ms: person.date_time,
            })),
            Made::Auction(auction) => Event::Auction(Auction {
                id: auction.id as u64,
                seller: auction.seller as u64,
                category: auction.category as u64,
                reserve: auction.reserve as u64,
                time_ms: auction.date_time,
                expires_ms: auction.expires,
            }),
            Made::Bid(bid) => Event::Bid(Bid {
                auction: bid.auction as u64,
                bidder: bid.bidder as u64,
                price: bid.price as u64,
                time_ms: bid.date_time,
            }),
        }
    }
}

/// All events.
#[derive(Clone)]
pub(crate) struct Log(Arc<[Event]>);

impl Log {
    pub(crate) fn new(events: usize) -> Self {
        let config = NexmarkConfig { base_time: BASE_MS, ..NexmarkConfig::default() };
        Log(EventGenerator::new(config).take(events).map(Event::of).collect())
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Makes an event. Not inlined: nobody's compiler may skip what a query does not look at.
    #[inline(never)]
    pub(crate) fn event(&self, at: usize) -> Event {
        self.0[at].clone()
    }

    /// Makes every so many events, as one of so many parts that have them in turn.
    pub(crate) fn part(
        &self,
        part: usize,
        parts: usize,
    ) -> impl Iterator<Item = Event> + Send + use<> {
        let log = self.clone();
        (part..log.len()).step_by(parts).map(move |at| log.event(at))
    }

    /// Makes all events, in order.
    pub(crate) fn events(&self) -> impl Iterator<Item = Event> + Send + use<> {
        let log = self.clone();
        (0..log.len()).map(move |at| log.event(at))
    }
}
