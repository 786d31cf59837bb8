//! What a stage asks of its lanes beside what it asks of every queue. A trait object, so that a program without keys does not
//! compile lanes for the types of its events: [`LaneQueue`] is made where a stage is given its keys, and nowhere else.
//! Before: `queue`. After: the files of this folder, which do it.

use comporta_model::chunk::Chunk;
use comporta_model::column::{Columns, Lanes};
use comporta_model::event::{Meta, Time};
use comporta_model::keyed::LaneRef;

use super::watermark::Origin;
use super::{Call, Doom, LaneQueue, LaneRules};
use crate::snapshot::EventTimeSnapshot;
use crate::stage::queue::Turn;

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
