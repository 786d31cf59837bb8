//! Part of hop 8: what a visit did not come to is queued again, where it was taken; its emptied storage is kept.
//! Used by `settle`, and by the clock for a visit that does not return (`reclaim`).
//! Invariant: everything here runs under the stage's lock, so that it is back before the visit can be over.

use comporta_model::ack::Fate;
use comporta_model::chunk::{Chunk, Slots};
use comporta_model::event::Time;
use comporta_model::kind::Kind;

use super::queue::{Side, Turn};
use super::take::Batch;
use super::tray::Tray;
use super::{Phase, Stage, State};
use crate::core::Core;
use crate::effects::Visit;

impl<H: Kind> Stage<H> {
    /// What a visit did not come to is queued again, where it was taken: what it has in hand, and what is left in its tray.
    /// Returns its batch, which is empty.
    #[inline(always)]
    pub(super) fn put_back(
        &self,
        state: &mut State<H>,
        mut batch: Box<Batch<H::Item>>,
        visit: &mut Visit,
    ) -> Box<Batch<H::Item>> {
        if H::WAITS {
            state.flights.release(std::mem::take(&mut batch.slots));
        }
        if batch.tray.is_some() || !batch.chunk.is_empty() {
            self.put_all_back(state, &mut batch, visit);
        } else if batch.chunk.has_storage() {
            self.keep_storage(state, batch.chunk.take_storage(), visit);
        }
        batch
    }

    #[inline(always)]
    fn keep_storage(&self, state: &mut State<H>, storage: Slots<H::Item>, visit: &mut Visit) {
        if let Some(storage) = visit.cache.put(storage) {
            state.queue.recycle(storage);
        }
    }

    #[cold]
    fn put_all_back(&self, state: &mut State<H>, batch: &mut Batch<H::Item>, visit: &mut Visit) {
        let back = Back { from: batch.from, turn: batch.turn, retry: batch.retry.take() };
        // The last first: each goes before what is there.
        if let Some(mut rest) = batch.tray.take().and_then(|tray| tray.take_rest()) {
            self.put_chunk_back(state, &mut rest, Back { retry: None, ..back }, visit);
        }
        self.put_chunk_back(state, &mut batch.chunk, back, visit);
    }

    fn put_chunk_back(
        &self,
        state: &mut State<H>,
        chunk: &mut Chunk<H::Item>,
        back: Back,
        visit: &mut Visit,
    ) {
        if chunk.is_empty() {
            if chunk.has_storage() {
                self.keep_storage(state, chunk.take_storage(), visit);
            }
            return;
        }
        let chunk = chunk.take();
        let n = chunk.len();
        state.in_flight -= n;
        if state.phase == Phase::Cancelled {
            state.counts.cancelled += n as u64;
            chunk.settle(Fate::Cancelled);
            visit.effects.discard_events(&mut chunk.into_events());
        } else {
            match (back.retry, state.queue.as_lanes()) {
                (Some(_), Some(lanes)) => lanes.put_back_of(back.turn, chunk, back.retry),
                _ => state.queue.put_back(chunk, back.from, back.turn),
            }
        }
    }

    /// Takes back what a visit whose handler does not return has not begun: under the lock, so that it is
    /// back before the visit can be over.
    pub(super) fn reclaim(&self, core: &Core, tray: &Tray<H::Item>, visit: &mut Visit) {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        let Some(mut rest) = tray.take_rest() else { return };
        let back = Back { from: tray.from(), turn: tray.turn(), retry: None };
        self.put_chunk_back(state, &mut rest, back, visit);
        self.changed(core, state, &mut visit.effects);
    }
}

/// How events are put back.
#[derive(Clone, Copy)]
struct Back {
    from: Side,
    turn: Turn,
    retry: Option<(Time, u32)>,
}
