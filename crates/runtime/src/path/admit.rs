//! Hop 2, admit: the door of a queue. Decides how many of the events that arrive may enter, and
//! what becomes of the others; holds who waits for room, first in first out.
//! Before: `emit` or `push`. After: `enqueue`, under whose lock all of this happens.
//!
//! Invariants: `len + reserved <= capacity` unless the capacity was lowered below them; places are
//! granted to waiters before anyone else; whoever leaves room with waiters present passes it on.

use std::any::Any;
use std::collections::VecDeque;

use comporta_model::event::Time;
use comporta_model::plan::WhenFull;

use crate::chunk_cache::ChunkCache;
use crate::cycle::Cycle;
use crate::path::caller::Caller;
use crate::path::gate::Gate;
use crate::path::ready::{Task, Token};
use crate::snapshot::Counts;
use crate::sync::Arc;

/// Who sends, and so who waits when there is no room.
#[derive(Clone)]
pub(crate) enum Who {
    /// An instance of a stage, or a source.
    Instance { stage: u32, instance: u32 },
    /// What lets the results of an ordered stage out.
    Releaser { stage: u32 },
    /// A thread or a task outside.
    Caller(Arc<Caller>),
}

/// The instance number under which the releaser of an ordered stage is resumed.
pub(crate) const RELEASER: u32 = u32::MAX;

struct Waiter {
    who: Who,
    want: usize,
}

/// Tokens made under a lock, dispatched after it is released.
#[derive(Default)]
pub(crate) struct Wakes {
    /// The worker whose visit this is; 0 if it is none's.
    pub(crate) home: u32,
    /// When the visit ended, if it looked.
    pub(crate) now: Option<Time>,
    /// How many events the policy lets the visit take; 0 is no bound.
    pub(crate) limit: usize,
    /// Events the visit has settled, or a source has sent.
    pub(crate) done: usize,
    pub(crate) tokens: Vec<Token>,
    /// Storage for chunks that this worker has in its cache.
    pub(crate) cache: ChunkCache,
    /// A cycle that may be stuck: to be broken outside all locks.
    pub(crate) stuck: Option<Arc<Cycle>>,
    /// Stages that may have seen their last event.
    pub(crate) over: Vec<u32>,
    /// Instances that are no longer wanted, to be dropped outside all locks.
    pub(crate) trash: Vec<Box<dyn Any + Send>>,
    /// Callers that were granted room, to be woken outside all locks: they come for the queue's.
    pub(crate) callers: Vec<Arc<Caller>>,
}

/// Why an event was shed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Shed {
    /// The queue was full, under `reject`.
    Rejected,
    /// The queue was full, under `drop-newest`.
    Newest,
    /// The queue was full, under `drop-oldest`.
    Oldest,
    /// The queue was disabled.
    Disabled,
    /// A cycle was stuck.
    Cycle,
    /// The stage had ended: sent by a `finish` inside a cycle.
    Ended,
    /// By the admission controller `capacity`: too many waited.
    Capacity,
    /// By `token-bucket`: they came too fast.
    TokenBucket,
    /// By `codel`: they had waited too long.
    Codel,
    /// By `seda`: response times were over the target.
    Seda,
    /// By `gradient`: response times rose.
    Gradient,
    /// By `breakwater`: the queueing delay was over the target.
    Breakwater,
    /// By `tiers`: others mattered more.
    Tiers,
    /// By `deadline`: they would have been late.
    Deadline,
    /// By an admission controller of the program's own.
    Admission,
}

impl Shed {
    /// Every reason, in the order of the counters.
    pub const ALL: [Shed; 15] = [
        Shed::Rejected,
        Shed::Newest,
        Shed::Oldest,
        Shed::Disabled,
        Shed::Cycle,
        Shed::Ended,
        Shed::Capacity,
        Shed::TokenBucket,
        Shed::Codel,
        Shed::Seda,
        Shed::Gradient,
        Shed::Breakwater,
        Shed::Tiers,
        Shed::Deadline,
        Shed::Admission,
    ];

    /// The word for it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Shed::Rejected => "rejected",
            Shed::Newest => "drop-newest",
            Shed::Oldest => "drop-oldest",
            Shed::Disabled => "disabled",
            Shed::Cycle => "cycle",
            Shed::Ended => "ended",
            Shed::Capacity => "capacity",
            Shed::TokenBucket => "token-bucket",
            Shed::Codel => "codel",
            Shed::Seda => "seda",
            Shed::Gradient => "gradient",
            Shed::Breakwater => "breakwater",
            Shed::Tiers => "tiers",
            Shed::Deadline => "deadline",
            Shed::Admission => "admission",
        }
    }

    /// Whether it was an admission controller, at the door or later; the other reasons are of one
    /// kind each.
    #[must_use]
    pub fn is_admission(self) -> bool {
        self as usize >= Shed::Capacity as usize
    }

    /// By the admission controller of that name.
    pub(crate) fn by(controller: &str) -> Shed {
        let named = |reason: &Shed| reason.is_admission() && reason.name() == controller;
        Shed::ALL.into_iter().find(named).unwrap_or(Shed::Admission)
    }
}

/// The state of the door.
pub(crate) struct Desk {
    pub(crate) capacity: usize,
    pub(crate) when_full: WhenFull,
    pub(crate) disabled: bool,
    /// Places promised to visits that are running, to waiters that were granted some, and to those
    /// that are still to be.
    pub(crate) reserved: usize,
    /// Of these, places kept for the line until they are worth a wake-up.
    saved: usize,
    /// Its stage waits until a group is complete, and that may take the last of its places.
    grouped: bool,
    /// Events that wait in the outboxes of their senders.
    pub(crate) outboxed: usize,
    inside: VecDeque<Waiter>,
    outside: VecDeque<Waiter>,
    pub(crate) counts: Counts,
    pub(crate) cycle: Option<Arc<Cycle>>,
    /// Whom to ask before anybody enters.
    pub(crate) gate: Option<Box<Gate>>,
}

/// What a draw got.
#[derive(Clone, Copy)]
pub(crate) struct Drawn {
    /// So many have a place reserved.
    pub(crate) places: usize,
    /// So many can be accepted.
    pub(crate) room: usize,
    pub(crate) rule: WhenFull,
    /// Whether places are needed at all.
    pub(crate) needed: bool,
    /// Who does not let the event in, whatever room there is.
    pub(crate) refused: Option<Shed>,
}

/// What the door decided about `n` events.
pub(crate) struct Verdict {
    /// So many enter.
    pub(crate) enter: usize,
    /// The rest waits with its sender, or is shed.
    pub(crate) rest: Rest,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rest {
    None,
    Waits,
    Shed(Shed),
    /// All enter, and then the oldest leave until the rest fits.
    Oldest,
}

impl Desk {
    pub(crate) fn new(
        capacity: usize,
        when_full: WhenFull,
        cycle: Option<Arc<Cycle>>,
        grouped: bool,
    ) -> Self {
        Desk {
            capacity,
            when_full,
            disabled: false,
            reserved: 0,
            saved: 0,
            grouped,
            outboxed: 0,
            inside: VecDeque::new(),
            outside: VecDeque::new(),
            counts: Counts::default(),
            cycle,
            gate: None,
        }
    }

    /// Whether a sender belongs to the same cycle as this queue.
    pub(crate) fn is_inside(&self, who: &Who) -> bool {
        match (&self.cycle, who) {
            (Some(cycle), Who::Instance { stage, .. } | Who::Releaser { stage }) => {
                cycle.stages.binary_search(stage).is_ok()
            }
            _ => false,
        }
    }

    /// Places free for a sender: one fewer for one that enters a cycle, so that a bubble remains.
    fn free(&self, len: usize, inside: bool) -> usize {
        let bubble = usize::from(self.cycle.is_some() && !inside && self.capacity > 1);
        self.capacity.saturating_sub(len + self.reserved + bubble)
    }

    /// Free to those who do not wait: nothing, while others do.
    fn free_now(&self, len: usize, inside: bool) -> usize {
        let line = if inside { &self.inside } else { &self.outside };
        if line.is_empty() { self.free(len, inside) } else { 0 }
    }

    /// The room a sender may count on if nobody else sends.
    pub(crate) fn room_left(&self, len: usize, inside: bool, rule: Option<WhenFull>) -> usize {
        let counts = self.rule(rule) == WhenFull::Block && !self.disabled;
        if counts { self.free_now(len, inside) } else { 0 }
    }

    /// What happens to an event at a full queue: what the way it came says, else what the queue says.
    fn rule(&self, rule: Option<WhenFull>) -> WhenFull {
        rule.unwrap_or(self.when_full)
    }

    /// Reserves up to `want` places for a visit that begins.
    pub(crate) fn draw(
        &mut self,
        len: usize,
        want: usize,
        inside: bool,
        rule: Option<WhenFull>,
    ) -> Drawn {
        let rule = self.rule(rule);
        if self.disabled || matches!(rule, WhenFull::DropNewest | WhenFull::DropOldest) {
            return Drawn { places: 0, room: usize::MAX, rule, needed: false, refused: None };
        }
        let free = self.free_now(len, inside);
        let places = free.min(want);
        self.reserved += places;
        // Under `block`, what comes past the places reserved waits, at worst.
        let room = if rule == WhenFull::Block { free } else { places };
        Drawn { places, room, rule, needed: true, refused: None }
    }

    /// Decides about `n` events, of which `drawn` have a place reserved. A sender that knew it was
    /// alone reserved nothing, but may count on `left` places all the same.
    pub(crate) fn admit(
        &mut self,
        len: usize,
        n: usize,
        (drawn, left): (usize, usize),
        inside: bool,
        rule: Option<WhenFull>,
    ) -> Verdict {
        let rule = self.rule(rule);
        self.reserved -= drawn;
        self.counts.offered += n as u64;
        if self.disabled {
            return Verdict { enter: 0, rest: Rest::Shed(Shed::Disabled) };
        }
        let room = match rule {
            WhenFull::Block => drawn.max(left).max(self.free_now(len, inside)),
            WhenFull::DropOldest => return Verdict { enter: n, rest: Rest::Oldest },
            WhenFull::Reject | WhenFull::DropNewest => self.free(len, true),
        };
        let enter = n.min(room);
        let rest = match rule {
            _ if enter == n => Rest::None,
            WhenFull::Block => Rest::Waits,
            WhenFull::Reject => Rest::Shed(Shed::Rejected),
            WhenFull::DropNewest | WhenFull::DropOldest => Rest::Shed(Shed::Newest),
        };
        Verdict { enter, rest }
    }

    /// How many of a sender's `waiting` events may enter now, of which `room` have a place.
    pub(crate) fn readmit(
        &mut self,
        len: usize,
        waiting: usize,
        room: usize,
        inside: bool,
    ) -> usize {
        self.reserved -= room;
        // Also when the queue was shut meanwhile: they were accepted before, and it stays bounded.
        let enter = waiting.min(room.max(self.free_now(len, inside)));
        self.outboxed -= enter;
        enter
    }

    /// Puts a sender in line for `want` places.
    pub(crate) fn wait(&mut self, who: Who, want: usize) {
        let inside = self.is_inside(&who);
        if inside && let Some(cycle) = &self.cycle {
            cycle.wait_inside(1);
        }
        let line = if inside { &mut self.inside } else { &mut self.outside };
        line.push_back(Waiter { who, want });
    }

    /// Gives a place back unused.
    pub(crate) fn release(&mut self, room: usize) {
        self.reserved -= room;
    }

    /// Grants free places to those who wait. Those outside a cycle are granted some only when a
    /// quarter of the queue is free, or all of it: a sender that is woken for each place costs more
    /// than the events. What becomes free until then is kept for them.
    pub(crate) fn pass_room(&mut self, len: usize, wakes: &mut Wakes) {
        while let Some(first) = self.inside.front() {
            let room = self.free(len, true).min(first.want);
            if room == 0 {
                return;
            }
            if let (Some(waiter), Some(cycle)) = (self.inside.pop_front(), &self.cycle) {
                cycle.activate();
                cycle.wait_inside(-1);
                self.grant(waiter.who, room, wakes);
            }
        }
        let Some(first) = self.outside.front() else { return };
        let quarter = (self.capacity / 4).max(1);
        let free = self.free(len, false);
        if self.cycle.is_some() || self.grouped {
            // Nothing is kept from those who go round, nor from a group that is not complete.
            if free < first.want.min(quarter) {
                return;
            }
        } else if free + self.saved < quarter && len > 0 {
            self.reserved += free;
            self.saved += free;
            return;
        }
        self.reserved -= std::mem::take(&mut self.saved);
        while let Some(first) = self.outside.front() {
            let room = self.free(len, false).min(first.want);
            if room == 0 {
                return;
            }
            if let Some(waiter) = self.outside.pop_front() {
                self.grant(waiter.who, room, wakes);
            }
        }
    }

    fn grant(&mut self, who: Who, room: usize, wakes: &mut Wakes) {
        let room = room.min(u32::MAX as usize);
        self.reserved += room;
        let (stage, instance) = match who {
            Who::Instance { stage, instance } => (stage, instance),
            Who::Releaser { stage } => (stage, RELEASER),
            Who::Caller(caller) => {
                if caller.grant(room) {
                    wakes.callers.push(caller);
                } else {
                    self.reserved -= room; // it has left the line
                }
                return;
            }
        };
        wakes.tokens.push(Token::new(stage, Task::Resume { instance, room: room as u32 }));
    }

    /// Everybody who waits, sent away: the program stops, or the queue stops blocking.
    pub(crate) fn dismiss(&mut self) -> impl Iterator<Item = Who> {
        self.reserved -= std::mem::take(&mut self.saved);
        if let Some(cycle) = &self.cycle {
            cycle.wait_inside(-(self.inside.len() as i64));
        }
        let inside = std::mem::take(&mut self.inside);
        inside.into_iter().chain(std::mem::take(&mut self.outside)).map(|waiter| waiter.who)
    }

    pub(crate) fn has_waiters(&self) -> bool {
        !self.inside.is_empty() || !self.outside.is_empty()
    }

    pub(crate) fn has_inside_waiters(&self) -> bool {
        !self.inside.is_empty()
    }
}
