//! Hop 7, emit: hands what a visit sent through its ports to the outlets it goes to, a chunk at a time.
//! Before: `handle`. After: `outlet`, one for each queue that the sender reaches.
//!
//! What is sent through one port leaves in the order sent; where ports share a queue, or the exact order
//! of tokens matters (`batch = 1`), so does what is sent through several.

use std::collections::VecDeque;
use std::sync::Weak;

use comporta_model::column::{Columns, Cursor, Duty};
use comporta_model::event::Meta;
use comporta_model::port::{Out, PortVisitor, Ports};

use crate::core::Core;
use crate::effects::{Effects, Visit};
use crate::path::bundle::{AnyBundle, Bundle, Outlets, PortLink};
use crate::path::direct::{Ahead, Direct};
use crate::path::error_port::ErrorPort;
use crate::path::in_turn::flush_in_turn;
use crate::path::line::Place;
use crate::path::outlet::{Outlet, Sending, Sent};
use crate::path::route::{End, Route, Tap, Wire};
use crate::path::spread::{self, Spread};
use crate::sync::Arc;
use crate::user;

/// One output port of one sender.
pub(super) struct Link<T> {
    pub(super) wires: Vec<Wire<T>>,
    copy: Option<fn(&T) -> T>,
    /// As `copy`, if every event goes to the same several outlets: whole chunks are copied then.
    spread: Option<fn(&T) -> T>,
    pub(super) tap: Option<Tap<T>>,
    /// Events to be sent in turn with those of other ports, and what each carries of its own.
    pub(super) staged: VecDeque<T>,
    pub(super) staged_columns: Columns,
}

impl<T: Send + 'static> Link<T> {
    /// The one way of its events, if there is only one.
    fn direct(&self, outlets: &Outlets<T>) -> Option<(Direct<T>, Option<Ahead>)> {
        let [Wire { route: Route::First, ends }] = self.wires.as_slice() else { return None };
        let End { outlet, rule } = *ends.first()?;
        self.tap.is_none().then(|| outlets[outlet].direct(rule))
    }

    /// Before a visit: how many events it may send before it should stop, and before `try_send`
    /// refuses.
    pub(super) fn room(&self, outlets: &Outlets<T>, core: &Core, meta: &Meta) -> (usize, usize) {
        let (mut limit, mut room) = (usize::MAX, usize::MAX);
        for end in self.wires.iter().flat_map(|wire| &wire.ends) {
            let there = outlets[end.outlet].room(core, meta, end.rule);
            limit = limit.min(there.before_waiting);
            room = room.min(there.before_refusing);
        }
        (limit, room)
    }

    /// Sends all that `out` holds.
    pub(super) fn flush(
        &mut self,
        outlets: &mut Outlets<T>,
        out: &mut Out<T>,
        send: &mut Sending<'_>,
    ) -> bool {
        send.sent.emitted += out.len();
        if let Some(tap) = &self.tap {
            let _ = user::call(|| out.for_each(|event| tap(event)));
        }
        // Mostly all it holds goes to one queue, and owes what the visit says.
        let [wire @ Wire { route: Route::First, .. }] = self.wires.as_slice() else {
            return self.flush_at_large(outlets, out, send);
        };
        if out.has_duties() {
            return self.flush_at_large(outlets, out, send);
        }
        let (filled, last) = out.lend();
        let waits = wire.only(outlets).deliver_from(filled, last, Columns::default(), send);
        send.refill(last);
        waits
    }

    /// As [`flush`](Self::flush), where events go several ways, or owe different things.
    fn flush_at_large(
        &mut self,
        outlets: &mut Outlets<T>,
        out: &mut Out<T>,
        send: &mut Sending<'_>,
    ) -> bool {
        let (columns, held) = out.take_duties(&send.meta.duty);
        let (filled, last) = out.lend();
        let mut waits = false;
        match self.wires.as_slice() {
            [] => {
                send.sent.unrouted += filled.iter().map(Vec::len).sum::<usize>() + last.len();
                for slots in filled.iter_mut().chain([&mut *last]) {
                    send.visit.effects.discard_events(slots);
                }
                filled.clear();
            }
            [wire @ Wire { route: Route::First, .. }] => {
                waits = wire.only(outlets).deliver_from(filled, last, columns, send);
            }
            [others @ .., end]
                if columns.duties().is_none()
                    && let Some(copy) = self.spread =>
            {
                waits = Spread { copy, others, end }.deliver(outlets, filled, last, send);
            }
            _ => {
                let events = filled.drain(..).chain([std::mem::take(last)]);
                self.address(outlets, events.flatten().flatten(), &columns, send);
                waits = deliver_all(outlets, send);
            }
        }
        held.into_iter().for_each(|(_, carried_on)| carried_on.settle());
        send.refill(last);
        waits
    }

    /// Stages each event, or copies of it, with the outlets it goes to. Key functions and `Clone` are
    /// user code: one that panics costs the event it was called for.
    pub(super) fn address(
        &mut self,
        outlets: &mut Outlets<T>,
        mut events: impl Iterator<Item = T>,
        columns: &Columns,
        send: &mut Sending<'_>,
    ) {
        let user = send.visit.effects.hand_over(send.core);
        let (mut at, mut cursor) = (0, Cursor::default());
        let mut owed = None;
        while let Err(reason) = user.call(|| {
            for event in events.by_ref() {
                let duties = columns.duties();
                owed = duties.and_then(|duties| duties.at(at, &mut cursor)).map(|(duty, _)| duty);
                at += 1;
                self.address_one(outlets, event, owed);
            }
        }) {
            send.sent.lose(send.core, owed.unwrap_or(&send.meta.duty), &reason);
        }
    }

    pub(super) fn address_one(&mut self, outlets: &mut Outlets<T>, event: T, duty: Option<&Duty>) {
        let Some((final_wire, others)) = self.wires.split_last_mut() else { return };
        for wire in others {
            // Checked with the graph: a port with several connectors knows how to copy.
            if let Some(copy) = self.copy {
                let copy = copy(&event);
                let End { outlet, rule } = wire.choose(&copy);
                outlets[outlet].rule = rule;
                outlets[outlet].stage(copy, duty);
            }
        }
        let End { outlet, rule } = final_wire.choose(&event);
        outlets[outlet].rule = rule;
        outlets[outlet].stage(event, duty);
    }
}

/// Hands over what is staged everywhere. Returns whether the sender now stands in line.
pub(super) fn deliver_all<T: Send + 'static>(
    outlets: &mut Outlets<T>,
    send: &mut Sending<'_>,
) -> bool {
    let mut waits = false;
    for outlet in outlets {
        let stands = outlet.deliver(send);
        send.waits |= stands;
        waits |= stands;
    }
    waits
}

/// Whether a sender stands in line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InLine {
    No,
    /// For a queue outside of the sender's cycle.
    Outside,
    /// For a queue of the cycle it belongs to itself.
    Inside,
}

/// All that joins the ports of one sender to the queues they lead to. Dropping it gives up what stands
/// in outboxes, and the place in line.
pub(crate) struct Links {
    core: Weak<Core>,
    place: Arc<Place>,
    /// Where the link of each port is.
    pub(super) ports: Vec<PortLink>,
    pub(super) bundles: Vec<Box<dyn AnyBundle>>,
    /// Where its failed events go, if somebody wants them.
    pub(super) errors: Option<ErrorPort>,
    /// Two ports lead to one queue: what they send must leave in the order sent.
    pub(super) in_turn: bool,
    /// The sender may stand in line; if not, no outlet needs to be asked.
    pub(super) may_stand: bool,
}

impl Links {
    pub(crate) fn new<P: Ports>(
        core: &Arc<Core>,
        stage: u32,
        ports: &mut P,
        exact: bool,
        place: Arc<Place>,
    ) -> Self {
        struct Join<'a> {
            core: &'a Core,
            stage: u32,
            links: Links,
        }
        impl PortVisitor for Join<'_> {
            fn port<T: Send + 'static>(&mut self, index: usize, _: &mut Out<T>) {
                self.links.add::<T>(self.core, self.stage, index);
            }
        }
        let in_turn = P::NAMES.len() > 1 && (exact || core.wiring.ports_share_a_queue(stage));
        let links = Links {
            core: Arc::downgrade(core),
            place,
            ports: Vec::new(),
            bundles: Vec::new(),
            errors: None,
            in_turn,
            may_stand: false,
        };
        let mut join = Join { core, stage, links };
        ports.each(&mut join);
        join.links
    }

    /// Joins a port of a stage, or its error port, to the queues it leads to.
    pub(super) fn add<T: Send + 'static>(&mut self, core: &Core, stage: u32, port: usize) {
        let known = self.bundles.iter_mut().position(|bundle| bundle.as_any().is::<Bundle<T>>());
        let at = known.unwrap_or_else(|| {
            push_exact(&mut self.bundles, Box::new(Bundle::<T>::default()));
            self.bundles.len() - 1
        });
        let bundle = Bundle::<T>::of(&mut *self.bundles[at]);
        let link = join::<T>(core, stage, port, &mut bundle.outlets);
        let port = PortLink::new(at, bundle.links.len(), link.direct(&bundle.outlets));
        push_exact(&mut self.ports, port);
        push_exact(&mut bundle.links, link);
    }

    pub(crate) fn place(&self) -> &Arc<Place> {
        &self.place
    }

    #[inline(always)]
    pub(super) fn port<T: Send + 'static>(
        &mut self,
        index: usize,
    ) -> (&mut Link<T>, &mut Outlets<T>) {
        self.ports[index].of(&mut self.bundles)
    }

    /// Before a visit: tells the ports how much room there seems to be for what will be sent with
    /// `meta`. Admission controllers are asked, which are user code.
    #[inline(always)]
    pub(crate) fn look_for_room<P: Ports>(
        &mut self,
        core: &Core,
        ports: &mut P,
        meta: &Meta,
        emit_max: usize,
    ) {
        struct Look<'a> {
            links: &'a mut Links,
            core: &'a Core,
            meta: &'a Meta,
            emit_max: usize,
        }
        impl PortVisitor for Look<'_> {
            #[inline(always)]
            fn port<T: Send + 'static>(&mut self, index: usize, out: &mut Out<T>) {
                let (limit, room) = match self.links.ports[index].room() {
                    Some(there) => (there.before_waiting, there.before_refusing),
                    None => {
                        let (link, outlets) = self.links.port::<T>(index);
                        link.room(outlets, self.core, self.meta)
                    }
                };
                out.allow(limit, room, self.emit_max);
            }
        }
        ports.each(&mut Look { links: self, core, meta, emit_max });
        if let Some(errors) = &mut self.errors {
            errors.look(&self.ports, &mut self.bundles, (core, meta));
        }
    }

    /// After a visit: sends everything, with `meta`.
    #[inline(never)]
    pub(crate) fn flush<P: Ports>(
        &mut self,
        core: &Core,
        ports: &mut P,
        meta: &Meta,
        fills: bool,
        visit: &mut Visit,
    ) -> Sent {
        struct Flush<'a, 'b> {
            ports: &'a [PortLink],
            bundles: &'a mut [Box<dyn AnyBundle>],
            send: &'a mut Sending<'b>,
        }
        impl PortVisitor for Flush<'_, '_> {
            #[inline(always)]
            fn port<T: Send + 'static>(&mut self, index: usize, out: &mut Out<T>) {
                let (link, outlets) = self.ports[index].of::<T>(self.bundles);
                self.send.waits |= link.flush(outlets, out, self.send);
            }
        }
        let Links { place, ports: own, bundles, errors, in_turn, may_stand, .. } = self;
        let mut send =
            Sending { core, meta, place, visit, fills, waits: false, sent: Sent::default() };
        if *in_turn && are_several(ports) {
            flush_in_turn(own, bundles, ports, &mut send);
        } else {
            ports.each(&mut Flush { ports: own, bundles, send: &mut send });
        }
        if let Some(errors) = errors {
            errors.flush(own, bundles, &mut send);
        }
        *may_stand |= send.waits;
        send.sent
    }

    /// Whether the sender stands in line.
    pub(crate) fn in_line(&self) -> InLine {
        if !self.may_stand {
            debug_assert!(self.bundles.iter().all(|bundle| bundle.standing().is_none()));
            return InLine::No;
        }
        match self.bundles.iter().find_map(|bundle| bundle.standing()) {
            None => InLine::No,
            Some((_, true)) => InLine::Inside,
            Some((_, false)) => InLine::Outside,
        }
    }

    fn is_idle(&self) -> bool {
        self.bundles.iter().all(|b| b.standing().is_none() && b.holding().is_none())
    }

    /// Leaves the line, and gives up what stands in outboxes.
    pub(crate) fn give_up(&mut self, core: &Core, effects: &mut Effects) {
        for bundle in &mut self.bundles {
            bundle.give_up(core, &self.place, effects);
        }
    }

    /// Goes on with the outboxes after room was granted, the one waited for first. Returns whether the
    /// sender stands in line again; if not, all are empty.
    pub(crate) fn resume(&mut self, core: &Core, visit: &mut Visit) -> InLine {
        let mut granted = self.place.take();
        let waited = self.bundles.iter().enumerate();
        let mut waited = waited.filter_map(|(b, bundle)| Some((b, bundle.standing()?.0)));
        let mut next = waited.next();
        while let Some((bundle, outlet)) = next {
            let granted = std::mem::take(&mut granted);
            self.bundles[bundle].resume(outlet, core, &self.place, granted, visit);
            let line = self.in_line();
            if line != InLine::No {
                return line;
            }
            let mut holding = self.bundles.iter().enumerate();
            next = holding.find_map(|(b, bundle)| Some((b, bundle.holding()?)));
        }
        self.may_stand = false;
        InLine::No
    }
}

/// Whether several ports hold events.
pub(super) fn are_several<P: Ports>(ports: &mut P) -> bool {
    struct Holding(usize);
    impl PortVisitor for Holding {
        #[inline(always)]
        fn port<T: Send + 'static>(&mut self, _: usize, out: &mut Out<T>) {
            self.0 += usize::from(!out.is_empty());
        }
    }
    let mut holding = Holding(0);
    ports.each(&mut holding);
    holding.0 > 1
}

/// Adds to a list that mostly has one entry: a list that grows would take the space of four.
fn push_exact<T>(list: &mut Vec<T>, entry: T) {
    if list.is_empty() {
        list.reserve_exact(1);
    }
    list.push(entry);
}

/// Joins a port of a stage to outlets of its type.
fn join<T: Send + 'static>(
    core: &Core,
    stage: u32,
    port: usize,
    outlets: &mut Outlets<T>,
) -> Link<T> {
    let edges = core.wiring.edges_of::<T>(stage, port);
    let rules = core.wiring.rules_of(stage, port);
    let wires = edges.iter().enumerate().map(|(number, edge)| {
        let ends = edge.to.iter().enumerate().map(|(end, to)| {
            let known = outlets.iter().position(|outlet| outlet.to == to.0);
            let outlet = known.unwrap_or_else(|| {
                let flow = core.wiring.flow(stage, *to);
                push_exact(outlets, Outlet::new(to.0, core.inlet::<T>(*to), flow));
                outlets.len() - 1
            });
            End { outlet, rule: rules.get(number).and_then(|rules| rules[end]) }
        });
        Wire { route: edge.route.clone(), ends: ends.collect() }
    });
    let wires: Vec<Wire<T>> = wires.collect();
    let copy = edges.iter().find_map(|edge| edge.copy);
    Link {
        spread: copy.filter(|_| spread::is_fixed(&wires)),
        wires,
        copy,
        tap: core.wiring.tap::<T>(stage, port),
        staged: VecDeque::new(),
        staged_columns: Columns::default(),
    }
}

impl Drop for Links {
    fn drop(&mut self) {
        if self.is_idle() {
            return;
        }
        let Some(core) = self.core.upgrade() else { return };
        let mut effects = Effects::default();
        self.give_up(&core, &mut effects);
        core.dispatch(effects);
    }
}
