//! Hop 7, emit: hands what a visit sent to the queues it goes to, a chunk at a time; what finds no
//! room stays in the outbox of its sender, who waits for one queue at a time.
//! Before: `handle`. After: `admit` of the next stage.
//! Invariant: what one sender sends into one queue arrives in the order sent, because nothing is
//! sent past an outbox that is not empty.
//! Long because the one allowance of a port spans every kind of route, and they must agree on it.

use std::any::Any;
use std::collections::{HashMap, VecDeque};

use comporta_model::chunk::{ChunkQueue, Slots};
use comporta_model::event::Meta;
use comporta_model::graph::StageId;
use comporta_model::plan::WhenFull;
use comporta_model::port::{Out, PortVisitor, Ports};

use crate::core::Core;
use crate::path::admit::{Drawn, Shed, Wakes, Who};
use crate::sync::{Arc, Mutex};

/// The queue of a stage, as its senders see it.
pub(crate) trait Inlet<T>: Send + Sync {
    /// Reserves up to `want` places, where they are needed.
    fn draw(&self, want: usize, by: &Drawing<'_>, rule: Option<WhenFull>) -> Drawn;
    /// Takes a parcel. Says whether the sender now stands in line.
    fn deliver(&self, core: &Core, parcel: Parcel<'_, T>, who: &Who, wakes: &mut Wakes) -> Line;
    /// Takes more of an outbox, `room` places of which were granted. Says whether the sender
    /// stands in line again.
    fn offer(
        &self,
        core: &Core,
        outbox: &mut ChunkQueue<T>,
        room: usize,
        who: &Who,
        wakes: &mut Wakes,
    ) -> Line;
    /// Gives places back.
    fn release(&self, room: usize, wakes: &mut Wakes);
    /// Counts an event as offered and given back.
    fn refuse(&self);
    /// Gives up an outbox and the places granted to it: its events are cancelled.
    fn abandon(&self, outbox: &mut ChunkQueue<T>, room: usize, wakes: &mut Wakes);
}

/// Who is about to send, and what.
#[derive(Clone, Copy)]
pub(crate) struct Drawing<'a> {
    pub(crate) core: &'a Core,
    pub(crate) who: &'a Who,
    /// No other instance of the stage sends.
    pub(crate) alone: bool,
    /// What it will send with.
    pub(crate) meta: &'a Meta,
}

/// Whether a sender stands in line for room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    No,
    /// For a queue outside of the sender's cycle.
    Outside,
    /// For a queue of the cycle it belongs to itself.
    Inside,
}

/// What a sender hands over at once.
pub(crate) struct Parcel<'a, T> {
    pub(crate) meta: &'a Meta,
    pub(crate) filled: &'a mut Vec<Slots<T>>,
    /// The last, not quite filled chunk; what comes back in it is storage to go on with.
    pub(crate) last: &'a mut Slots<T>,
    /// The sender has no storage of its own to go on with.
    pub(crate) short: bool,
    /// Told how much room there is afterwards.
    pub(crate) left: &'a mut usize,
    pub(crate) drawn: usize,
    /// Places that a lone sender knew to be free.
    pub(crate) counted: usize,
    pub(crate) outbox: &'a mut ChunkQueue<T>,
    /// What happens when there is no room, if that is not as the queue has it.
    pub(crate) rule: Option<WhenFull>,
    /// The sender waits for another queue already: it does not stand in line here too.
    pub(crate) in_line: bool,
}

/// Chooses an end by the event.
pub(crate) type KeyFn<T> = Arc<dyn Fn(&T) -> u64 + Send + Sync>;

/// A connector as the program declared it, with its type.
pub(crate) struct Edge<T> {
    pub(crate) to: Vec<StageId>,
    pub(crate) route: EdgeRoute<T>,
    pub(crate) copy: Option<fn(&T) -> T>,
}

pub(crate) enum EdgeRoute<T> {
    First,
    RoundRobin,
    ByKey(KeyFn<T>),
}

/// A hash that is the same in every process, so that a key finds the same end after a restart.
pub(crate) fn key_hash<K: std::hash::Hash>(key: &K) -> u64 {
    use std::hash::{DefaultHasher, Hasher};
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    hasher.finish()
}

#[repr(align(128))] // apart, as in `sync::CachePadded`: neighbours belong to other workers
struct End<T> {
    inlet: Arc<dyn Inlet<T>>,
    drawn: usize,
    /// There was no room at the last draw.
    short: bool,
    rejects: bool,
    /// Who would not let it in at the last draw.
    refused: Option<Shed>,
    /// What happens when there is no room, if that is not as the queue has it.
    rule: Option<WhenFull>,
    /// The stage is the only one that leads to this queue.
    sole: bool,
    /// The room that was left after the last delivery, and that this visit counts on.
    left: usize,
    counted: usize,
    outbox: Outbox<T>,
    filled: Vec<Slots<T>>,
    last: Slots<T>,
}

/// What found no room in a queue. The ends of an instance that lead to one queue share it, so that
/// what is sent through one does not overtake what waits behind another.
enum Outbox<T> {
    Own(ChunkQueue<T>),
    Shared(Arc<Mutex<ChunkQueue<T>>>),
}

/// The shared outboxes of an instance, by the stage they are for, with their types erased.
type SharedOutboxes = HashMap<StageId, Box<dyn Any>>;

impl<T: Send + 'static> Outbox<T> {
    fn new(core: &Core, stage: u32, to: StageId, shared: &mut SharedOutboxes) -> Self {
        if !core.reaches_twice(stage, to) {
            return Outbox::Own(ChunkQueue::default());
        }
        let made = shared
            .entry(to)
            .or_insert_with(|| Box::new(Arc::new(Mutex::new(ChunkQueue::<T>::default()))));
        let made = made.downcast_ref::<Arc<Mutex<ChunkQueue<T>>>>();
        Outbox::Shared(made.expect("`connect` joins only what carries the same type").clone())
    }

    fn with<R>(&mut self, body: impl FnOnce(&mut ChunkQueue<T>) -> R) -> R {
        match self {
            Outbox::Own(queue) => body(queue),
            Outbox::Shared(queue) => body(&mut queue.lock()),
        }
    }

    fn is_empty(&self) -> bool {
        match self {
            Outbox::Own(queue) => queue.is_empty(),
            Outbox::Shared(queue) => queue.lock().is_empty(),
        }
    }
}

struct Wire<T> {
    route: EdgeRoute<T>,
    turn: usize,
    /// Each queue it leads to, once.
    ends: Vec<End<T>>,
    /// The ends as declared: an index into `ends` each.
    turns: Vec<usize>,
}

/// One output port of one instance, joined to the queues it leads to.
pub(crate) struct Link<T> {
    wires: Vec<Wire<T>>,
    copy: Option<fn(&T) -> T>,
    /// The wire and end whose line the sender stands in.
    waiting: Option<(usize, usize)>,
    line: Line,
    /// Events to be sent in turn with those of other ports.
    staged: VecDeque<T>,
    tap: Option<Tap<T>>,
}

/// Sees a copy of what a port sends; for tests.
pub(crate) type Tap<T> = Arc<dyn Fn(&T) + Send + Sync>;

impl<T: Send + 'static> Link<T> {
    /// Joins port `port` of `stage`.
    fn new(core: &Core, stage: u32, port: usize, shared: &mut SharedOutboxes) -> Self {
        let edges = core.edges_of::<T>(stage, port);
        let copy = edges.iter().find_map(|edge| edge.copy);
        let rules = core.rules_of(stage, port);
        let mut wire = |(number, edge): (usize, &&Edge<T>)| {
            let mut queues: Vec<StageId> = edge.to.clone();
            queues.sort_unstable();
            queues.dedup();
            let end = |to: &StageId| {
                let sole = core.is_sole_sender(stage, *to);
                let said = edge.to.iter().zip(rules.get(number).into_iter().flatten());
                let rule = said.filter(|(end, _)| *end == to).find_map(|(_, rule)| *rule);
                let outbox = Outbox::new(core, stage, *to, shared);
                End::new(core.inlet::<T>(*to), rule, sole, outbox)
            };
            Wire {
                route: match &edge.route {
                    EdgeRoute::First => EdgeRoute::First,
                    EdgeRoute::RoundRobin => EdgeRoute::RoundRobin,
                    EdgeRoute::ByKey(key) => EdgeRoute::ByKey(key.clone()),
                },
                turn: 0,
                ends: queues.iter().map(end).collect(),
                turns: edge.to.iter().filter_map(|to| queues.binary_search(to).ok()).collect(),
            }
        };
        let wires = edges.iter().enumerate().map(&mut wire).collect();
        let tap = core.tap::<T>(stage, port);
        Link { wires, copy, waiting: None, line: Line::No, staged: VecDeque::new(), tap }
    }

    fn ends(&mut self) -> impl Iterator<Item = &mut End<T>> {
        self.wires.iter_mut().flat_map(|wire| &mut wire.ends)
    }

    /// Before a visit: how many events it may send before it should stop, and before `try_send`
    /// refuses.
    pub(crate) fn draw(&mut self, want: usize, by: &Drawing<'_>) -> (usize, usize) {
        let (mut limit, mut room) = (usize::MAX, usize::MAX);
        for end in self.ends() {
            if by.alone && end.sole && end.left >= want {
                // Nobody else sends there: the room left after the last delivery can only have
                // grown, and need not be asked for, nor reserved.
                end.short = false;
                end.refused = None;
                end.counted = end.left;
                room = room.min(end.left);
                limit = limit.min(end.left);
                continue;
            }
            let drawn = end.inlet.draw(want, by, end.rule);
            end.drawn = drawn.places;
            end.short = drawn.needed && drawn.places == 0;
            end.rejects = drawn.rule == WhenFull::Reject;
            end.refused = drawn.refused;
            if drawn.needed {
                room = room.min(drawn.room);
            }
            if drawn.needed && !end.rejects {
                limit = limit.min(drawn.places);
            }
        }
        (limit, room)
    }

    /// Sends all that `out` holds.
    fn flush(&mut self, out: &mut Out<T>, send: &mut Sending<'_>) {
        let sent = out.len();
        send.emitted += sent;
        if let Some(tap) = &self.tap {
            out.for_each(|event| tap(event));
        }
        let (mut filled, mut last) = out.take();
        match self.wires.as_mut_slice() {
            [] => {
                send.unrouted += sent;
                filled.clear();
                last.clear();
            }
            [Wire { route: EdgeRoute::First, ends, .. }] => {
                if let Some(end) = ends.first_mut() {
                    std::mem::swap(&mut end.filled, &mut filled);
                    std::mem::swap(&mut end.last, &mut last);
                    self.deliver(send);
                    if let Some(end) = self.wires[0].ends.first_mut() {
                        std::mem::swap(&mut end.filled, &mut filled);
                        std::mem::swap(&mut end.last, &mut last);
                    }
                }
            }
            _ => {
                for event in filled.drain(..).chain([std::mem::take(&mut last)]).flatten().flatten()
                {
                    self.address(event);
                }
                self.deliver(send);
            }
        }
        if send.fills && last.capacity() == 0 {
            last = send.wakes.cache.take();
        }
        out.refill(filled, last);
    }

    /// Puts an event, or copies of it, with the ends it goes to.
    fn address(&mut self, event: T) {
        let Some((final_wire, others)) = self.wires.split_last_mut() else { return };
        for wire in others {
            // Checked with the graph: a port with several connectors knows how to copy.
            if let Some(copy) = self.copy {
                wire.put(copy(&event));
            }
        }
        final_wire.put(event);
    }

    /// Hands over what stands with each end, and gives unused places back.
    fn deliver(&mut self, send: &mut Sending<'_>) {
        for (w, wire) in self.wires.iter_mut().enumerate() {
            for (e, end) in wire.ends.iter_mut().enumerate() {
                if end.drawn == 0 && end.filled.is_empty() && end.last.is_empty() {
                    continue;
                }
                let End { inlet, drawn, outbox, filled, last, left, counted, rule, .. } = end;
                let short = send.fills && send.wakes.cache.is_empty::<T>();
                let line = outbox.with(|outbox| {
                    let parcel = Parcel {
                        meta: send.meta,
                        filled,
                        last,
                        short,
                        left,
                        drawn: std::mem::take(drawn),
                        counted: std::mem::take(counted),
                        outbox,
                        rule: *rule,
                        in_line: send.line != Line::No,
                    };
                    inlet.deliver(send.core, parcel, send.who, send.wakes)
                });
                if line != Line::No {
                    self.waiting = Some((w, e));
                    self.line = line;
                    send.line = line;
                }
            }
        }
    }
}

impl<T> Wire<T> {
    fn put(&mut self, event: T) {
        let turns = self.turns.len();
        let at = match &self.route {
            EdgeRoute::First => 0,
            EdgeRoute::RoundRobin => {
                self.turn = (self.turn + 1) % turns;
                self.turn
            }
            EdgeRoute::ByKey(key) => usize::try_from(key(&event) % turns as u64).unwrap_or(0),
        };
        self.ends[self.turns[at]].last.push(Some(event));
    }
}

impl<T: Send + 'static> End<T> {
    fn new(
        inlet: Arc<dyn Inlet<T>>,
        rule: Option<WhenFull>,
        sole: bool,
        outbox: Outbox<T>,
    ) -> Self {
        End {
            inlet,
            rule,
            drawn: 0,
            short: false,
            rejects: false,
            refused: None,
            sole,
            left: 0,
            counted: 0,
            outbox,
            filled: Vec::new(),
            last: Vec::new(),
        }
    }

    fn offer(&mut self, core: &Core, room: usize, who: &Who, wakes: &mut Wakes) -> Line {
        let End { inlet, outbox, .. } = self;
        outbox.with(|outbox| inlet.offer(core, outbox, room, who, wakes))
    }
}

/// What a flush needs to know, and what it found out.
pub(crate) struct Sending<'a> {
    pub(crate) core: &'a Core,
    pub(crate) meta: &'a Meta,
    pub(crate) who: &'a Who,
    pub(crate) wakes: &'a mut Wakes,
    /// Whether the sender fills chunks of its own and so needs storage.
    pub(crate) fills: bool,
    pub(crate) line: Line,
    pub(crate) emitted: usize,
    pub(crate) unrouted: usize,
}

/// A link whose type is not known here.
trait AnyLink: Send {
    fn as_any(&mut self) -> &mut dyn Any;
    fn holds(&self) -> bool;
    fn line(&self) -> Line;
    fn resume(&mut self, core: &Core, room: usize, who: &Who, wakes: &mut Wakes);
    fn release(&mut self, wakes: &mut Wakes);
    fn refuse(&self);
    fn rejects(&self) -> bool;
    fn refused(&self) -> Option<Shed>;
    fn abandon(&mut self, room: usize, wakes: &mut Wakes);
}

impl<T: Send + 'static> AnyLink for Link<T> {
    fn as_any(&mut self) -> &mut dyn Any {
        self
    }

    fn holds(&self) -> bool {
        self.wires.iter().flat_map(|wire| &wire.ends).any(|end| !end.outbox.is_empty())
    }

    fn line(&self) -> Line {
        self.line
    }

    /// Goes on with the outboxes, the one waited for first; stops when it stands in line again.
    fn resume(&mut self, core: &Core, room: usize, who: &Who, wakes: &mut Wakes) {
        let granted = self.waiting.take();
        self.line = Line::No;
        if let Some((w, e)) = granted {
            self.line = self.wires[w].ends[e].offer(core, room, who, wakes);
            self.waiting = granted.filter(|_| self.line != Line::No);
        }
        for (w, wire) in self.wires.iter_mut().enumerate() {
            for (e, end) in wire.ends.iter_mut().enumerate() {
                if self.waiting.is_some() || end.outbox.is_empty() {
                    continue;
                }
                self.line = end.offer(core, 0, who, wakes);
                self.waiting = Some((w, e)).filter(|_| self.line != Line::No);
            }
        }
    }

    /// Gives back every place drawn, sending nothing.
    fn release(&mut self, wakes: &mut Wakes) {
        for end in self.ends() {
            let drawn = std::mem::take(&mut end.drawn);
            if drawn > 0 {
                end.inlet.release(drawn, wakes);
            }
        }
    }

    /// Counts a refusal with the ends that had no room at the last draw.
    fn refuse(&self) {
        let ends = self.wires.iter().flat_map(|wire| &wire.ends);
        ends.filter(|end| end.short).for_each(|end| end.inlet.refuse());
    }

    fn rejects(&self) -> bool {
        let mut ends = self.wires.iter().flat_map(|wire| &wire.ends);
        ends.any(|end| end.short && end.rejects)
    }

    fn refused(&self) -> Option<Shed> {
        let mut ends = self.wires.iter().flat_map(|wire| &wire.ends);
        ends.find_map(|end| end.refused)
    }

    /// Leaves every line, giving up what stands in outboxes.
    fn abandon(&mut self, room: usize, wakes: &mut Wakes) {
        let waiting = self.waiting.take();
        self.line = Line::No;
        for (w, wire) in self.wires.iter_mut().enumerate() {
            for (e, end) in wire.ends.iter_mut().enumerate() {
                let room = if waiting == Some((w, e)) { room } else { 0 };
                let End { inlet, outbox, .. } = end;
                outbox.with(|outbox| inlet.abandon(outbox, room, wakes));
            }
        }
    }
}

/// The links of all ports of one instance.
pub(crate) struct Links {
    links: Vec<Box<dyn AnyLink>>,
    /// Two ports lead to one queue, or the order of tokens matters: what they send must leave in
    /// the order sent.
    in_turn: bool,
}

impl Links {
    pub(crate) fn new<P: Ports>(core: &Core, stage: u32, ports: &mut P, exact: bool) -> Self {
        struct Join<'a> {
            core: &'a Core,
            stage: u32,
            links: Vec<Box<dyn AnyLink>>,
            shared: SharedOutboxes,
        }
        impl PortVisitor for Join<'_> {
            fn port<T: Send + 'static>(&mut self, index: usize, _: &mut Out<T>) {
                let link = Link::<T>::new(self.core, self.stage, index, &mut self.shared);
                self.links.push(Box::new(link));
            }
        }
        let mut join = Join { core, stage, links: Vec::new(), shared: HashMap::new() };
        ports.each(&mut join);
        let in_turn = P::NAMES.len() > 1 && (exact || core.ports_share_a_queue(stage));
        Links { links: join.links, in_turn }
    }

    fn link<T: Send + 'static>(&mut self, index: usize) -> Option<&mut Link<T>> {
        self.links.get_mut(index)?.as_any().downcast_mut::<Link<T>>()
    }

    /// Before a visit: draws places for about `want` events and tells the ports.
    pub(crate) fn draw<P: Ports>(
        &mut self,
        ports: &mut P,
        want: usize,
        emit_max: usize,
        by: Drawing<'_>,
    ) {
        struct Draw<'a> {
            links: &'a mut Links,
            want: usize,
            emit_max: usize,
            by: Drawing<'a>,
        }
        impl PortVisitor for Draw<'_> {
            fn port<T: Send + 'static>(&mut self, index: usize, out: &mut Out<T>) {
                if let Some(link) = self.links.link::<T>(index) {
                    let (limit, room) = link.draw(self.want, &self.by);
                    out.allow(limit, room, self.emit_max);
                }
            }
        }
        ports.each(&mut Draw { links: self, want, emit_max, by });
    }

    /// After a visit: sends everything.
    pub(crate) fn flush<P: Ports>(&mut self, ports: &mut P, send: &mut Sending<'_>) {
        struct Flush<'a, 'b> {
            links: &'a mut Links,
            send: &'a mut Sending<'b>,
        }
        impl PortVisitor for Flush<'_, '_> {
            fn port<T: Send + 'static>(&mut self, index: usize, out: &mut Out<T>) {
                if let Some(link) = self.links.link::<T>(index) {
                    link.flush(out, self.send);
                }
            }
        }
        if self.in_turn {
            self.flush_in_turn(ports, send);
        } else {
            ports.each(&mut Flush { links: self, send });
        }
    }

    /// Sends what several ports hold in the order in which it was sent.
    fn flush_in_turn<P: Ports>(&mut self, ports: &mut P, send: &mut Sending<'_>) {
        struct Stage<'a> {
            links: &'a mut Links,
            runs: Vec<(u32, usize, usize)>,
        }
        impl PortVisitor for Stage<'_> {
            fn port<T: Send + 'static>(&mut self, index: usize, out: &mut Out<T>) {
                self.runs.extend(out.runs().into_iter().map(|(turn, n)| (turn, index, n)));
                if let Some(link) = self.links.link::<T>(index) {
                    link.staged.extend(out.drain());
                }
            }
        }
        struct SendRun<'a, 'b> {
            links: &'a mut Links,
            send: &'a mut Sending<'b>,
            port: usize,
            events: usize,
        }
        impl PortVisitor for SendRun<'_, '_> {
            fn port<T: Send + 'static>(&mut self, index: usize, out: &mut Out<T>) {
                if index == self.port
                    && let Some(link) = self.links.link::<T>(index)
                {
                    let run: Vec<T> = link.staged.drain(..self.events).collect();
                    run.into_iter().for_each(|event| out.send(event));
                    link.flush(out, self.send);
                }
            }
        }
        let mut stage = Stage { links: self, runs: Vec::new() };
        ports.each(&mut stage);
        let mut runs = stage.runs;
        runs.sort_unstable();
        for (_, port, events) in runs {
            ports.each(&mut SendRun { links: self, send, port, events });
        }
        // Ports that sent nothing may still have drawn places.
        for port in 0..P::NAMES.len() {
            ports.each(&mut SendRun { links: self, send, port, events: 0 });
        }
    }

    /// Goes on with the outboxes after `room` places were granted. Says whether the sender stands
    /// in line again; if not, all are empty.
    pub(crate) fn resume(
        &mut self,
        core: &Core,
        room: usize,
        who: &Who,
        wakes: &mut Wakes,
    ) -> Line {
        if let Some(link) = self.links.iter_mut().find(|link| link.line() != Line::No) {
            link.resume(core, room, who, wakes);
        }
        loop {
            let line = self.line();
            if line != Line::No {
                return line;
            }
            let Some(link) = self.links.iter_mut().find(|link| link.holds()) else { return line };
            link.resume(core, 0, who, wakes);
        }
    }

    /// Gives back every place drawn, sending nothing.
    pub(crate) fn release(&mut self, wakes: &mut Wakes) {
        self.links.iter_mut().for_each(|link| link.release(wakes));
    }

    /// Counts a refusal with the queues that had no room.
    pub(crate) fn refuse(&self) {
        self.links.iter().for_each(|link| link.refuse());
    }

    /// Whether a queue that had no room gives events back rather than keep senders waiting.
    pub(crate) fn rejects(&self) -> bool {
        self.links.iter().any(|link| link.rejects())
    }

    /// The admission controller that did not let an event in.
    pub(crate) fn refused(&self) -> Option<Shed> {
        self.links.iter().find_map(|link| link.refused())
    }

    /// Leaves every line, giving up what stands in outboxes and `room` places granted.
    pub(crate) fn abandon(&mut self, room: usize, wakes: &mut Wakes) {
        self.links.iter_mut().for_each(|link| link.abandon(room, wakes));
    }

    /// Whether the sender stands in line.
    pub(crate) fn line(&self) -> Line {
        self.links.iter().map(|link| link.line()).find(|line| *line != Line::No).unwrap_or(Line::No)
    }
}
