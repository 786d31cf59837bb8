//! Which events a visit takes: one or more of each lane in its share of those that are ready, in rounds.
//! Before: `mod.rs`, where the lanes stand in line. After: `visits`.
//! Invariant: no lane is served twice while another that was ready before has not been served.

use comporta_model::chunk::Chunk;
use comporta_model::event::Meta;

use super::events::Unlinked;
use super::{LaneQueue, Ready};
use crate::stage::queue::{Taken, Turn, Want};

/// How far apart events of one visit may have come. They share the times of the oldest, so that batches stay whole
/// behind a backlog; where handlers are slow, visits take one event and nothing is shared.
pub(super) const SPREAD_NS: u64 = 10_000_000;
/// The same with an admission controller, which decides by waiting times.
pub(super) const GUARDED_SPREAD_NS: u64 = 1_000_000;

/// A visit takes at least this part of its stride, however many others could run beside it: lanes of quick handlers
/// are cheaper together than side by side.
const SHARE_OF_STRIDE: usize = 16;

/// A visit that has begun to take events.
struct Begun<T> {
    turn: Turn,
    chunk: Chunk<T>,
    /// It takes no other lane.
    alone: bool,
    /// Which try at the first event it is.
    attempt: u32,
}

impl<T: Send> LaneQueue<T> {
    /// The number of threads has changed: those with most to do come first.
    pub(crate) fn sort(&mut self) {
        self.dissolve();
        let work = |ready: &Ready| match ready {
            Ready::Lane(at) => self.places[*at].work(),
            Ready::Fresh(_) => 0, // there are none
        };
        let mut ready = std::mem::take(&mut self.ready);
        ready.make_contiguous().sort_by_key(|ready| std::cmp::Reverse(work(ready)));
        self.ready = ready;
    }

    /// The events of a visit: those of its share of the ready lanes.
    pub(super) fn take_round(&mut self, want: Want) -> Option<Taken<T>> {
        self.now = self.now.max(want.now);
        self.skip_empty();
        self.again.clear();
        self.lanes.clear();
        let share = self.ready_lanes.div_ceil(want.side_by_side.max(1));
        let share = share.max(want.max / SHARE_OF_STRIDE);
        let Begun { turn, mut chunk, alone, attempt } = self.begin(want.max, share)?;
        let lanes = if alone { 1 } else { share };
        let mut taken = chunk.len();
        while taken < lanes && chunk.len() < want.max && (taken == 0 || self.joins(&chunk)) {
            let max = want.max - chunk.len();
            if let Some(at) = self.pop_ready() {
                self.serve(at, 1, max, turn, &mut chunk);
                taken += 1;
            } else {
                let n = self.join_fresh(turn, max.min(lanes - taken), &mut chunk);
                if n == 0 {
                    break;
                }
                taken += n;
            }
        }
        if self.ready.is_empty() && !alone && !self.rules.one_each() {
            self.serve_rounds(turn, want.max, &mut chunk);
        }
        Some(Taken { chunk, turn, attempt })
    }

    /// What a visit begins with: the fresh turn that stands first in line, or nothing yet.
    fn begin(&mut self, max: usize, lanes: usize) -> Option<Begun<T>> {
        if let Some((turn, _)) = self.first_fresh() {
            let (turn, chunk) = self.take_fresh(turn, max, lanes)?;
            return Some(Begun { turn, chunk, alone: false, attempt: 1 });
        }
        let first = self.first_ready()?;
        let (event, alone, attempt) = (first.events.first()?, first.is_alone(), first.attempt);
        let chunk = self.events.chunk_for(event);
        Some(Begun { turn: self.new_turn(), chunk, alone, attempt })
    }

    /// Takes events of a lane that stands in no line and belongs to `turn` from now on: as many as its weight, for so many
    /// rounds, and no more than `max`.
    #[inline]
    fn serve(&mut self, at: usize, rounds: usize, max: usize, turn: Turn, chunk: &mut Chunk<T>) {
        let timed = self.watermark.is_some();
        let LaneQueue { rules, places, events, turns, again, lanes, .. } = self;
        let place = &mut places[at];
        let share = if rules.one_each() || place.is_alone() { 1 } else { place.weight as usize };
        let visit = &mut turns[turn.index()];
        place.turn = Some(turn);
        for _ in 0..share.saturating_mul(rounds).min(max) {
            let Some(first) = place.events.first() else { break };
            place.attempt = 1;
            place.out += 1;
            let Unlinked { lane, mark } = events.unlink(first, &mut place.events, chunk);
            visit.push(at, timed.then_some(Some(mark)));
            lanes.push(lane);
        }
        if place.events.len() > 0 {
            again.push(at);
        }
    }

    /// Nobody else waits: further rounds of the lanes that a visit has.
    fn serve_rounds(&mut self, turn: Turn, max: usize, chunk: &mut Chunk<T>) {
        let mut round = std::mem::take(&mut self.round);
        while !self.again.is_empty() && chunk.len() < max {
            std::mem::swap(&mut round, &mut self.again);
            let rounds = if round.len() == 1 { max } else { 1 }; // one that is alone has them all at once
            for at in round.drain(..) {
                self.serve(at, rounds, max - chunk.len(), turn, chunk);
            }
        }
        self.round = round;
    }

    /// Whether a visit that has begun with these events may take the lane that is ready next too.
    #[inline]
    fn joins(&self, chunk: &Chunk<T>) -> bool {
        if let Some((_, fresh)) = self.first_fresh() {
            return self.is_near(&fresh.meta, chunk);
        }
        let next = self.first_ready().filter(|place| !place.is_alone());
        next.and_then(|place| place.events.first()).is_some_and(|first| {
            if self.events.is_alike(first) {
                return true;
            }
            self.is_near(self.events.meta(first), chunk)
        })
    }

    /// Whether events that share this may be mixed with those of a chunk.
    fn is_near(&self, meta: &Meta, chunk: &Chunk<T>) -> bool {
        let apart = meta.enqueued.as_nanos().abs_diff(chunk.meta.enqueued.as_nanos());
        meta.tier == chunk.meta.tier && apart <= self.spread_ns
    }
}
