//! Hop 8 of an ordered stage: its visits deposit what they sent, and the releaser lets it out in the
//! order in which the events came.
//! Before: `handle`. After: `emit`, then `settle`.
//! Invariant: deposits leave in the order of their tickets, one at a time.

use std::collections::BTreeMap;

use comporta_model::event::{Fate, Meta};
use comporta_model::port::Ports;
use comporta_model::stage::Handler;

use crate::core::Core;
use crate::path::admit::{RELEASER, Wakes, Who};
use crate::path::emit::{Line, Links};
use crate::path::enqueue::{StageNode, deactivate, settle_ack};
use crate::path::handle::{Instance, Tally};
use crate::path::ready::{Task, Token};
use crate::path::settle::{Sent, count, flush};
use crate::sync::Arc;

/// Lets the results of an ordered stage out in the order of their tickets. Each visit deposits
/// what it sent and goes on; the releaser, which is like an instance without a handler, sends.
pub(crate) struct Resequencer<P> {
    next: u64,
    deposits: BTreeMap<u64, Deposit<P>>,
    spare: Vec<P>,
    /// Taken out while the releaser runs.
    links: Option<Links>,
    releaser: Releaser,
    early: Option<usize>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Releaser {
    Idle,
    Ready,
    Running,
    Waiting,
}

struct Deposit<P> {
    ports: P,
    meta: Meta,
    tally: Tally,
}

impl<P: Ports> Resequencer<P> {
    pub(crate) fn new() -> Self {
        Resequencer {
            next: 0,
            deposits: BTreeMap::new(),
            spare: Vec::new(),
            links: None,
            releaser: Releaser::Idle,
            early: None,
        }
    }

    /// Drops everything; says how many events that were in flight it held.
    pub(crate) fn clear(&mut self) -> usize {
        self.links = None;
        let deposits = std::mem::take(&mut self.deposits);
        deposits.values().map(|deposit| deposit.tally.handled + deposit.tally.failed).sum()
    }
}

impl<H: Handler> StageNode<H> {
    /// A visit of an ordered stage leaves what it sent. Says whether it can leave now, and nobody
    /// else sees to it: then the caller must, by [`release_results`](Self::release_results).
    #[must_use]
    pub(crate) fn deposit(
        &self,
        instance: &mut Instance<H>,
        ticket: u64,
        tally: Tally,
        meta: Meta,
    ) -> bool {
        let Some(resequencer) = &self.resequencer else { return false };
        let mut order = resequencer.lock();
        let fresh = order.spare.pop().unwrap_or_else(H::Ports::new);
        let ports = std::mem::replace(&mut instance.ports, fresh);
        order.deposits.insert(ticket, Deposit { ports, meta, tally });
        if ticket != order.next || order.releaser != Releaser::Idle {
            return false;
        }
        order.releaser = Releaser::Ready;
        drop(order);
        if let Some(cycle) = &self.state.lock().desk.cycle {
            cycle.activate();
        }
        true
    }

    /// Sends deposits in order, as long as there are and find room.
    pub(crate) fn release_results(&self, core: &Arc<Core>, room: Option<usize>, wakes: &mut Wakes) {
        let Some(resequencer) = &self.resequencer else { return };
        let who = Who::Releaser { stage: self.id };
        let mut links = {
            let mut order = resequencer.lock();
            if room.is_some() && order.releaser == Releaser::Running {
                order.early = room;
                return;
            }
            order.releaser = Releaser::Running;
            match order.links.take() {
                Some(links) => links,
                None => Links::new(core, self.id, &mut H::Ports::new(), self.rules.batch == 1),
            }
        };
        let mut line = room.map_or(Line::No, |room| links.resume(core, room, &who, wakes));
        if room.is_some() && line == Line::No {
            self.state.lock().releasing = false;
        }
        while line == Line::No {
            let deposit = {
                let mut order = resequencer.lock();
                let next = order.next;
                match order.deposits.remove(&next) {
                    Some(deposit) => {
                        order.next += 1;
                        deposit
                    }
                    None => {
                        order.releaser = Releaser::Idle;
                        order.links = Some(links);
                        drop(order);
                        let state = self.state.lock();
                        deactivate(state.desk.cycle.as_ref(), wakes);
                        if state.is_over() {
                            wakes.over.push(self.id);
                        }
                        return;
                    }
                }
            };
            let Deposit { mut ports, meta, tally } = deposit;
            let sent = flush(core, &mut links, &mut ports, (&meta, true), &who, wakes);
            line = sent.line;
            self.settle_deposit(core, &meta, tally, sent, wakes);
            resequencer.lock().spare.push(ports);
        }
        let mut order = resequencer.lock();
        order.links = Some(links);
        order.releaser = Releaser::Waiting;
        if let Some(room) = order.early.take() {
            let task = Task::Resume { instance: RELEASER, room: room as u32 };
            wakes.tokens.push(Token::new(self.id, task));
        }
        drop(order);
        if line == Line::Inside {
            deactivate(self.state.lock().desk.cycle.as_ref(), wakes);
        }
    }

    fn settle_deposit(
        &self,
        core: &Core,
        meta: &Meta,
        tally: Tally,
        sent: Sent,
        wakes: &mut Wakes,
    ) {
        let done = tally.handled + tally.failed;
        let mut guard = self.state.lock();
        let state = &mut *guard;
        count(state, tally, sent);
        self.note_times(core, state, meta, tally, wakes);
        state.in_flight -= done;
        state.tickets_out -= 1;
        state.releasing = sent.line != Line::No;
        Self::cycle_ended(state, done, self.id, wakes);
        state.claim(self.id, &self.rules, wakes);
        drop(guard);
        settle_ack(meta.ack.as_ref(), tally.handled, Fate::Handled);
        settle_ack(meta.ack.as_ref(), tally.failed, Fate::Failed);
    }
}
