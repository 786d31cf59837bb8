//! What the runtime asks of a stage, a source or an input, whatever its types.

use std::any::{Any, TypeId};
use std::time::Duration;

use comporta_model::keyed::{AnyKeys, LaneRef};
use comporta_model::plan::WhenFull;
use comporta_policy::KeyLoad;

use crate::core::Core;
use crate::effects::{Effects, Visit};
use crate::failure::Failure;
use crate::gateway::Requests;
use crate::path::ready::Task;
use crate::snapshot::StageSnapshot;
use crate::stage::fail::Fault;
use crate::stage::gate::Controller;
use crate::sync::Arc;

/// A stage, source or input, whatever its types.
pub(crate) trait Node: Send + Sync {
    /// Does what a token stands for.
    fn visit(&self, core: &Arc<Core>, task: Task, visit: &mut Visit);
    /// Makes the instances, or opens the source.
    fn start(&self, core: &Arc<Core>, effects: &mut Effects) -> Result<(), String>;
    /// Its queue, as `Arc<dyn Inlet<Item>>`.
    fn inlet(self: Arc<Self>) -> Box<dyn Any>;
    /// Events in flight were woken.
    fn woken(&self, _: &mut Effects) {}
    /// Takes back what a visit that does not return has not begun.
    fn reclaim(&self, _: &Core, _tray: &dyn Any, _: &mut Effects) {}
    /// Nothing more is to come from outside: for sources and inputs.
    fn close(&self, _: &Core, _: &mut Effects) {}
    /// It was closed and does not return from where it waits for events, if it is a source. Returns
    /// whether the program goes on without it.
    fn leave(&self, _: &Core, _: &mut Effects) -> bool {
        false
    }
    /// One of its producers, `from`, ended.
    fn close_edge(&self, _: &Core, _from: u32, _: &mut Effects) {}
    /// Whether, as far as it is concerned, its cycle may end.
    fn may_finish(&self) -> bool {
        true
    }
    /// If it has seen its last event, its instances finish.
    fn begin_finish(&self, _: &Core, _: &mut Effects) {}
    /// The program stops: what it holds is cancelled.
    fn cancel(&self, effects: &mut Effects);
    /// The program has stopped: what a source has not been reported yet is reported to it, and it is dropped.
    fn farewell(&self, _: &Core, _: &mut Effects) {}
    /// Sheds an event if an instance of its cycle waits for it. Returns whether one did.
    fn break_cycle(&self, _: &Core, _: &mut Effects) -> bool {
        false
    }
    /// Its numbers.
    fn snapshot(&self, name: &str, priority: i32) -> StageSnapshot;
    /// Calls `tell` with those whose instances wait for room in its queue: under its lock, so that later
    /// changes are told later.
    fn with_waiting(&self, tell: &mut dyn FnMut(Vec<u32>)) {
        tell(Vec::new());
    }
    fn set_capacity(&self, _: &Core, _: usize, _: &mut Effects) {}
    /// The least capacity it can have.
    fn capacity_min(&self) -> usize {
        1
    }
    fn set_enabled(&self, _: &Core, _: bool, _: &mut Effects) {}
    fn set_when_full(&self, _: WhenFull) {}
    /// The keys of its events, if it is keyed.
    fn keys(&self) -> Option<&dyn AnyKeys> {
        None
    }
    /// Has its busiest keys counted from now on. Returns `false` if it is not keyed.
    fn count_keys(&self) -> bool {
        false
    }
    /// What its busiest keys did since this was last asked, the busiest first; they are counted from the first time on.
    fn key_loads(&self, _most: usize) -> Vec<KeyLoad> {
        Vec::new()
    }
    /// Calls `call`, which is the program's, with a lane that no visit has meanwhile, and lets go of it. Returns
    /// `false` if a visit has it.
    fn with_lane(
        &self,
        _: &Core,
        _: &mut Option<LaneRef>,
        _call: &mut dyn FnMut(&LaneRef),
        _: &mut Effects,
    ) -> bool {
        false
    }
    /// Waits until visits to lanes are over, or for so long.
    fn wait_for_lane(&self, _: Duration) {}
    /// So many threads may visit it from now on.
    fn threads_changed(&self, _threads: usize) {}
    fn set_controller(&self, _: Option<Controller>) {}
    /// What a policy asks for.
    fn reading(&self) -> Reading;
    fn set_instances(&self, _: &Arc<Core>, _: usize, _: &mut Effects) -> Result<(), String> {
        Ok(())
    }
    fn failures(&self) -> Vec<Failure>;
    /// All failures with their events, as `Vec<(Failure, Option<Item>)>`, if `item` is the type
    /// of its events.
    fn take_failures(&self, _: &Core, _item: TypeId, _: &mut Effects) -> Box<dyn Any> {
        Box::new(())
    }
    fn replay(&self, _: &Core, _: usize, _: &mut Effects) -> usize {
        0
    }
    fn inject(&self, _: Fault) {}
    /// An alarm that it has set.
    fn alarm(&self, _: &Arc<Core>) {}
    /// The open requests, if it is the input of a gateway.
    fn gateway(&self) -> Option<&Arc<Requests>> {
        None
    }
}

/// The numbers of a stage that policies look at.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reading {
    /// Events that are not paired with an instance: in the queue, or taken in a batch whose turn has
    /// not come.
    pub(crate) queued: usize,
    /// Events that came, whatever became of them, but for those that still wait outside; that a
    /// source sent.
    pub(crate) arrived: u64,
    /// Events that were handled, or failed; that a source sent.
    pub(crate) processed: u64,
    /// Those that leave after what they have in hand do not count; 0 if the stage has ended.
    pub(crate) instances: usize,
    /// Those that are not paired with an event.
    pub(crate) free: usize,
    pub(crate) capacity: usize,
    pub(crate) enabled: bool,
    /// Time spent in visits that have ended.
    pub(crate) busy: Duration,
}
