//! What the queue knows of a lane that has something to do, is at it, or has state.
//! Used by `mod.rs` and everything below it.
//! Invariants: a place without a lane is as new, and `vacate` leaves it so; a place is a cache line, since with many keys
//! each event comes to another.

use comporta_model::error::Error;
use comporta_model::event::Time;
use comporta_model::keyed::LaneRef;

use super::events::Chain;
use crate::stage::queue::Turn;

/// A lane that has something to do, is at it, or has state. A place without a lane is as new.
#[repr(align(64))]
pub(super) struct Place {
    pub(super) lane: Option<LaneRef>,
    pub(super) events: Chain,
    /// The visit it belongs to, and how many of its events that has.
    pub(super) turn: Option<Turn>,
    pub(super) out: u32,
    /// As its lane has it.
    pub(super) weight: u32,
    /// Which try at the first event comes next.
    pub(super) attempt: u32,
    /// It stands in `ready`.
    pub(super) ready: bool,
    /// It waits to try its first event again: `rare` says when.
    waits: bool,
    /// A failed event holds it.
    pub(super) held: bool,
    /// It was held when no more events could come: those it has fail behind the one that held it, and it stays.
    pub(super) given_up: bool,
    /// As its lane has it.
    pub(super) keyless: bool,
    pub(super) due: Option<Due>,
    /// Boxed: hardly a lane has it.
    rare: Option<Box<Rare>>,
}

const _: () = assert!(size_of::<Place>() == 64, "a place is a cache line");

#[derive(Default)]
struct Rare {
    /// Until when it waits to try its first event again.
    waits: Option<Time>,
    /// Where an event timer that is due holds event time.
    holds: Option<Time>,
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
            waits: false,
            held: false,
            given_up: false,
            due: None,
            rare: None,
        }
    }

    /// It tries its first event again then.
    pub(super) fn wait_until(&mut self, due: Time) {
        self.waits = true;
        self.rare.get_or_insert_default().waits = Some(due);
    }

    /// It does not wait any more, if it did, and if it was until `due`. Returns whether it did.
    pub(super) fn end_wait(&mut self, due: Option<Time>) -> bool {
        let until = self.rare.as_mut().map(|rare| &mut rare.waits);
        let ended = until
            .and_then(|until| until.take_if(|until| due.is_none_or(|due| *until == due)))
            .is_some();
        self.waits &= !ended;
        ended
    }

    /// Where an event timer that is due holds event time.
    pub(super) fn holds(&self) -> Option<Time> {
        self.rare.as_ref().and_then(|rare| rare.holds)
    }

    /// Returns where it did before.
    pub(super) fn set_holds(&mut self, holds: Option<Time>) -> Option<Time> {
        match &mut self.rare {
            None if holds.is_none() => None,
            rare => std::mem::replace(&mut rare.get_or_insert_default().holds, holds),
        }
    }

    /// Whether an event that comes now is the only one, and a visit to the lane may take it with others.
    #[inline]
    pub(super) fn is_fresh(&self) -> bool {
        // Without branches: it is so for most.
        let apart = (self.weight != 1) | self.keyless | self.due.is_some();
        !(self.turn.is_some()
            | (self.events.len() > 0)
            | self.ready
            | self.waits
            | self.held
            | apart)
    }

    /// Whether there is nothing to do, and nothing was.
    #[inline]
    pub(super) fn is_quiet(&self) -> bool {
        let loud = self.due.is_some() | self.given_up | (self.attempt != 1);
        !(self.turn.is_some() | (self.events.len() > 0) | self.waits | self.held | loud)
    }

    /// Whether it has something to do, is at it, or is kept from it.
    pub(super) fn is_busy(&self) -> bool {
        self.ready || !self.is_open() || self.work() > 0
    }

    /// Visits could be made for so much.
    #[inline]
    pub(super) fn work(&self) -> usize {
        self.events.len() + usize::from(self.due.is_some())
    }

    #[inline]
    pub(super) fn is_open(&self) -> bool {
        self.turn.is_none() && !self.waits && !self.held
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
