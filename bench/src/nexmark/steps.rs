//! What the queries do to an event, and what they keep: the same functions for every entrant, which differ in how events
//! get to them.

use super::events::{Auction, Bid, Event, Person};
use serde::{Deserialize, Serialize};

/// What a query found: how many results, and a sum that does not depend on their order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Found {
    pub(crate) count: u64,
    digest: u64,
}

impl Found {
    /// One more result, with these in it.
    #[inline]
    pub(crate) fn add<const N: usize>(&mut self, parts: [u64; N]) {
        let mixed = parts.into_iter().fold(N as u64, |sum, part| {
            let sum = (sum ^ part).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            sum ^ (sum >> 29)
        });
        self.count += 1;
        self.digest = self.digest.wrapping_add(mixed);
    }

    pub(crate) fn join(mut self, other: Found) -> Found {
        self.count += other.count;
        self.digest = self.digest.wrapping_add(other.digest);
        self
    }
}

/// A text as a part of a result.
pub(crate) fn text(text: &str) -> u64 {
    text.bytes().fold(7, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte)))
}

/// Query 0: the event as it is.
#[inline]
pub(crate) fn as_it_is(event: &Event) -> [u64; 2] {
    match event {
        Event::Person(person) => [person.id, person.time_ms],
        Event::Auction(auction) => [auction.id, auction.time_ms],
        Event::Bid(bid) => [bid.price, bid.time_ms],
    }
}

/// The bid, if it is one.
#[inline]
pub(crate) fn bid(event: Event) -> Option<Bid> {
    match event {
        Event::Bid(bid) => Some(bid),
        _ => None,
    }
}

/// Query 1: the price in another currency.
#[inline]
pub(crate) fn in_euros(bid: Bid) -> Bid {
    Bid { price: bid.price * 908 / 1_000, ..bid }
}

#[inline]
pub(crate) fn parts(bid: &Bid) -> [u64; 4] {
    [bid.auction, bid.price, bid.bidder, bid.time_ms]
}

/// Query 2: whether a bid is for one of some auctions.
#[inline]
pub(crate) fn is_selected(bid: &Bid) -> bool {
    bid.auction.is_multiple_of(123)
}

/// Query 3: who sells in which auction, if the query asks for it.
#[inline]
pub(crate) fn local(event: Event) -> Option<(u64, Local)> {
    match event {
        Event::Person(person) if ["or", "id", "ca"].contains(&person.state.as_str()) => {
            Some((person.id, Local::Person(person)))
        }
        Event::Auction(auction) if auction.category == 10 => {
            Some((auction.seller, Local::Auction(auction.id)))
        }
        _ => None,
    }
}

/// One side of the join of query 3.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Local {
    Person(Box<Person>),
    Auction(u64),
}

/// Query 3: what is kept of a person.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seller {
    person: Option<Box<Person>>,
    auctions: Vec<u64>,
}

impl Seller {
    /// Takes one side; shows the pairs that it completes.
    pub(crate) fn take(&mut self, local: Local, mut pair: impl FnMut([u64; 4])) {
        match local {
            Local::Person(person) => {
                self.auctions.iter().for_each(|auction| pair(suggestion(&person, *auction)));
                self.person = Some(person);
            }
            Local::Auction(auction) => {
                if let Some(person) = &self.person {
                    pair(suggestion(person, auction));
                } else {
                    self.auctions.push(auction);
                }
            }
        }
    }
}

/// A result of query 3.
pub(crate) fn suggestion(person: &Person, auction: u64) -> [u64; 4] {
    [text(&person.name), text(&person.city), text(&person.state), auction]
}

/// Query 4: an auction, or a bid for it.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum Lot {
    Auction(Auction),
    Bid(Bid),
}

#[inline]
pub(crate) fn lot(event: Event) -> Option<(u64, Lot)> {
    match event {
        Event::Auction(auction) => Some((auction.id, Lot::Auction(auction))),
        Event::Bid(bid) => Some((bid.auction, Lot::Bid(bid))),
        Event::Person(_) => None,
    }
}

/// Query 4: what is kept of an auction. Bids may come before it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Winning {
    auction: Option<Auction>,
    price: Option<u64>,
    early: Vec<Bid>,
}

impl Winning {
    #[inline]
    pub(crate) fn take(&mut self, lot: Lot) {
        match (lot, self.auction) {
            (Lot::Bid(bid), Some(auction)) => self.judge(&auction, &bid),
            (Lot::Bid(bid), None) => self.early.push(bid),
            (Lot::Auction(auction), _) => {
                self.auction = Some(auction);
                std::mem::take(&mut self.early).iter().for_each(|bid| self.judge(&auction, bid));
            }
        }
    }

    #[inline]
    fn judge(&mut self, auction: &Auction, bid: &Bid) {
        let in_time = (auction.time_ms..auction.expires_ms).contains(&bid.time_ms);
        if in_time && bid.price >= auction.reserve {
            self.price = self.price.max(Some(bid.price));
        }
    }

    /// The category, and the price that won.
    pub(crate) fn end(&self) -> Option<(u64, u64)> {
        Some((self.auction?.category, self.price?))
    }
}

/// Query 4: the prices of a category.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Average {
    sum: u64,
    n: u64,
}

impl Average {
    pub(crate) fn take(&mut self, price: u64) {
        self.sum += price;
        self.n += 1;
    }

    pub(crate) fn join(&mut self, other: Average) {
        self.sum += other.sum;
        self.n += other.n;
    }

    pub(crate) fn end(&self, category: u64) -> [u64; 2] {
        [category, self.sum / self.n]
    }
}

/// Query 5: windows of 10 s, every 2 s.
const HOT_MS: u64 = 10_000;
const HOT_SLIDE_MS: u64 = 2_000;

/// The windows of query 5 that a moment belongs to, by where they begin.
#[inline]
pub(crate) fn hot_windows(time_ms: u64) -> impl Iterator<Item = u64> {
    let last = time_ms - time_ms % HOT_SLIDE_MS;
    (0..HOT_MS / HOT_SLIDE_MS).map(move |n| last - n * HOT_SLIDE_MS)
}

/// Query 5: how many bids an auction had in each window. Bids come in order of time, so a window that has ended is over.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    /// By the beginning of the window, in order.
    windows: Vec<(u64, u64)>,
}

impl Counts {
    /// One more bid; shows the windows that are over, each with its count.
    #[inline]
    pub(crate) fn take(&mut self, time_ms: u64, mut over: impl FnMut(u64, u64)) {
        let ended = self.windows.iter().take_while(|(begin, _)| begin + HOT_MS <= time_ms).count();
        self.windows.drain(..ended).for_each(|(begin, count)| over(begin, count));
        let first = self.windows.last().map_or(0, |(begin, _)| begin + HOT_SLIDE_MS);
        self.windows.iter_mut().for_each(|(_, count)| *count += 1);
        let mut new: Vec<u64> = Vec::new();
        new.extend(hot_windows(time_ms).take_while(|begin| *begin >= first));
        self.windows.extend(new.into_iter().rev().map(|begin| (begin, 1)));
    }

    /// The windows that are left.
    pub(crate) fn end(self) -> impl Iterator<Item = (u64, u64)> {
        self.windows.into_iter()
    }
}

/// Query 7: the window of 10 s that a moment belongs to; also that of query 8.
#[inline]
pub(crate) fn window(time_ms: u64) -> u64 {
    time_ms - time_ms % 10_000
}

/// Query 8: a new person, or what one sells.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum New {
    Person(Box<Person>),
    Reserve(u64),
}

/// Query 8: who, in which window.
#[inline]
pub(crate) fn newcomer(event: Event) -> Option<(u64, u64, New)> {
    match event {
        Event::Person(person) => Some((person.id, window(person.time_ms), New::Person(person))),
        Event::Auction(auction) => {
            Some((auction.seller, window(auction.time_ms), New::Reserve(auction.reserve)))
        }
        Event::Bid(_) => None,
    }
}

/// Query 8: what is kept of a person, of the last window.
#[derive(Clone, Debug, Default)]
pub(crate) struct Newcomer {
    window: u64,
    person: Option<Box<Person>>,
    reserves: Vec<u64>,
}

impl Newcomer {
    /// Takes one side; shows the pairs that it completes.
    pub(crate) fn take(&mut self, window: u64, new: New, mut pair: impl FnMut([u64; 3])) {
        if self.window != window {
            *self = Newcomer { window, ..Newcomer::default() };
        }
        match new {
            New::Person(person) => {
                self.reserves.iter().for_each(|reserve| pair(monitored(&person, *reserve)));
                self.person = Some(person);
            }
            New::Reserve(reserve) => match &self.person {
                Some(person) => pair(monitored(person, reserve)),
                None => self.reserves.push(reserve),
            },
        }
    }
}

/// A result of query 8.
pub(crate) fn monitored(person: &Person, reserve: u64) -> [u64; 3] {
    [person.id, text(&person.name), reserve]
}
