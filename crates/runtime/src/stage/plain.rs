//! Hops 6 to 8 of a plain visit in one go: an idle instance takes from the first chunk of the queue, handles that, sends
//! what it emits and settles. Most visits are plain, and what a visit costs is paid for every event where batches are small.
//! Before: `work`, with a token. After: `ready`, for the next visit.
//!
//! A visit is plain if nothing is owed for its events and they carry nothing of their own, it shows none of them in a tray,
//! and its stage is neither keyed, grouped nor waiting, keeps no copies, and has no admission controller. It does what `take`, `handle` and `settle` do then, by the same functions, and leaves out
//! what they would find nothing to do for. As soon as something special shows, they go on from there: with the chunk still
//! in the queue (`take_plain` returns nothing), or with the batch in hand (`run_on`).

use comporta_model::ack::Obligation;
use comporta_model::chunk::Chunk;
use comporta_model::column::{Duties, Duty};
use comporta_model::event::Meta;
use comporta_model::kind::Kind;

use super::handle::{Handling, Instance, Progress, Stop, Tally};
use super::order::Deposited;
use super::pace::QuantumCheck;
use super::queue::{Side, StageQueue};
use super::settle::Settling;
use super::take::{Batch, Rows};
use super::{Rules, Stage, State};
use crate::core::Core;
use crate::effects::{User, Visit};
use crate::failure::Reason;
use crate::sync::Arc;

/// Whether visits to a stage with these rules may be plain.
pub(super) fn suits<H: Kind>(rules: &Rules<H::Item>) -> bool {
    let usual = !H::WAITS && !H::GROUPED && !H::KEYED;
    usual && rules.keys.is_none() && rules.retain.is_none() && !rules.stub
}

/// A plain visit that has begun.
pub(super) struct Begun<H: Kind> {
    instance: Box<Instance<H>>,
    batch: Box<Batch<H::Item>>,
}

impl<H: Kind> Stage<H> {
    /// Whether visits may be plain now: a test may have asked for failures, or give its handlers time.
    #[inline]
    pub(super) fn may_be_plain(&self, core: &Core) -> bool {
        self.plain && (!core.is_tested() || self.may_be_plain_in_test(core))
    }

    #[cold]
    fn may_be_plain_in_test(&self, core: &Core) -> bool {
        !self.has_faults(core) && !core.is_timed(self.id) && !core.visits_at_large()
    }

    /// Handles what was taken, sends what that leads to, and settles.
    #[inline(always)]
    pub(super) fn run_plain(&self, core: &Arc<Core>, begun: Begun<H>, visit: &mut Visit) {
        let Begun { mut instance, mut batch } = begun;
        let meta = &batch.chunk.meta;
        instance.cx.set_attempt(1);
        instance.cx.set_origin(meta.ingress, meta.tier);
        instance.cx.set_free();
        let start = visit.start;
        let user = visit.effects.hand_over(core);
        self.allow(core, &mut instance, &batch);
        let (mut progress, mut check) = (Progress::default(), None);
        let called = if batch.chunk.len() == 1 {
            let mut stop = Stop::Spent;
            let called = user.call(|| match instance.run_one(batch.chunk.slots_mut()) {
                None => progress.at = 1,
                Some(why) => stop = why,
            });
            called.map(|()| stop)
        } else {
            let check = check.insert(instance.check(&batch, start));
            instance.run_chunk(&user, &mut batch.chunk, &mut progress, check, core)
        };
        if matches!(called, Ok(Stop::Spent)) {
            return self.conclude_plain(core, instance, batch, visit);
        }
        let (duty, together) = batch.owed::<H>();
        let check = check.unwrap_or_else(|| instance.check(&batch, start));
        let handling = Handling { duty, together, progress, check, failed_before: 0 };
        self.run_on(core, instance, batch, handling, Some(called), visit);
    }

    /// Begins a visit if it is plain: takes the first chunk of the queue. If it returns nothing, nothing has been done.
    #[inline(always)]
    pub(super) fn take_plain(
        &self,
        core: &Core,
        state: &mut State<H>,
        visit: &mut Visit,
    ) -> Option<Begun<H>> {
        let mut instance = state.instances.take_claimed(visit.home)?;
        let mut batch = instance.hand.take().unwrap_or_default();
        let shared = self.is_shared(state);
        let alone = shared || state.queue.len() == 1;
        let most = if alone { 1 } else { self.takes(state, self.stride(state), visit) };
        let taken = match &mut state.queue {
            StageQueue::Fifo(queue) => queue.pop_free(most, shared, &mut batch.chunk),
            StageQueue::Other(_) => None,
        };
        let Some(events) = taken else {
            instance.hand = Some(batch);
            state.instances.put_claimed(instance);
            return None;
        };
        batch.ticket = None;
        if self.order.is_some() {
            batch.ticket = Some(state.tickets.take());
            batch.alone = state.tickets.are_one() && state.cycle.is_none();
        }
        (batch.from, batch.tally) = (Side::Oldest, Tally::default());
        state.in_flight += events;
        state.counts.visits += 1;
        self.changed(core, state, &mut visit.effects);
        Some(Begun { instance, batch })
    }

    /// All events were handled: sends, settles, and places the instance.
    #[inline(always)]
    fn conclude_plain(
        &self,
        core: &Arc<Core>,
        mut instance: Box<Instance<H>>,
        mut batch: Box<Batch<H::Item>>,
        visit: &mut Visit,
    ) {
        let events = batch.chunk.len();
        let end = core.clock.now();
        (visit.done, visit.end) = (events, Some(end));
        instance.pace.note_ns(end.as_nanos().saturating_sub(visit.start.as_nanos()), events);
        let Meta { ingress, enqueued, tier, .. } = batch.chunk.meta;
        let meta = Meta { ingress, enqueued: end, duty: Duty::default(), tier, home: visit.home };
        instance.spend_plain(&mut batch, events);
        let tally = Tally { handled: events, ..Tally::default() };
        let (spent, fills) = (None, !H::IN_PLACE);
        let Some(ticket) = batch.ticket else {
            let Instance { links, ports, .. } = &mut *instance;
            let sent = links.flush_directly(core, ports, &meta, fills, visit);
            let settling = Settling { meta: &meta, spent, enqueued, tally, sent };
            return self.settle(core, instance, batch, settling, visit);
        };
        let Instance { links, ports, .. } = &mut *instance;
        if batch.alone
            && let Some(sent) = links.flush_all_directly(core, ports, &meta, fills, visit)
        {
            let settling = Settling { meta: &meta, spent, enqueued, tally, sent };
            return self.settle_alone(core, instance, batch, ticket, settling, visit);
        }
        let Some(mut links) = self.begin_release(core, ticket) else {
            let (spent, together) = (Duties::default(), Obligation::default());
            let of = Deposited { tally, meta, spent, together, enqueued };
            return self.conclude_later(core, instance, batch, (ticket, of), visit);
        };
        let sent = links.flush_directly(core, &mut instance.ports, &meta, fills, visit);
        let settling = Settling { meta: &meta, spent, enqueued, tally, sent };
        self.end_release(core, instance, batch, links, settling, visit);
    }
}

impl<H: Kind> Instance<H> {
    /// Handles the one event that there is. Returns why it failed, if it did.
    #[inline(always)]
    fn run_one(&mut self, slots: &mut [Option<H::Item>]) -> Option<Stop> {
        self.handler.as_mut()?.run_one(slots, &mut self.ports, &self.cx)
    }

    /// Handles several events.
    #[inline(never)]
    fn run_chunk(
        &mut self,
        user: &User<'_>,
        chunk: &mut Chunk<H::Item>,
        progress: &mut Progress,
        check: &mut QuantumCheck,
        core: &Core,
    ) -> Result<Stop, Reason> {
        user.call(|| {
            let rows = Rows::default();
            if chunk.len() > check.next() {
                return self.run(chunk, progress, check, rows, None, core);
            }
            self.run_slots(chunk.slots_mut(), &mut progress.at, rows, None).unwrap_or(Stop::Spent)
        })
    }
}
