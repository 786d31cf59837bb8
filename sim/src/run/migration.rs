//! The five steps of a migration (section 3.2.2). Replica x goes from node a to node b, as y.
//!
//! 1. y is created on b; what is sent to x is sent to y too.
//! 2. y queues; x works on, until it is done with all that y was not sent.
//! 3. x is paused: it begins nothing. Where windows tumble that is at the end of one, when there is no state, unless that
//!    takes longer than `PATIENCE_S`.
//! 4. When the events that x had begun are done, its state and its windows of sequence numbers travel to b.
//! 5. y drops what x did and begins; x is removed.
//!
//! y's queue holds every event that x has queued, and those that came to b first. So step 5 takes x's
//! queue for y's, with what only y has: no event is lost, none is handled twice.

use std::collections::HashSet;

use comporta_placement::{NodeId, ReplicaId};

use super::parts::{Counters, Message};
use super::{Happening, Model, ns};

/// How long a pause waits for the end of a window.
const PATIENCE_S: f64 = 10.0;
/// Bytes of a sequence window's state.
const WINDOW_BYTES: f64 = 64.0;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Creating,
    Queueing,
    Paused,
    Copying,
}

/// A replica that is on its way.
#[derive(Debug)]
pub(super) struct Migrating {
    step: Step,
    to: u32,
    /// Its place in the record of migrations.
    record: usize,
    /// The first message that y was sent too.
    first: u32,
    /// Messages before that, which x is not done with.
    old: u32,
    /// Copies that are on their way to y.
    in_flight: u32,
    /// What has come to y.
    kept: Vec<Message>,
    /// Messages to both that have come to x.
    came: HashSet<u32>,
    window_may_end: bool,
}

impl Migrating {
    pub(super) fn is_paused(&self) -> bool {
        matches!(self.step, Step::Paused | Step::Copying)
    }

    /// Where a copy goes besides, if y is there.
    pub(super) fn twin(&mut self) -> Option<u32> {
        (self.step != Step::Creating).then(|| {
            self.in_flight += 1;
            self.to
        })
    }

    /// x was sent this, and perhaps y too.
    pub(super) fn came_to_old_place(&mut self, ticket: u32) {
        if self.step != Step::Creating && ticket >= self.first {
            self.came.insert(ticket);
        }
    }

    /// y queues a copy.
    pub(super) fn keep(&mut self, message: Message) {
        self.in_flight -= 1;
        self.kept.push(message);
    }
}

impl Model<'_> {
    /// Step 1 begins.
    pub(super) fn begin_migration(&mut self, at: u32, to: u32, record: usize) {
        self.replicas[at as usize].migrating = Some(Box::new(Migrating {
            step: Step::Creating,
            to,
            record,
            first: 0,
            old: 0,
            in_flight: 0,
            kept: Vec::new(),
            came: HashSet::new(),
            window_may_end: false,
        }));
        self.monitor.migration_begins();
        let time = self.now + ns(self.scenario.create + self.scenario.network_latency);
        self.calendar.set(time, Happening::Created { replica: at });
    }

    /// Step 2 begins.
    pub(super) fn created(&mut self, at: u32) {
        let replica = &mut self.replicas[at as usize];
        let (first, epoch) = (replica.tickets, replica.epoch);
        let old = replica.in_flight + replica.queue.len() + replica.running + replica.waiting;
        let migrating = replica.migrating.as_mut().expect("what is created was asked for");
        (migrating.step, migrating.first, migrating.old) = (Step::Queueing, first, old);
        if old == 0 {
            self.caught_up(at, epoch);
        }
    }

    /// A message to a replica has come to its end: handled, or dropped as a copy.
    pub(super) fn old_one_done(&mut self, at: u32, ticket: u32) {
        let replica = &mut self.replicas[at as usize];
        let epoch = replica.epoch;
        let Some(migrating) = &mut replica.migrating else { return };
        match migrating.step {
            Step::Creating => {}
            Step::Queueing if ticket < migrating.first => {
                migrating.old -= 1;
                if migrating.old == 0 {
                    self.caught_up(at, epoch);
                }
            }
            Step::Queueing if migrating.old == 0 => self.try_pause(at),
            Step::Queueing => {}
            Step::Paused => self.try_copy(at),
            Step::Copying => {}
        }
    }

    /// Step 2 is done.
    fn caught_up(&mut self, at: u32, epoch: u32) {
        let time = self.now + ns(PATIENCE_S);
        self.calendar.set(time, Happening::Impatient { replica: at, epoch });
        self.try_pause(at);
    }

    pub(super) fn impatient(&mut self, at: u32, epoch: u32) {
        let replica = &mut self.replicas[at as usize];
        if let Some(migrating) = replica.migrating.as_mut().filter(|_| replica.epoch == epoch) {
            migrating.window_may_end = true;
            if migrating.step == Step::Queueing {
                self.try_pause(at);
            }
        }
    }

    /// Step 3, unless a window is open that will end.
    fn try_pause(&mut self, at: u32) {
        let now = self.now;
        let replica = &mut self.replicas[at as usize];
        let kind = &self.kinds[self.operators[replica.operator as usize].kind as usize];
        let tumbles = kind.window.is_some_and(|window| window.size == window.slide);
        let is_open = tumbles && kind.held(replica.count) > 0;
        let migrating = replica.migrating.as_mut().expect("what is paused migrates");
        if is_open && !migrating.window_may_end {
            return;
        }
        migrating.step = Step::Paused;
        self.recorder.migrations[migrating.record].paused_s = Some(now as f64 / super::NS);
        self.try_copy(at);
    }

    /// Step 4, when nothing runs any more.
    fn try_copy(&mut self, at: u32) {
        let seen = self.operators[self.replicas[at as usize].operator as usize].seen;
        let bytes = self.state_bytes(at) + WINDOW_BYTES * f64::from(seen);
        let replica = &mut self.replicas[at as usize];
        if replica.running + replica.waiting > 0 {
            return;
        }
        let from = replica.node;
        let migrating = replica.migrating.as_mut().expect("what is copied migrates");
        migrating.step = Step::Copying;
        let (to, record) = (migrating.to, migrating.record);
        self.recorder.migrations[record].bytes = bytes;
        let arrives = self.carry(from, to, bytes);
        self.calendar.set(arrives, Happening::Copied { replica: at });
    }

    /// Step 5.
    pub(super) fn copied(&mut self, at: u32) {
        let now = self.clock(0.0);
        let replica = &mut self.replicas[at as usize];
        let migrating = replica.migrating.take().expect("what was copied migrates");
        let kind = &self.kinds[self.operators[replica.operator as usize].kind as usize];
        let given = &self.scenario.operators[replica.operator as usize];
        let queued = f64::from(replica.queue.len()) * kind.input_bytes;
        let in_window = f64::from(kind.held(replica.count));
        let held = given.memory + given.state + in_window * kind.input_bytes;
        self.nodes[replica.node as usize].memory_used -= queued + held;
        self.nodes[migrating.to as usize].memory_used += queued + held;
        // What x did in this second is not what y does, and the manager forgets it too.
        replica.counters = Counters::since(self.now);
        let from = std::mem::replace(&mut replica.node, migrating.to);
        replica.parallel =
            given.parallel.unwrap_or(self.scenario.nodes[migrating.to as usize].cores) as u32;
        replica.epoch += 1;
        replica.in_flight = migrating.in_flight;
        replica.is_ready = false;
        let backlog = f64::from(replica.queue.len());
        self.recorder.migrations[migrating.record].ended_s = Some(self.now as f64 / super::NS);
        let (id, to) = (ReplicaId(at as usize), NodeId(migrating.to as usize));
        self.monitor.migration_ends(now, id, to, backlog);
        // Of what came to both, x's copy counts; what came to y alone arrives now.
        replica.came_before = Some(Box::new(migrating.came)).filter(|came| !came.is_empty());
        replica.in_flight += migrating.kept.len() as u32;
        let epoch = replica.epoch;
        self.nodes[from as usize].ready.retain(|ready| *ready != at);
        self.start_policy(from as usize);
        self.start_policy(migrating.to as usize);
        for message in migrating.kept {
            self.arrive(at, epoch, message);
        }
        self.make_ready(at);
    }

    /// Bytes that a migration of a replica would copy now.
    pub(super) fn state_bytes(&self, at: u32) -> f64 {
        let replica = &self.replicas[at as usize];
        let kind = self.kind(at);
        self.scenario.operators[replica.operator as usize].state
            + f64::from(kind.held(replica.count)) * kind.input_bytes
    }
}
