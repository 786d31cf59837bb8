//! An event's walk: a source emits it, copies travel, arrive, are handled, and lead to others.

use super::parts::{self, Message};
use super::{Happening, Model};
use crate::rates::{exponential, unit};
use crate::scenario::{Service, Window};
use crate::seen::Copy;

impl Model<'_> {
    /// When a source sends its next event.
    pub(super) fn schedule_source(&mut self, source: u32) {
        let replica = &mut self.replicas[source as usize];
        let kind = &self.kinds[self.operators[replica.operator as usize].kind as usize];
        let events = kind.arrivals.events(&mut replica.dice);
        let rates = kind.rates.expect("a source has a rate");
        if let Some(time) = rates.next_ns(self.now, events) {
            self.calendar.set(time, Happening::Emit { source });
        }
    }

    pub(super) fn emit(&mut self, source: u32) {
        let replica = &mut self.replicas[source as usize];
        let (number, node) = (replica.count, replica.node);
        replica.count += 1;
        replica.counters.arrived += 1;
        replica.counters.handled += 1;
        self.recorder.offered += 1;
        let here = (self.now, node);
        let message = Message {
            number,
            stream: 0,
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
        let replica = &mut self.replicas[sender as usize];
        replica.counters.emitted += 1;
        let (operator, from) = (&self.operators[replica.operator as usize], replica.node);
        let bytes = self.kinds[operator.kind as usize].event_bytes;
        for at in operator.receivers.clone() {
            self.send(sender, from, self.receivers[at as usize], bytes, message);
        }
    }

    fn send(&mut self, sender: u32, from: u32, receiver: u32, bytes: f64, mut message: Message) {
        let replica = &mut self.replicas[receiver as usize];
        message.ticket = replica.tickets;
        replica.tickets += 1;
        replica.in_flight += 1;
        let (epoch, node) = (replica.epoch, replica.node);
        let twin = replica.migrating.as_mut().and_then(|migrating| migrating.twin());
        if from == node {
            // As in the runtime: what stays on a node stands in line before its sender does again.
            self.arrive(receiver, epoch, message);
        } else {
            let arrives = self.transfer(sender, from, receiver, node, bytes);
            let message = self.mail.put(message);
            self.calendar.set(arrives, Happening::Arrive { replica: receiver, epoch, message });
        }
        if let Some(node) = twin {
            let arrives = self.transfer(sender, from, receiver, node, bytes);
            let (epoch, message) = (epoch + 1, self.mail.put(message));
            self.calendar.set(arrives, Happening::Arrive { replica: receiver, epoch, message });
        }
    }

    pub(super) fn arrive(&mut self, receiver: u32, epoch: u32, mut message: Message) {
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
        let operator = &self.operators[replica.operator as usize];
        let inputs = &self.inputs[operator.inputs.start as usize..operator.inputs.end as usize];
        let (first, seen) = (operator.first, replica.seen);
        let input = parts::input(inputs, || self.replicas[message.sender as usize].operator);
        let copy = input
            .seen
            .map(|place| self.seen[(seen + place + message.stream) as usize].note(message.number));
        message.stream += input.first;
        if input.is_measured && first == receiver {
            self.measure(receiver, &message, copy);
        }
        if copy.is_none_or(|copy| copy == Copy::First) {
            self.accept(receiver, message);
        } else {
            self.old_one_done(receiver, message.ticket);
        }
    }

    /// The latency of the sender ends here: at the first replica of the first operator that follows.
    fn measure(&mut self, receiver: u32, message: &Message, copy: Option<Copy>) {
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
        replica.counters.arrived += 1;
        let kind = &self.kinds[self.operators[replica.operator as usize].kind as usize];
        if kind.is_sink && kind.takes_nothing {
            self.done(receiver, message);
            return;
        }
        let node = &mut self.nodes[replica.node as usize];
        node.memory_used += kind.input_bytes;
        if let Some(policy) = &mut node.policy {
            policy.arrived(receiver);
        }
        replica.queue.push(&mut self.mail, message);
        self.make_ready(receiver);
    }

    /// An event has been handled.
    pub(super) fn done(&mut self, at: u32, message: Message) {
        let replica = &mut self.replicas[at as usize];
        replica.counters.handled += 1;
        if let Some(policy) = &mut self.nodes[replica.node as usize].policy {
            policy.handled(at);
        }
        let operator = &self.operators[replica.operator as usize];
        let kind = &self.kinds[operator.kind as usize];
        let failed = kind.fails > 0.0 && unit(&mut replica.dice) < kind.fails;
        self.recorder.failed += u64::from(failed);
        if kind.is_sink {
            if operator.first == at && !failed {
                self.recorder.processed(self.now, self.now - message.entered);
            }
        } else {
            let name = match kind.window {
                None => Some((message.stream, message.number)),
                // The windows of an operator are a stream of their own.
                Some(window) => self.gather(at, window).map(|number| (0, number)),
            };
            if let Some((stream, number)) = name.filter(|_| !failed) {
                let sent = (self.now, self.replicas[at as usize].node);
                let before = message.sent;
                self.send_on(at, Message { number, stream, sender: at, before, sent, ..message });
            }
        }
        self.old_one_done(at, message.ticket);
    }

    /// Counts an event into its window. Returns the number of the window if it is the last of one.
    ///
    /// Replicas count the same events, perhaps in another order: the windows of one number are taken for copies of each other.
    fn gather(&mut self, at: u32, window: Window) -> Option<u32> {
        let replica = &mut self.replicas[at as usize];
        let before = window.held(replica.count);
        replica.count += 1;
        let (ended, held, node) =
            (window.ended(replica.count), window.held(replica.count), replica.node);
        let more = f64::from(held) - f64::from(before);
        let bytes = more * self.kind(at).input_bytes;
        self.nodes[node as usize].memory_used += bytes;
        ended
    }

    /// What the cores take for the next event of a replica, in nanoseconds.
    pub(super) fn service_ns(&mut self, at: u32) -> f64 {
        let replica = &mut self.replicas[at as usize];
        let kind = &self.kinds[self.operators[replica.operator as usize].kind as usize];
        match kind.service {
            Service::Fixed => kind.cost_ns,
            Service::Exponential => kind.cost_ns * exponential(&mut replica.dice),
        }
    }
}
