//! What the queue knows of a lane that has something to do, or is at it.
//! Used by `mod.rs` and everything below it.
//! Invariant: a place without a lane is as new; `vacate` leaves it so.

use comporta_model::error::Error;
use comporta_model::event::Time;
use comporta_model::keyed::LaneRef;

use super::events::Chain;
use crate::stage::queue::Turn;

/// A lane that has something to do, or is at it. A place without a lane is as new.
pub(super) struct Place {
    pub(super) lane: Option<LaneRef>,
    pub(super) events: Chain,
    /// It stands in `ready`.
    pub(super) ready: bool,
    /// The visit it belongs to, and how many of its events that has.
    pub(super) turn: Option<Turn>,
    pub(super) out: usize,
    /// Which try at the first event comes next, and when.
    pub(super) attempt: u32,
    pub(super) waits: Option<Time>,
    /// A failed event holds it.
    pub(super) held: bool,
    /// It was held when no more events could come: those it has fail behind the one that held it, and it stays.
    pub(super) given_up: bool,
    pub(super) due: Option<Due>,
    /// Where an event timer that is due holds event time.
    pub(super) holds: Option<Time>,
    /// As its lane has it.
    pub(super) weight: usize,
    pub(super) keyless: bool,
}

impl Place {
    pub(super) fn new() -> Self {
        Place {
            lane: None,
            weight: 1,
            keyless: false,
            events: Chain::default(),
            ready: false,
            turn: None,
            out: 0,
            attempt: 1,
            waits: None,
            held: false,
            given_up: false,
            due: None,
            holds: None,
        }
    }

    /// Visits could be made for so much.
    #[inline]
    pub(super) fn work(&self) -> usize {
        self.events.len() + usize::from(self.due.is_some())
    }

    #[inline]
    pub(super) fn is_open(&self) -> bool {
        self.turn.is_none() && self.waits.is_none() && !self.held
    }

    #[inline]
    pub(super) fn doom(&self) -> Option<Doom> {
        if self.keyless { Some(Doom::Keyless) } else { self.given_up.then_some(Doom::Held) }
    }

    /// Whether a visit to it takes nothing else.
    #[inline]
    pub(super) fn is_alone(&self) -> bool {
        self.attempt > 1 || self.due.is_some() || self.doom().is_some()
    }
}

/// Why events fail as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Doom {
    /// Their key cannot be had.
    Keyless,
    /// An event of their key before them has failed.
    Held,
}

impl Doom {
    /// What is said of them.
    pub(crate) fn error(self) -> Error {
        Error::permanent(Error::msg(match self {
            Doom::Keyless => "its key cannot be had: the key function panicked",
            Doom::Held => "its key is held by an event that failed before it",
        }))
    }
}

/// What is to be done for a lane beside its events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// A timer is due.
    Timer,
    /// Its state has expired.
    Expiry,
}
