//! What nodes do: cores that take turns among replicas, the disk, memory that does not suffice, the network.

use super::parts::Message;
use super::{Happening, Model, NS};
use crate::rates::unit;

/// Bytes of a page that is swapped in.
const PAGE: f64 = 4096.0;

impl Model<'_> {
    /// A replica that has events and may begin one stands in line, once.
    pub(super) fn make_ready(&mut self, at: u32) {
        let replica = &mut self.replicas[at as usize];
        let is_free = replica.running + replica.waiting < replica.parallel;
        let may = is_free && !replica.queue.is_empty() && !replica.is_paused();
        if may && !replica.is_ready {
            replica.is_ready = true;
            self.nodes[replica.node as usize].ready.push_back(at);
        }
        let node = self.replicas[at as usize].node;
        self.dispatch(node);
    }

    /// Free cores begin what is ready, a replica at a time, an event each.
    fn dispatch(&mut self, node: u32) {
        while self.nodes[node as usize].free != 0 {
            let Some(at) = self.next_ready(node) else { return };
            let replica = &mut self.replicas[at as usize];
            if replica.node != node {
                continue; // it has migrated
            }
            replica.is_ready = false;
            if replica.is_paused() || replica.running + replica.waiting >= replica.parallel {
                continue;
            }
            let Some(message) = replica.queue.pop(&mut self.mail) else { continue };
            replica.settle(self.now);
            replica.running += 1;
            if !replica.queue.is_empty() && replica.running + replica.waiting < replica.parallel {
                replica.is_ready = true;
                self.nodes[node as usize].ready.push_back(at);
            }
            self.begin(node, at, message);
        }
    }

    /// The replica that a free core of a node serves next.
    fn next_ready(&mut self, node: u32) -> Option<u32> {
        let part = &mut self.nodes[node as usize];
        match &mut part.policy {
            None => part.ready.pop_front(),
            Some(policy) => {
                policy.pick(part.free.trailing_zeros() as usize, &mut part.ready, self.now)
            }
        }
    }

    /// A core begins an event.
    fn begin(&mut self, node: u32, at: u32, message: Message) {
        let service_ns = self.service_ns(at);
        let copies = self.kind(at).copies_bytes;
        let part = &mut self.nodes[node as usize];
        let core = part.free.trailing_zeros();
        part.free &= part.free - 1;
        self.cores[(part.first_core + core) as usize].since = self.now;
        // Others have their part of every core.
        let cores = f64::from(part.cores);
        let mut takes_ns = service_ns / part.speed * cores / (cores - part.background);
        if copies > 0.0 {
            part.copying += 1;
            let bandwidth = self.scenario.nodes[node as usize].memory_bandwidth;
            takes_ns += copies / bandwidth * f64::from(part.copying) * NS;
        }
        let time = self.now.saturating_add(takes_ns.round() as u64);
        let message = self.mail.put(message);
        self.calendar.set(time, Happening::Computed { replica: at, core, message });
    }

    pub(super) fn computed(&mut self, at: u32, core: u32, message: Message) {
        let replica = &mut self.replicas[at as usize];
        replica.settle(self.now);
        replica.running -= 1;
        let node = replica.node;
        let (copies, uses_disk) = (self.kind(at).copies_bytes > 0.0, self.kind(at).uses_disk);
        let part = &mut self.nodes[node as usize];
        let one = &mut self.cores[(part.first_core + core) as usize];
        one.busy += self.now - one.since;
        if copies {
            part.copying -= 1;
        }
        let time = if uses_disk { self.store(at) } else { None };
        match time {
            Some(time) => {
                self.replicas[at as usize].waiting += 1;
                let message = self.mail.put(message);
                self.calendar.set(time, Happening::Stored { replica: at, message });
            }
            None => self.release(at, message),
        }
        // What it sent on, and then its replica, stand in line before the core looks there.
        self.nodes[node as usize].free |= 1 << core;
        self.make_ready(at);
        self.dispatch(node);
    }

    /// When the disk is done with an event: what it reads and writes, and the pages that were swapped out
    /// of what it touches. `None` if it needs none.
    fn store(&mut self, at: u32) -> Option<u64> {
        let replica = &mut self.replicas[at as usize];
        let given = &self.scenario.operators[replica.operator as usize];
        let (part, node) =
            (&mut self.nodes[replica.node as usize], &self.scenario.nodes[replica.node as usize]);
        let missing = (1.0 - node.memory / part.memory_used).max(0.0);
        let faults = f64::from(given.touches) * missing;
        // Whole pages: the fraction by chance.
        let faults = if faults > 0.0 { (faults + unit(&mut replica.dice)).floor() } else { 0.0 };
        let transfers = faults
            + if given.reads > 0.0 { 1.0 } else { 0.0 }
            + if given.writes > 0.0 { 1.0 } else { 0.0 };
        if transfers == 0.0 {
            return None;
        }
        replica.counters.read += given.reads + faults * PAGE;
        replica.counters.written += given.writes;
        let bytes = given.reads + given.writes + faults * PAGE;
        let takes = (transfers * node.seek + bytes / node.disk) * NS;
        part.disk_free_at = part.disk_free_at.max(self.now).saturating_add(takes.round() as u64);
        Some(part.disk_free_at)
    }

    pub(super) fn stored(&mut self, at: u32, message: Message) {
        let replica = &mut self.replicas[at as usize];
        replica.settle(self.now);
        replica.waiting -= 1;
        self.release(at, message);
        self.make_ready(at);
    }

    /// An event leaves the replica.
    fn release(&mut self, at: u32, message: Message) {
        let bytes = self.kind(at).input_bytes;
        let node = self.replicas[at as usize].node;
        self.nodes[node as usize].memory_used -= bytes;
        self.done(at, message);
    }

    /// When bytes of an event that is sent now arrive. Between replicas of one node they do at once.
    pub(super) fn transfer(
        &mut self,
        sender: u32,
        from: u32,
        receiver: u32,
        to: u32,
        bytes: f64,
    ) -> u64 {
        if from == to {
            return self.now;
        }
        self.replicas[sender as usize].counters.sent += bytes;
        self.replicas[receiver as usize].counters.received += bytes;
        self.carry(from, to, bytes)
    }

    /// When bytes that leave one node for another now arrive.
    pub(super) fn carry(&mut self, from: u32, to: u32, bytes: f64) -> u64 {
        let latency = super::ns(self.scenario.network_latency);
        let there = self.send_out(from, bytes).saturating_add(latency);
        self.nodes[to as usize].into.pass(there, bytes)
    }

    /// When bytes that are sent now have left a node.
    pub(super) fn send_out(&mut self, from: u32, bytes: f64) -> u64 {
        self.nodes[from as usize].out.pass(self.now, bytes)
    }
}
