//! The parts of the model: nodes, operators and replicas as they are at a moment. Made by `build`.
//!
//! With a thousand nodes it is memory that takes the time. So parts are small, lie in few lines of the cache, and
//! what operators have in common is there once; what there may be several of is a range of one vector of the model.

use std::collections::{HashSet, VecDeque};
use std::ops::Range;

use comporta_placement::{NodeState, Resource, Usage};
use comporta_stats::Dice;

use super::NS;
use super::mail::Queue;
use super::policy::NodePolicy;
use crate::rates::{Arrivals, Rates};
use crate::scenario::{Service, Window};

/// A copy of an event on its way. Moments are true ones; the clocks that wrote them down are kept beside.
///
/// Replicas must agree on what an event is called although they handle events in different orders. So it is called after what
/// led to it: a stream is a way from a source, or from an operator with windows, and the event keeps its number in it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Message {
    /// The number within its stream.
    pub(super) number: u32,
    /// Its stream: among those of the sender while it travels, among those of the receiver from there on.
    pub(super) stream: u32,
    /// The replica that sent it.
    pub(super) sender: u32,
    /// Which of all messages to its receiver it is.
    pub(super) ticket: u32,
    /// When it entered the system.
    pub(super) entered: u64,
    /// When it, or what it was made of, left the operator before the sender, and on which node.
    pub(super) before: (u64, u32),
    /// When it left the sender, and on which node.
    pub(super) sent: (u64, u32),
}

/// One direction of a network interface.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    free_at: u64,
    /// Bytes of this second.
    pub(super) bytes: f64,
    ns_per_byte: f64,
}

impl Line {
    pub(super) fn new(bytes_per_s: f64) -> Self {
        Line { free_at: 0, bytes: 0.0, ns_per_byte: NS / bytes_per_s }
    }

    /// When bytes that come at this moment have passed.
    pub(super) fn pass(&mut self, at: u64, bytes: f64) -> u64 {
        self.bytes += bytes;
        let takes = (bytes * self.ns_per_byte).round() as u64;
        self.free_at = self.free_at.max(at).saturating_add(takes);
        self.free_at
    }
}

/// A core of a node.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Core {
    /// Since when it has been busy, or has been asked how long it was.
    pub(super) since: u64,
    /// How long in this second.
    pub(super) busy: u64,
}

/// A node. In the order in which events need it.
#[derive(Debug)]
#[repr(C)]
pub(super) struct NodePart {
    pub(super) out: Line,
    pub(super) into: Line,
    /// Bytes that others hold, and replicas, queues included.
    pub(super) memory_used: f64,
    /// A bit for each core that is free.
    pub(super) free: u64,
    /// Replicas that have events and may begin one, each once.
    pub(super) ready: VecDeque<u32>,
    /// Chooses among them; they take turns without one.
    pub(super) policy: Option<Box<NodePolicy>>,
    pub(super) speed: f64,
    /// Cores that others use now.
    pub(super) background: f64,
    /// Its first core among those of the model.
    pub(super) first_core: u32,
    pub(super) cores: u32,
    /// Events on cores that copy in memory, and share its bandwidth.
    pub(super) copying: u32,
    pub(super) state: NodeState,
    pub(super) disk_free_at: u64,
}

impl NodePart {
    /// Its cores among those of the model.
    pub(super) fn cores(&self) -> Range<usize> {
        self.first_core as usize..(self.first_core + self.cores) as usize
    }
}

/// An operator that events come from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Input {
    pub(super) operator: u32,
    /// The place of its first stream among those of the receiver.
    pub(super) first: u32,
    /// The place of its first stream in the receiver's windows of sequence numbers; `None` if there is one copy only.
    pub(super) seen: Option<u32>,
    /// The receiver is the first that takes its events: its latency is measured there.
    pub(super) is_measured: bool,
}

/// What operators that are alike have in common: what the scenario says of them that an event needs.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct OperatorKind<'s> {
    /// Of a source.
    pub(super) rates: Option<&'s Rates>,
    pub(super) arrivals: Arrivals,
    pub(super) cost_ns: f64,
    pub(super) service: Service,
    pub(super) window: Option<Window>,
    pub(super) fails: f64,
    /// Bytes that an event copies in memory.
    pub(super) copies_bytes: f64,
    pub(super) event_bytes: f64,
    /// Bytes of an event that arrives, for queues and windows.
    pub(super) input_bytes: f64,
    pub(super) is_sink: bool,
    /// Whether events go to the disk after they were computed.
    pub(super) uses_disk: bool,
    /// Whether events need neither a core, nor the disk, nor memory to be copied in.
    pub(super) takes_nothing: bool,
}

impl OperatorKind<'_> {
    /// Events that a replica keeps for its next window when it has handled so many.
    pub(super) fn held(&self, count: u32) -> u32 {
        self.window.map_or(0, |window| window.held(count))
    }
}

/// An operator.
#[derive(Debug)]
pub(super) struct OperatorPart {
    /// Its kind among those of the model.
    pub(super) kind: u32,
    /// Its first replica, which sinks count at and latency is measured at.
    pub(super) first: u32,
    /// Every replica of every operator that follows, among the receivers of the model.
    pub(super) receivers: Range<u32>,
    /// By their operators, in order, among the inputs of the model.
    pub(super) inputs: Range<u32>,
    pub(super) copies: u32,
    /// Streams that it sends.
    pub(super) streams: u32,
    /// Streams that come to it in copies.
    pub(super) seen: u32,
    /// Operators before it, on the longest way.
    pub(super) depth: u32,
}

impl OperatorPart {
    /// Its replicas, which were made one after another.
    pub(super) fn replicas(&self) -> Range<u32> {
        self.first..self.first + self.copies
    }
}

/// The input that events of an operator come from.
pub(super) fn input(inputs: &[Input], from: impl FnOnce() -> u32) -> Input {
    match *inputs {
        [only] => only,
        _ => {
            let from = from();
            let place = inputs.binary_search_by_key(&from, |input| input.operator);
            inputs[place.expect("an event comes from an input")]
        }
    }
}

/// What a replica did in this second. What every event counts comes first.
#[derive(Clone, Debug, Default)]
#[repr(C)]
pub(super) struct Counters {
    pub(super) arrived: u32,
    pub(super) handled: u32,
    pub(super) emitted: u32,
    since: u64,
    pub(super) busy_ns: f64,
    pub(super) received: f64,
    pub(super) sent: f64,
    waiting_ns: f64,
    pub(super) read: f64,
    pub(super) written: f64,
    /// Sums of latencies by the nodes whose clocks wrote down the two moments: from, to, ns, events.
    pub(super) latencies: Vec<(u32, u32, f64, f64)>,
}

impl Counters {
    /// Of a second, or what is left of one, that begins now.
    pub(super) fn since(now: u64) -> Self {
        Counters { since: now, ..Counters::default() }
    }

    /// What was used of the disk in this second, and how many events waited for it.
    pub(super) fn disk_use(&self) -> Usage {
        Usage::new()
            .with(Resource::IoWait, self.waiting_ns / NS)
            .with(Resource::DiskRead, self.read)
            .with(Resource::DiskWritten, self.written)
    }
}

/// A replica. In the order in which an event needs it: two lines of the cache, and a third for latencies and the disk.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct ReplicaPart {
    pub(super) operator: u32,
    pub(super) node: u32,
    /// How often it has migrated: messages to an old place are dropped.
    pub(super) epoch: u32,
    /// Messages that were sent to it, and those of them that are on their way.
    pub(super) tickets: u32,
    pub(super) in_flight: u32,
    pub(super) parallel: u32,
    /// Events on cores, and at the disk.
    pub(super) running: u32,
    pub(super) waiting: u32,
    pub(super) queue: Queue,
    pub(super) is_ready: bool,
    pub(super) migrating: Option<Box<super::migration::Migrating>>,
    /// Messages that came to its old place before it migrated, and whose other copy has not come here. `None` if there are none.
    #[expect(
        clippy::box_collection,
        reason = "it is nearly always `None`, and lies among what every event needs"
    )]
    pub(super) came_before: Option<Box<HashSet<u32>>>,
    pub(super) dice: Dice,
    /// Events that a source has sent, or an operator with windows has handled.
    pub(super) count: u32,
    /// Its first window of sequence numbers among those of the model.
    pub(super) seen: u32,
    pub(super) counters: Counters,
}

const _: () = assert!(size_of::<ReplicaPart>() == 3 * 64, "it fills whole lines of the cache");

impl ReplicaPart {
    pub(super) fn is_paused(&self) -> bool {
        self.migrating.as_ref().is_some_and(|migrating| migrating.is_paused())
    }

    /// Returns `true` if this is the second copy of a message that came to the old place. While a migration
    /// is under way, takes note of the first.
    pub(super) fn came_before_migration(&mut self, ticket: u32) -> bool {
        if let Some(migrating) = &mut self.migrating {
            migrating.came_to_old_place(ticket);
        }
        self.came_before.as_mut().is_some_and(|came| came.remove(&ticket))
    }

    /// Takes what it did in this second; the next begins now.
    pub(super) fn take_counters(&mut self, now: u64) -> Counters {
        self.settle(now);
        std::mem::replace(&mut self.counters, Counters::since(now))
    }

    /// Brings the times of the counters up to now.
    pub(super) fn settle(&mut self, now: u64) {
        let passed = (now - self.counters.since) as f64;
        self.counters.busy_ns += passed * f64::from(self.running);
        if self.waiting > 0 {
            self.counters.waiting_ns += passed * f64::from(self.waiting);
        }
        self.counters.since = now;
    }
}
