//! An event's walk: a source emits it, copies travel, arrive, are handled, and lead to others.

use super::parts::Message;
use super::{Happening, Model};
use crate::rates::{exponential, unit};
use crate::scenario::Service;
use crate::seen::Copy;

impl Model<'_> {
    /// When a source sends its next event.
    pub(super) fn schedule_source(&mut self, source: u32) {
        let replica = &mut self.replicas[source as usize];
        let said = &self.scenario.operators[replica.operator as usize];
        let events = said.arrivals.events(&mut replica.dice);
        let rates = said.rates.as_ref().expect("a source has a rate");
        if let Some(time) = rates.next_ns(self.now, events) {
            self.calendar.set(time, Happening::Emit { source });
        }
    }

    pub(super) fn emit(&mut self, source: u32) {
        let replica = &mut self.replicas[source as usize];
        let (operator, number, node) = (replica.operator, replica.number, replica.node);
        replica.number += 1;
        replica.counters.arrived += 1.0;
        replica.counters.handled += 1.0;
        self.recorder.offered += 1;
        let here = (self.now, node);
        let message = Message {
            number,
            origin: operator,
            sender: source,
            ticket: 0,
            entered: self.now,
            before: here,
            sent: here,
        };
        self.send_on(source, message);
        self.schedule_source(source);
    }

    /// Sends an event to every replica of every operator that follows, and to where one is about to migrate.
    fn send_on(&mut self, sender: u32, message: Message) {
        let (operator, from) = {
            let replica = &self.replicas[sender as usize];
            (replica.operator as usize, replica.node)
        };
        let bytes = self.scenario.operators[operator].event_bytes;
        for output in 0..self.operators[operator].outputs.len() {
            let to = self.operators[operator].outputs[output] as usize;
            for at in 0..self.operators[to].replicas.len() {
                let receiver = self.operators[to].replicas[at];
                self.send(sender, from, receiver, bytes, message);
            }
        }
    }

    fn send(&mut self, sender: u32, from: u32, receiver: u32, bytes: f64, mut message: Message) {
        let replica = &mut self.replicas[receiver as usize];
        message.ticket = replica.tickets;
        replica.tickets += 1;
        replica.in_flight += 1;
        let (epoch, node) = (replica.epoch, replica.node);
        let twin = replica.migrating.as_mut().and_then(|migrating| migrating.twin());
        let arrives = self.transfer(sender, from, receiver, node, bytes);
        self.calendar.set(arrives, Happening::Arrive { replica: receiver, epoch, message });
        if let Some(node) = twin {
            let arrives = self.transfer(sender, from, receiver, node, bytes);
            let epoch = epoch + 1;
            self.calendar.set(arrives, Happening::Arrive { replica: receiver, epoch, message });
        }
    }

    pub(super) fn arrive(&mut self, receiver: u32, epoch: u32, message: Message) {
        let replica = &mut self.replicas[receiver as usize];
        if epoch < replica.epoch {
            return; // its new place has a copy
        }
        if epoch > replica.epoch {
            let migrating =
                replica.migrating.as_mut().expect("a copy goes ahead of a migration under way");
            migrating.keep(message);
            return;
        }
        replica.in_flight -= 1;
        if replica.came_before_migration(message.ticket) {
            self.old_one_done(receiver, message.ticket);
            return;
        }
        let copy = self.copy(receiver, &message);
        self.measure(receiver, &message, copy);
        if copy.is_none_or(|copy| copy == Copy::First) {
            self.accept(receiver, message);
        } else {
            self.old_one_done(receiver, message.ticket);
        }
    }

    /// What a copy is; `None` where there is one copy only.
    fn copy(&mut self, receiver: u32, message: &Message) -> Option<Copy> {
        let from = self.replicas[message.sender as usize].operator;
        let inputs = &self.operators[self.replicas[receiver as usize].operator as usize].inputs;
        let input = inputs.iter().find(|input| input.operator == from);
        let input = input.expect("an event comes from an input");
        let first = input.first?;
        let at = match input.origins.as_slice() {
            [_] => 0,
            origins => {
                origins.binary_search(&message.origin).expect("it goes back to a known source")
            }
        };
        Some(self.replicas[receiver as usize].seen[first as usize + at].note(message.number))
    }

    /// The latency of the sender ends here, if this is the replica that it is measured at: the first of the first
    /// operator that follows.
    fn measure(&mut self, receiver: u32, message: &Message, copy: Option<Copy>) {
        let from = self.replicas[message.sender as usize].operator as usize;
        let sender = &self.operators[from];
        let at = self.operators[sender.outputs[0] as usize].replicas[0];
        if !sender.is_measured || at != receiver {
            return;
        }
        let took = self.now - message.before.0;
        let to = self.replicas[receiver as usize].node;
        let latencies = &mut self.replicas[message.sender as usize].counters.latencies;
        match latencies.iter_mut().find(|one| (one.0, one.1) == (message.before.1, to)) {
            Some(one) => (one.2, one.3) = (one.2 + took as f64, one.3 + 1.0),
            None => latencies.push((message.before.1, to, took as f64, 1.0)),
        }
        self.recorder.latency(self.now, took, copy);
    }

    /// An event that is not a copy of another enters the queue of a replica.
    pub(super) fn accept(&mut self, receiver: u32, message: Message) {
        let replica = &mut self.replicas[receiver as usize];
        replica.counters.arrived += 1.0;
        let operator = &self.operators[replica.operator as usize];
        if operator.is_sink && operator.takes_nothing {
            self.done(receiver, message);
            return;
        }
        self.nodes[replica.node as usize].memory_used += operator.input_bytes;
        replica.queue.push_back(message);
        self.make_ready(receiver);
    }

    /// An event has been handled.
    pub(super) fn done(&mut self, at: u32, message: Message) {
        let replica = &mut self.replicas[at as usize];
        replica.counters.handled += 1.0;
        let operator = &self.operators[replica.operator as usize];
        let said = &self.scenario.operators[replica.operator as usize];
        let here = (self.now, replica.node);
        if operator.is_sink {
            if operator.replicas[0] == at {
                self.recorder.processed(self.now, self.now - message.entered);
            }
            self.old_one_done(at, message.ticket);
            return;
        }
        let failed = said.fails > 0.0 && unit(&mut replica.dice) < said.fails;
        let mut number = message.number;
        let mut sends = !failed;
        if let Some(window) = operator.window {
            let count = message.number + 1;
            sends &= count.is_multiple_of(window.slide) && count >= window.size;
            number = (count / window.slide).saturating_sub(1);
            let held = count % window.slide + (window.size - window.slide);
            let more = f64::from(held) - f64::from(replica.in_window);
            self.nodes[replica.node as usize].memory_used += more * operator.input_bytes;
            replica.in_window = held;
        }
        if failed {
            self.recorder.failed += 1;
        }
        if sends {
            let next = Message { number, sender: at, before: message.sent, sent: here, ..message };
            self.send_on(at, next);
        }
        self.old_one_done(at, message.ticket);
    }

    /// What the cores take for the next event of a replica, in nanoseconds.
    pub(super) fn service_ns(&mut self, at: u32) -> f64 {
        let replica = &mut self.replicas[at as usize];
        let cost_ns = self.operators[replica.operator as usize].cost_ns;
        match self.scenario.operators[replica.operator as usize].service {
            Service::Fixed => cost_ns,
            Service::Exponential => cost_ns * exponential(&mut replica.dice),
        }
    }
}
