//! Lanes that no visit may have: those held by an event that failed, until it is replayed or taken away, and those that
//! somebody outside looks at.
//! Before: `visits`, in which an event fails. After: `mod.rs`, where lanes that are open again stand in line.
//! Invariant: a lane that is held is not ready, and events of a lane that was given up fail as they are.

use comporta_model::column::Columns;
use comporta_model::event::{Meta, Time};
use comporta_model::keyed::LaneRef;

use super::events::With;
use super::place::Place;
use super::watermark::Watermark;
use super::{LaneQueue, Ready};
use crate::stage::queue::{Side, Turn};

impl<T: Send> LaneQueue<T> {
    /// A failed event holds its lane, which a visit has. Returns `false` if the lane was given up.
    pub(crate) fn hold(&mut self, lane: &LaneRef) -> bool {
        let at = self.place_of(lane);
        let place = self.place(at);
        debug_assert!(place.turn.is_some(), "a visit has the lane of an event that fails");
        place.held = !place.given_up;
        place.held
    }

    /// A lane is not held any more.
    pub(crate) fn release(&mut self, lane: &LaneRef) {
        let at = self.place_of(lane);
        self.place(at).held = false;
        self.look_at(at, Side::Newest);
    }

    /// Puts an event that failed, and held its lane, at the front of the lane again.
    pub(crate) fn replay(&mut self, lane: &LaneRef, meta: &Meta, own: Columns, event: T) {
        let at = self.place_of(lane);
        let shared = self.events.open(meta);
        let own = Some(own).filter(|own| !own.is_empty());
        let mark = self.watermark.as_ref().map_or(Time::ZERO, Watermark::at);
        self.hold_time(mark);
        let lane_of_event = Some(lane.clone());
        self.link_first(at, event, With { lane: lane_of_event, meta: shared, own, mark });
        self.events.close(shared);
        self.place(at).given_up = false; // whoever replays it wants what comes behind it, too
        self.release(lane);
    }

    /// No more events will come, or none can, and nobody is at work: if all that is left stands in lanes that are held, it
    /// fails, and so does what still comes to these lanes.
    pub(crate) fn give_up(&mut self) {
        let held = |place: &&mut Place| place.held;
        if !self.rules.holds || self.events.len() == 0 || self.ready_work > 0 {
            return;
        }
        let places = self.places.iter();
        if places.map(|place| if place.held { place.events.len() } else { 0 }).sum::<usize>()
            < self.events.len()
        {
            return; // some wait to be tried again
        }
        for place in self.places.iter_mut().filter(held) {
            (place.held, place.given_up) = (false, true);
        }
        for at in 0..self.places.len() {
            if self.places[at].lane.is_some() {
                self.look_at(at, Side::Newest);
            }
        }
    }

    /// Closes a lane for somebody who is no visit, unless a visit has it.
    pub(crate) fn close(&mut self, lane: &LaneRef) -> Option<Turn> {
        self.dissolve();
        let at = self.place_of(lane);
        if self.place(at).turn.is_some() {
            return None;
        }
        self.lent += 1;
        let turn = self.new_turn();
        self.add_lane(turn, at);
        let place = self.place(at);
        if std::mem::take(&mut place.ready) {
            let work = place.work();
            self.ready_work -= work;
            self.ready_lanes -= 1;
            self.ready.retain(|ready| *ready != Ready::Lane(at));
        }
        Some(turn)
    }

    /// Whoever had a lane [closed](Self::close) is done with it.
    pub(crate) fn reopen(&mut self, turn: Turn) {
        self.lent -= 1;
        self.end_visit(turn);
    }
}
