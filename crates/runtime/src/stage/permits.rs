//! Hop 2, admit: who may enter a queue. Decides how many of the events that arrive enter, and what
//! becomes of the others; holds those who wait for room, first in first out.
//! Before: `inlet`, under whose lock all of this happens. After: `queue`.
//!
//! Invariants: `queued + reserved <= capacity`, unless the capacity was lowered below them or a visit
//! put back what it did not come to; room is granted to those who wait before anyone else gets some;
//! whoever leaves room while others wait passes it on.
//!
//! The room of a queue is not divided among its senders: less would be held in outboxes, but visits would
//! shrink to one event where many senders lead to one queue. Senders outside a cycle are woken when a quarter
//! is free: woken for every place, sender and worker would switch every few events, and a queue that is full
//! once would stay full at half of the load that the program can do.

use comporta_model::plan::WhenFull;

use crate::cycle::Cycle;
use crate::effects::Effects;
use crate::path::line::{Line, Place, Waiter};
use crate::path::outlet::{Refusal, Reserved, Standing};
use crate::sync::Arc;

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
    /// Its key had as many events as the plan's `lane_max` allows.
    LaneFull,
    /// Nobody waits for it any more: the request that it belongs to was dropped, or its deadline passed; or its sender no
    /// longer waits for room, since its time was up or its future was dropped.
    Abandoned,
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
    pub const ALL: [Shed; 17] = [
        Shed::Rejected,
        Shed::Newest,
        Shed::Oldest,
        Shed::Disabled,
        Shed::Cycle,
        Shed::Ended,
        Shed::LaneFull,
        Shed::Abandoned,
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
            Shed::LaneFull => "lane-full",
            Shed::Abandoned => "abandoned",
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

    /// Whether it was an admission controller, on arrival or later; the other reasons are of one
    /// kind each.
    #[must_use]
    pub fn is_admission(self) -> bool {
        self as usize >= Shed::Capacity as usize
    }

    /// The reason of that name.
    pub(crate) fn named(name: &str) -> Option<Shed> {
        Shed::ALL.into_iter().find(|reason| reason.name() == name)
    }

    /// By the admission controller of that name.
    pub(crate) fn by(controller: &str) -> Shed {
        let named = |reason: &Shed| reason.is_admission() && reason.name() == controller;
        Shed::ALL.into_iter().find(named).unwrap_or(Shed::Admission)
    }
}

/// Who may enter a queue, and who waits to.
pub(super) struct Permits {
    capacity: usize,
    when_full: WhenFull,
    disabled: bool,
    /// Places promised: to callers that are about to send, to waiters that were granted some, and to
    /// those that are still to be.
    reserved: usize,
    /// Of these, places kept for the line until they are worth a wake-up.
    saved: usize,
    /// Its stage waits until a group is complete, and that may take the last of its places.
    grouped: bool,
    /// Those who wait and belong to the cycle of this queue, and the others.
    inside: Line,
    outside: Line,
    /// Somebody has joined a line or left it since this was last asked.
    line_changed: bool,
    cycle: Option<Arc<Cycle>>,
    /// Whether there is nothing to pass on and nothing to tell: see [`is_quiet`](Self::is_quiet).
    quiet: bool,
}

/// What was decided about `n` events.
pub(super) struct Verdict {
    /// So many enter.
    pub(super) enter: usize,
    /// What becomes of the others.
    pub(super) rest: Rest,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rest {
    /// They wait with their sender.
    Waits,
    Shed(Shed),
    /// All enter, and then the oldest leave until what is queued fits.
    Oldest,
}

impl Permits {
    pub(super) fn new(
        capacity: usize,
        when_full: WhenFull,
        cycle: Option<Arc<Cycle>>,
        grouped: bool,
    ) -> Self {
        Permits {
            capacity,
            when_full,
            disabled: false,
            reserved: 0,
            saved: 0,
            grouped,
            inside: Line::default(),
            outside: Line::default(),
            line_changed: false,
            quiet: cycle.is_none(),
            cycle,
        }
    }

    #[inline]
    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }

    pub(super) fn set_capacity(&mut self, capacity: usize) {
        self.capacity = capacity;
    }

    pub(super) fn set_when_full(&mut self, when_full: WhenFull) {
        self.when_full = when_full;
    }

    pub(super) fn is_disabled(&self) -> bool {
        self.disabled
    }

    /// Shuts the queue, or opens it. Who waits is seen to by [`pass_on`](Self::pass_on).
    pub(super) fn set_disabled(&mut self, disabled: bool) {
        self.disabled = disabled;
        self.note_quiet();
    }

    /// Whether nobody waits, no place is kept for anybody, the queue is open and belongs to no cycle: then
    /// [`pass_on`](Self::pass_on) has nothing to do, and [`room`](Self::room) is the hint.
    #[inline]
    pub(super) fn is_quiet(&self) -> bool {
        debug_assert!(!self.quiet || self.finds_quiet(), "somebody waits, and nobody looks");
        self.quiet
    }

    /// After every change of what decides it.
    fn note_quiet(&mut self) {
        self.quiet = self.finds_quiet();
    }

    fn finds_quiet(&self) -> bool {
        let still = self.saved == 0 && !self.has_waiters() && !self.line_changed;
        still && !self.disabled && self.cycle.is_none()
    }

    /// Places that are free while all is [quiet](Self::is_quiet).
    #[inline]
    pub(super) fn room(&self, queued: usize) -> usize {
        self.capacity.saturating_sub(queued + self.reserved)
    }

    /// Whether a sender belongs to the same cycle as this queue.
    #[inline]
    pub(super) fn is_inside(&self, place: &Place) -> bool {
        match (&self.cycle, place.stage()) {
            (Some(cycle), Some(stage)) => cycle.stages.binary_search(&stage).is_ok(),
            _ => false,
        }
    }

    /// Places free for a sender: one fewer for one that enters a cycle, so that a bubble remains.
    #[inline]
    fn free(&self, queued: usize, inside: bool) -> usize {
        let bubble = usize::from(self.cycle.is_some() && !inside && self.capacity > 1);
        self.capacity.saturating_sub(queued + self.reserved + bubble)
    }

    /// Free to those who do not wait: nothing, while others do.
    #[inline]
    fn free_now(&self, queued: usize, inside: bool) -> usize {
        let line = if inside { &self.inside } else { &self.outside };
        if line.is_empty() { self.free(queued, inside) } else { 0 }
    }

    /// What a sender that asks for no lock is told of the room there is.
    #[inline]
    pub(super) fn hint(&self, queued: usize) -> usize {
        if self.disabled { usize::MAX } else { self.free_now(queued, false) }
    }

    /// Places that nobody has been promised.
    pub(super) fn unpromised(&self, queued: usize) -> usize {
        self.free(queued, true)
    }

    /// How many events are queued beyond what fits beside the places promised.
    pub(super) fn surplus(&self, queued: usize) -> usize {
        (queued + self.reserved).saturating_sub(self.capacity).min(queued)
    }

    /// Decides about `n` events, by the rule of the way they came, or of the queue.
    #[inline]
    pub(super) fn admit(
        &self,
        queued: usize,
        n: usize,
        inside: bool,
        rule: Option<WhenFull>,
    ) -> Verdict {
        if self.disabled {
            return Verdict { enter: 0, rest: Rest::Shed(Shed::Disabled) };
        }
        let (room, rest) = match rule.unwrap_or(self.when_full) {
            WhenFull::Block => (self.free_now(queued, inside), Rest::Waits),
            WhenFull::DropOldest => (n, Rest::Oldest),
            WhenFull::Reject => (self.free(queued, true), Rest::Shed(Shed::Rejected)),
            WhenFull::DropNewest => (self.free(queued, true), Rest::Shed(Shed::Newest)),
        };
        Verdict { enter: n.min(room), rest }
    }

    /// Reserves places for `n` events of a caller outside. More than the queue can ever hold are taken
    /// when it is empty.
    pub(super) fn reserve(
        &mut self,
        queued: usize,
        n: usize,
        rule: Option<WhenFull>,
    ) -> Result<Reserved, Refusal> {
        let rule = rule.unwrap_or(self.when_full);
        if self.disabled || matches!(rule, WhenFull::DropNewest | WhenFull::DropOldest) {
            return Ok(Reserved(0));
        }
        let free = self.free_now(queued, false);
        if free == 0 || (free < n && queued + self.reserved > 0) {
            let rejects = rule == WhenFull::Reject;
            return Err(if rejects { Refusal::Rejected } else { Refusal::Full });
        }
        self.reserved += n;
        Ok(Reserved(n))
    }

    /// Keeps places for events that are on their way back, until they are [released](Self::release).
    pub(super) fn keep(&mut self, places: usize) {
        self.reserved += places;
    }

    /// Gives reserved, granted or kept places back.
    #[inline]
    pub(super) fn release(&mut self, places: usize) {
        self.reserved -= places;
    }

    /// How many of a sender's `waiting` events may enter now, `granted` of which have a place.
    pub(super) fn readmit(
        &mut self,
        queued: usize,
        waiting: usize,
        granted: usize,
        inside: bool,
    ) -> usize {
        self.reserved -= granted;
        waiting.min(granted.max(self.free_now(queued, inside)))
    }

    /// Puts a sender in line.
    pub(super) fn stand(&mut self, place: &Arc<Place>, want: usize) -> Standing {
        let inside = self.is_inside(place);
        if inside && let Some(cycle) = &self.cycle {
            cycle.wait_inside(1);
        }
        self.line_changed = true;
        self.quiet = false;
        let line = if inside { &mut self.inside } else { &mut self.outside };
        Standing { inside, number: line.join(place.clone(), want) }
    }

    /// Takes a sender out of the line; if it was granted room, that is free again.
    pub(super) fn leave(&mut self, place: &Place, standing: Standing) {
        self.line_changed = true;
        self.quiet = false;
        let line = if standing.inside { &mut self.inside } else { &mut self.outside };
        if !line.leave(standing.number) {
            self.reserved -= place.take();
        } else if standing.inside
            && let Some(cycle) = &self.cycle
        {
            cycle.wait_inside(-1);
        }
    }

    /// Grants free places to those who wait. Those outside a cycle are granted some only when a
    /// quarter of the queue is free, or all of it: to wake a sender for each place costs more than
    /// the events. What becomes free until then is kept for them.
    #[inline]
    pub(super) fn pass_on(&mut self, queued: usize, effects: &mut Effects) {
        if self.saved > 0 || self.has_waiters() {
            self.pass_on_to_line(queued, effects);
            self.note_quiet();
        }
    }

    fn pass_on_to_line(&mut self, queued: usize, effects: &mut Effects) {
        if self.disabled {
            self.call_in(effects);
            return;
        }
        while let Some(want) = self.inside.first_wants() {
            let room = self.free(queued, true).min(want);
            if room == 0 {
                return;
            }
            if let (Some(first), Some(cycle)) = (self.inside.pop(), &self.cycle) {
                cycle.activate();
                cycle.wait_inside(-1);
                self.grant(&first, room, effects);
            }
        }
        let Some(want) = self.outside.first_wants() else {
            self.reserved -= std::mem::take(&mut self.saved);
            return;
        };
        let quarter = (self.capacity / 4).max(1);
        let free = self.free(queued, false);
        if self.cycle.is_some() || self.grouped {
            // Nothing is kept from those who go round, nor from a group that is not complete.
            if free < want.min(quarter) {
                return;
            }
        } else if free + self.saved < quarter && queued > 0 {
            self.reserved += free;
            self.saved += free;
            return;
        }
        self.reserved -= std::mem::take(&mut self.saved);
        while let Some(want) = self.outside.first_wants() {
            let room = self.free(queued, false).min(want);
            if room == 0 {
                return;
            }
            if let Some(first) = self.outside.pop() {
                self.grant(&first, room, effects);
            }
        }
    }

    /// The queue is shut: those who wait are woken without a place, and what they hold is shed.
    fn call_in(&mut self, effects: &mut Effects) {
        self.reserved -= std::mem::take(&mut self.saved);
        while let Some(waiter) = self.inside.pop() {
            if let Some(cycle) = &self.cycle {
                cycle.activate();
                cycle.wait_inside(-1);
            }
            self.grant(&waiter, 0, effects);
        }
        while let Some(waiter) = self.outside.pop() {
            self.grant(&waiter, 0, effects);
        }
    }

    /// Grants room to one that has been taken out of the line.
    fn grant(&mut self, waiter: &Waiter, room: usize, effects: &mut Effects) {
        self.line_changed = true;
        self.quiet = false;
        self.reserved += room;
        waiter.place.grant_by(room, effects);
    }

    /// Sends away everybody who waits: the program stops. Returns the callers among them.
    pub(super) fn send_away(&mut self) -> Vec<Arc<Place>> {
        self.reserved -= std::mem::take(&mut self.saved);
        if let Some(cycle) = &self.cycle {
            cycle.wait_inside(-(self.inside.len() as i64));
        }
        let waiting = std::iter::from_fn(|| self.inside.pop().or_else(|| self.outside.pop()));
        let callers = waiting.map(|waiter| waiter.place).filter(|place| place.token().is_none());
        let callers = callers.collect();
        self.note_quiet();
        callers
    }

    #[inline]
    pub(super) fn has_waiters(&self) -> bool {
        !self.inside.is_empty() || !self.outside.is_empty()
    }

    pub(super) fn has_waiters_inside(&self) -> bool {
        !self.inside.is_empty()
    }

    /// Whether somebody has joined a line or left it since this was last asked.
    #[inline]
    pub(super) fn take_line_changed(&mut self) -> bool {
        let changed = std::mem::take(&mut self.line_changed);
        if changed {
            self.note_quiet();
        }
        changed
    }

    /// The stages that those who wait belong to, each as often as it waits.
    pub(super) fn waiting_stages(&self) -> Vec<u32> {
        self.inside.stages().chain(self.outside.stages()).collect()
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;
    use crate::path::ready::{Task, Token};

    #[test]
    fn a_queue_is_quiet_unless_somebody_waits_or_has_yet_to_be_told_of() {
        let mut permits = Permits::new(2, WhenFull::Block, None, false);
        assert!(permits.is_quiet());
        let place = Place::of_task(Token::new(1, Task::Any));
        let standing = permits.stand(&place, 1);
        assert!(permits.take_line_changed() && !permits.is_quiet(), "it waits");
        permits.leave(&place, standing);
        assert!(!permits.is_quiet() && permits.take_line_changed() && permits.is_quiet());
        permits.set_disabled(true);
        assert!(!permits.is_quiet());
    }
}
