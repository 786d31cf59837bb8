//! Hops 6 to 8 of a plain visit in one go: an idle instance takes the first chunk of the queue, handles it, sends what it
//! emits and settles. Most visits are plain, and what a visit costs is paid for every event where batches are small.
//! Before: `work`, with a token. After: `ready`, for the next visit.
//!
//! A visit is plain if its chunk is taken whole, nothing is owed for its events and they carry nothing of their own, no
//! other instance could have some of them, and its stage is neither keyed, grouped nor waiting, keeps no copies, and has
//! no admission controller. It does what `take`, `handle` and `settle` do then, by the same functions, and leaves out
//! what they would find nothing to do for. As soon as something special shows, they go on from there: with the chunk still
//! in the queue (`take_plain` returns nothing), or with the batch in hand (`run_on`).

use comporta_model::ack::Obligation;
use comporta_model::column::{Duties, Duty};
use comporta_model::event::Meta;
use comporta_model::stage::Handler;

use super::handle::{Handling, Instance, Progress, Stop, Tally};
use super::order::Deposited;
use super::queue::{Side, StageQueue};
use super::settle::Settling;
use super::take::{Batch, Rows};
use super::{Rules, Stage, State};
use crate::core::Core;
use crate::effects::Visit;
use crate::sync::Arc;

/// Whether visits to a stage with these rules may be plain.
pub(super) fn suits<H: Handler>(rules: &Rules<H::Item>) -> bool {
    let usual = !H::WAITS && !H::GROUPED && !H::KEYED && !H::FLUSHES;
    usual && rules.keys.is_none() && rules.retain.is_none() && !rules.stub
}

/// A plain visit that has begun.
pub(super) struct Begun<H: Handler> {
    instance: Box<Instance<H>>,
    batch: Box<Batch<H::Item>>,
}

impl<H: Handler> Stage<H> {
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
        instance.cx.set_duty(&Duty::default());
        let user = visit.effects.hand_over(core);
        let mut check = self.allow(core, &mut instance, &batch, visit.start);
        let (mut progress, mut stop) = (Progress::default(), Stop::Spent);
        let called = user.call(|| {
            let (rows, slots) = (Rows::default(), batch.chunk.slots_mut());
            stop = if slots.len() == 1 || slots.len() <= check.next() {
                instance.run_slots(slots, &mut progress.at, rows, None).unwrap_or(Stop::Spent)
            } else {
                instance.run(&mut batch.chunk, &mut progress, &mut check, rows, None, core)
            };
        });
        if called.is_ok() && matches!(stop, Stop::Spent) {
            self.conclude_plain(core, instance, batch, visit);
        } else {
            let (duty, together) = batch.owed::<H>();
            let handling = Handling { duty, together, progress, check, failed_before: 0 };
            self.run_on(core, instance, batch, handling, Some(called.map(|()| stop)), visit);
        }
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
        let alone = state.queue.len() == 1 || self.is_shared(state);
        let most = if alone { 1 } else { self.takes(state, self.stride(state), visit) };
        let taken = match &mut state.queue {
            StageQueue::Fifo(queue) => queue.pop_free(most, &mut batch.chunk),
            StageQueue::Other(_) => None,
        };
        let Some(events) = taken else {
            instance.hand = Some(batch);
            state.instances.put_claimed(instance);
            return None;
        };
        batch.ticket = self.order.is_some().then(|| state.tickets.take());
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
            return self.settle(core, instance, (batch, None), settling, visit);
        };
        let Some(mut links) = self.begin_release(core, ticket) else {
            let (spent, together) = (Duties::default(), Obligation::default());
            let of = Deposited { tally, meta, spent, together, enqueued };
            return self.conclude_later(core, instance, (batch, None), (ticket, of), visit);
        };
        let sent = links.flush_directly(core, &mut instance.ports, &meta, fills, visit);
        let settling = Settling { meta: &meta, spent, enqueued, tally, sent };
        self.end_release(core, instance, (batch, None), links, settling, visit);
    }
}
