//! The interface of lanes for their stage: the rules of the plan, and the calls that other queues do not have. A trait
//! object, so that a program without keys compiles no lanes for its events: a [`LaneQueue`] is made only where a stage is
//! given its keys.
//! Before: `queue`. After: the files of this folder, which do it.

use std::num::NonZeroUsize;
use std::time::Duration;

use comporta_model::chunk::Chunk;
use comporta_model::column::{Columns, Lanes};
use comporta_model::event::{Meta, Time};
use comporta_model::keyed::LaneRef;

use super::progress::HandedOn;
use super::watermark::{Origin, Watermark};
use super::{Call, Doom, LaneQueue};
use crate::snapshot::EventTimeSnapshot;
use crate::stage::queue::{EventQueue, Turn};
use crate::sync::Arc;

/// What the plan says of the lanes of a stage.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LaneRules {
    /// Events that one key may have in the queue.
    pub(crate) lane_max: Option<NonZeroUsize>,
    /// For how long state is kept that no event has asked for.
    pub(crate) idle: Option<Duration>,
    /// Keys without events whose state is kept.
    pub(crate) keys_max: Option<NonZeroUsize>,
    /// A failed event holds its lane until it is replayed or taken away.
    pub(crate) holds: bool,
    /// Its handlers wait.
    pub(crate) waits: bool,
}

impl LaneRules {
    /// Whether a visit takes one event of a lane at most: what comes after it may have to wait for it.
    pub(super) fn one_each(&self) -> bool {
        self.holds || self.waits
    }
}

/// Declares the trait, and has the queue do it by methods of the same names.
macro_rules! asked {
    ($(fn $name:ident($($arg:ident: $of:ty),*) $(-> $back:ty)?;)*) => {
        /// See the methods of [`LaneQueue`].
        pub(crate) trait LanesAsked<T> {
            $(fn $name(&mut self $(, $arg: $of)*) $(-> $back)?;)*
        }

        impl<T: Send> LanesAsked<T> for LaneQueue<T> {
            $(fn $name(&mut self $(, $arg: $of)*) $(-> $back)? {
                LaneQueue::$name(self $(, $arg)*)
            })*
        }
    };
}

asked! {
    fn rules() -> LaneRules;
    fn take_spare() -> Option<Columns>;
    fn take_rejected() -> Option<Chunk<T>>;
    fn take_retired() -> Vec<LaneRef>;
    fn take_resting() -> Vec<LaneRef>;
    fn queued_of(lane: &LaneRef) -> usize;
    fn waiting() -> usize;
    fn sort();

    fn take_lanes(into: &mut Lanes);
    fn skip_lanes();
    fn marks_of(turn: Turn, into: &mut Vec<Time>);
    fn doom(turn: Turn) -> Option<Doom>;
    fn detach(turn: Turn, left: usize) -> Turn;
    fn shed_of(turn: Turn, shed: &mut dyn Iterator<Item = bool>);
    fn put_back_of(turn: Turn, chunk: Chunk<T>, retry: Option<(Time, u32)>);

    fn hold(lane: &LaneRef) -> bool;
    fn release(lane: &LaneRef);
    fn replay(lane: &LaneRef, meta: &Meta, own: Columns, event: T);
    fn give_up();
    fn close(lane: &LaneRef) -> Option<Turn>;
    fn reopen(turn: Turn);

    fn arm() -> Option<Time>;
    fn ring(now: Time);
    fn take_due(turn: Option<Turn>) -> Option<Call>;

    fn from(origin: Origin);
    fn input_ended(origin: Origin, now: Time);
    fn event_time() -> Option<EventTimeSnapshot>;
    fn take_handed_on() -> bool;
}

/// Makes the queue of a keyed stage.
pub(crate) type KeyedQueue<T> = fn(LaneRules, Option<EventTimeParts>) -> Box<dyn EventQueue<T>>;

/// How far event time has come, and whom that is handed on to.
pub(crate) type EventTimeParts = (Watermark, Arc<HandedOn>);

/// See [`KeyedQueue`].
pub(crate) fn keyed_queue<T: Send + 'static>(
    rules: LaneRules,
    event_time: Option<EventTimeParts>,
) -> Box<dyn EventQueue<T>> {
    let queue = LaneQueue::new(rules);
    match event_time {
        None => Box::new(queue),
        Some((watermark, out)) => Box::new(queue.with_event_time(watermark, out)),
    }
}
