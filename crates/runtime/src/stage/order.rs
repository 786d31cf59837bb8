//! Hop 8 of an ordered stage: its visits take tickets with their events and deposit what they sent; the
//! results leave in the order of tickets. Whoever deposits what is next in order lets it out, with those
//! that waited for it.
//! Before: `handle`. After: `emit`, then `settle`.
//! Invariant: deposits leave in the order of their tickets, one at a time.
//!
//! A visit whose ticket is the only one out when it takes it is next, and nobody lets results out: it sends its own past all
//! of this, if they find room at once. Others may deposit theirs meanwhile, which it looks for at its end, if any began.

use std::collections::BTreeMap;

use comporta_model::ack::{Fate, Obligation};
use comporta_model::column::Duties;
use comporta_model::event::{Meta, Time};
use comporta_model::kind::Kind;
use comporta_model::port::Ports;

use super::Stage;
use super::handle::{Instance, Tally};
use super::settle::Settling;
use super::take::Batch;
use crate::core::Core;
use crate::effects::{Effects, Visit};
use crate::path::emit::{InLine, Links};
use crate::path::error_port::HeldErrors;
use crate::path::line::Place;
use crate::path::ready::{Task, Token};
use crate::sync::{Arc, AtomicU64, Mutex, Relaxed};

/// How many visits, for each instance, may be ahead of the oldest: enough that none idles behind a slow
/// one, and a bound on what waits to be let out.
const AHEAD: usize = 4;

/// The tickets of an ordered stage, under its lock.
#[derive(Default)]
pub(super) struct Tickets {
    next: u64,
    /// Given out, and not yet let out.
    out: usize,
    /// Results wait for room.
    releasing: bool,
}

impl Tickets {
    pub(super) fn take(&mut self) -> u64 {
        self.out += 1;
        self.next += 1;
        self.next - 1
    }

    /// How many visits may begin.
    pub(super) fn allowed(&self, instances: usize) -> usize {
        (instances * AHEAD).saturating_sub(self.out)
    }

    /// Whether the one that was taken last is the only one out, and no results wait for room: then it is next, and nobody
    /// lets others out.
    #[inline]
    pub(super) fn are_one(&self) -> bool {
        self.out == 1 && !self.releasing
    }

    pub(super) fn is_releasing(&self) -> bool {
        self.releasing
    }
}

/// What waits to be let out.
pub(super) struct Order<P> {
    /// The ticket whose results leave next. Changed under the lock of `state`; by a visit whose ticket is the only one
    /// that is out, under that of the stage. Whoever has a ticket knows what was changed before it was taken.
    next: AtomicU64,
    state: Mutex<State<P>>,
}

struct State<P> {
    deposits: BTreeMap<u64, Deposit<P>>,
    /// What failed so far of visits that have not deposited yet, by ticket.
    errors: BTreeMap<u64, Box<dyn HeldErrors>>,
    spare: Vec<P>,
    /// The releaser: none before it is first needed, taken out while it runs.
    links: Option<Box<Links>>,
    /// Somebody lets results out, or they wait for room.
    busy: bool,
}

struct Deposit<P> {
    ports: P,
    errors: Option<Box<dyn HeldErrors>>,
    of: Deposited,
}

/// What a visit deposits beside its results.
pub(super) struct Deposited {
    pub(super) tally: Tally,
    pub(super) meta: Meta,
    /// What is owed for its events, and for the results of a group of events.
    pub(super) spent: Duties,
    pub(super) together: Obligation,
    /// When its events came to the queue.
    pub(super) enqueued: Time,
}

impl Deposited {
    /// Of a visit whose events were shed.
    pub(super) fn nothing(meta: Meta) -> Self {
        let (tally, spent, together) = (Tally::default(), Duties::default(), Obligation::default());
        Deposited { tally, enqueued: meta.enqueued, meta, spent, together }
    }
}

/// What a visit lets its own results out with.
struct Begun {
    /// The releaser; none before it is first needed.
    links: Option<Box<Links>>,
    /// What failed of its events.
    errors: Option<Box<dyn HeldErrors>>,
}

impl<P: Ports> Order<P> {
    pub(super) fn new() -> Self {
        Order {
            next: AtomicU64::new(0),
            state: Mutex::new(State {
                deposits: BTreeMap::new(),
                errors: BTreeMap::new(),
                spare: Vec::new(),
                links: None,
                busy: false,
            }),
        }
    }

    /// The ticket whose results leave next.
    fn next_ticket(&self) -> u64 {
        self.next.load(Relaxed)
    }

    /// The results of this ticket, which is next, have left.
    fn passed(&self, ticket: u64) {
        self.next.store(ticket + 1, Relaxed);
    }

    /// As [`passed`](Self::passed), where others may have deposited theirs. Returns whether the caller must let those out,
    /// by [`release_results`](Stage::release_results).
    #[must_use]
    fn pass_on(&self, ticket: u64) -> bool {
        let mut state = self.state.lock();
        self.passed(ticket);
        let goes_on = !state.busy && state.deposits.contains_key(&(ticket + 1));
        state.busy |= goes_on;
        goes_on
    }

    /// The program was stopped: drops everything. Returns how many events that were in flight it held.
    pub(super) fn cancel(&self, effects: &mut Effects) -> usize {
        let mut state = self.state.lock();
        let (deposits, links) = (std::mem::take(&mut state.deposits), state.links.take());
        let errors = std::mem::take(&mut state.errors);
        drop(state);
        errors.into_values().for_each(|errors| effects.discard(errors));
        let mut held = 0;
        for (_, Deposit { ports, errors, of }) in deposits {
            held += of.tally.ended();
            of.spent.settle(Fate::Cancelled);
            of.together.settle(); // its events have been told of
            effects.discard(ports);
            effects.discard(errors);
        }
        effects.discard(links);
        held
    }

    /// A failed event leaves with the other results of its ticket: `send` puts it into what holds those of the ticket,
    /// which is `fresh` if it is the first.
    pub(super) fn fail(
        &self,
        ticket: u64,
        fresh: Box<dyn HeldErrors>,
        send: impl FnOnce(&mut dyn HeldErrors),
    ) {
        let mut state = self.state.lock();
        send(&mut **state.errors.entry(ticket).or_insert(fresh));
    }

    /// The visit with this ticket lets its results out itself, without depositing them, if they are next and nobody
    /// lets others out.
    fn begin(&self, ticket: u64) -> Option<Begun> {
        let mut state = self.state.lock();
        if ticket != self.next_ticket() || state.busy {
            return None;
        }
        state.busy = true;
        self.passed(ticket);
        let errors = if state.errors.is_empty() { None } else { state.errors.remove(&ticket) };
        Some(Begun { links: state.links.take(), errors })
    }

    /// The results of such a visit have been let out. Returns the releaser if it has to see to more: to these, if
    /// they wait for room, or to what was deposited meanwhile.
    fn end(&self, links: Box<Links>) -> Option<Box<Links>> {
        let waits = links.in_line() != InLine::No;
        let mut state = self.state.lock();
        let next = self.next_ticket();
        if waits || (!state.deposits.is_empty() && state.deposits.contains_key(&next)) {
            return Some(links);
        }
        state.busy = false;
        state.links = Some(links);
        None
    }

    /// The next deposit, if it is there; else the releaser goes, and leaves its links.
    fn next(&self, links: &mut Option<Box<Links>>) -> Option<Deposit<P>> {
        let mut state = self.state.lock();
        let next = self.next_ticket();
        let deposit = state.deposits.remove(&next);
        if deposit.is_some() {
            self.passed(next);
        } else {
            state.busy = false;
            state.links = links.take();
        }
        deposit
    }
}

impl<H: Kind> Stage<H> {
    /// A visit leaves what it sent. Returns whether it can leave now and nobody else sees to it: then
    /// the caller must, by [`release_results`](Self::release_results).
    #[must_use]
    pub(super) fn deposit(&self, ports: &mut H::Ports, ticket: u64, of: Deposited) -> bool {
        let Some(order) = &self.order else { return false };
        let mut state = order.state.lock();
        let fresh = match state.spare.pop() {
            Some(spare) => spare,
            None => {
                drop(state);
                let fresh = H::Ports::new(); // the program's: not under the lock
                state = order.state.lock();
                fresh
            }
        };
        let ports = std::mem::replace(ports, fresh);
        let errors = state.errors.remove(&ticket);
        state.deposits.insert(ticket, Deposit { ports, errors, of });
        if ticket != order.next_ticket() || state.busy {
            return false;
        }
        state.busy = true;
        drop(state);
        if let Some(cycle) = &self.state.lock().cycle {
            cycle.activate();
        }
        true
    }

    /// Room was granted to results that waited for it.
    pub(super) fn resume_results(&self, core: &Arc<Core>, visit: &mut Visit) {
        let Some(order) = &self.order else { return };
        let taken = order.state.lock().links.take();
        let Some(mut links) = taken else { return }; // the program was stopped
        if links.resume(core, visit) == InLine::No {
            self.state.lock().tickets.releasing = false;
            self.release(core, links, visit);
        } else {
            self.park_results(links, visit);
        }
    }

    /// Lets deposits out in order, as long as there are and find room.
    pub(super) fn release_results(&self, core: &Arc<Core>, visit: &mut Visit) {
        let Some(order) = &self.order else { return };
        let kept = order.state.lock().links.take();
        let links = kept.unwrap_or_else(|| self.make_releaser(core));
        self.release(core, links, visit);
    }

    fn make_releaser(&self, core: &Arc<Core>) -> Box<Links> {
        let place = Place::of_task(Token::new(self.id, Task::Release));
        Box::new(self.links(core, &mut H::Ports::new(), place))
    }

    /// The releaser, for a visit whose results are next in order, if nobody else lets results out: then the caller
    /// must let out its own, by [`release_own`](Self::release_own).
    pub(super) fn begin_release(&self, core: &Arc<Core>, ticket: u64) -> Option<Box<Links>> {
        let Begun { links, errors } = self.order.as_ref()?.begin(ticket)?;
        let mut links = links.unwrap_or_else(|| self.make_releaser(core));
        if errors.is_some() {
            links.put_errors(errors);
        }
        Some(links)
    }

    /// Lets out what a visit sent, settles its events, and places its instance.
    pub(super) fn release_own(
        &self,
        core: &Arc<Core>,
        mut instance: Box<Instance<H>>,
        batch: Box<Batch<H::Item>>,
        mut links: Box<Links>,
        of: Deposited,
        visit: &mut Visit,
    ) {
        let Deposited { tally, meta, spent, together, enqueued } = of;
        let sent = links.flush(core, &mut instance.ports, &meta, !H::IN_PLACE, visit);
        together.settle(); // what was sent carries it on
        let settling = Settling { meta: &meta, spent: Some(&spent), enqueued, tally, sent };
        self.end_release(core, instance, batch, links, settling, visit);
    }

    /// A visit has let out what it sent: settles its events, and places its instance, all at once.
    #[inline]
    pub(super) fn end_release(
        &self,
        core: &Arc<Core>,
        instance: Box<Instance<H>>,
        batch: Box<Batch<H::Item>>,
        links: Box<Links>,
        settling: Settling<'_>,
        visit: &mut Visit,
    ) {
        let Some(order) = &self.order else { return };
        let goes_on = order.end(links);
        let mut guard = self.state.lock();
        let state = &mut *guard;
        state.tickets.out -= 1;
        if let Some(links) = &goes_on {
            state.tickets.releasing = links.in_line() != InLine::No;
            if let Some(cycle) = &state.cycle {
                cycle.activate(); // the releaser, before the instance can act no more
            }
        }
        let usual_ns = self.settle_in(core, state, instance, batch, &settling, InLine::No, visit);
        drop(guard);
        self.tell(core, &settling, usual_ns, visit);
        match goes_on {
            Some(links) if links.in_line() != InLine::No => self.park_results(links, visit),
            Some(links) => self.release(core, links, visit),
            None => {}
        }
    }

    /// A visit whose ticket was the only one out has sent its results: settles its events, and places its instance.
    #[inline(always)]
    pub(super) fn settle_alone(
        &self,
        core: &Arc<Core>,
        instance: Box<Instance<H>>,
        batch: Box<Batch<H::Item>>,
        ticket: u64,
        settling: Settling<'_>,
        visit: &mut Visit,
    ) {
        let Some(order) = &self.order else { return };
        let mut guard = self.state.lock();
        let state = &mut *guard;
        let goes_on = if state.tickets.are_one() {
            order.passed(ticket);
            false
        } else {
            order.pass_on(ticket)
        };
        state.tickets.out -= 1;
        let usual_ns = self.settle_in(core, state, instance, batch, &settling, InLine::No, visit);
        drop(guard);
        self.tell(core, &settling, usual_ns, visit);
        if goes_on {
            self.release_results(core, visit);
        }
    }

    fn release(&self, core: &Arc<Core>, links: Box<Links>, visit: &mut Visit) {
        let Some(order) = &self.order else { return };
        let mut links = Some(links);
        while let Some(Deposit { mut ports, errors, of }) = order.next(&mut links) {
            let Some(own) = &mut links else { return };
            own.put_errors(errors);
            let Deposited { tally, meta, spent, together, enqueued } = of;
            visit.end.get_or_insert_with(|| core.clock.now());
            let sent = own.flush(core, &mut ports, &meta, true, visit);
            together.settle(); // what was sent carries it on
            let waits = own.in_line() != InLine::No;
            let settling = Settling { meta: &meta, spent: Some(&spent), enqueued, tally, sent };
            let mut guard = self.state.lock();
            let state = &mut *guard;
            self.count(core, state, &settling, visit);
            state.tickets.out -= 1;
            state.tickets.releasing = waits;
            self.cycle_ended(state, settling.tally.ended(), &mut visit.effects);
            self.changed(core, state, &mut visit.effects);
            let usual_ns = state.pace.usual_ns();
            drop(guard);
            self.tell(core, &settling, usual_ns, visit);
            order.state.lock().spare.push(ports);
            if waits && let Some(links) = links {
                return self.park_results(links, visit);
            }
        }
        let mut guard = self.state.lock();
        self.claim(&mut guard, &mut visit.effects);
        guard.deactivate(&mut visit.effects);
        self.changed(core, &mut guard, &mut visit.effects);
    }

    /// What is let out waits for room.
    fn park_results(&self, links: Box<Links>, visit: &mut Visit) {
        let Some(order) = &self.order else { return };
        let (place, in_line) = (links.place().clone(), links.in_line());
        order.state.lock().links = Some(links);
        if place.park() {
            visit.effects.tokens.extend(place.token()); // room was granted meanwhile
        }
        if in_line == InLine::Inside {
            self.state.lock().deactivate(&mut visit.effects);
        }
    }
}
