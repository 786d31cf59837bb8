//! Hop 6, handle: a visit runs the handler of one instance over a chunk of events.
//! Before: `work`. After: `emit`, then `settle`.
//! The loop knows its types; locks, clock reads, the panic guard, counters and wake-ups are paid
//! per visit. A visit stops when its events are spent, when it sent more than it had room for, or
//! when its time is up.
//! Invariant: `at` is the event being handled, also after a panic.

use std::mem::needs_drop;
use std::time::Duration;

use comporta_model::chunk::{Chunk, ChunkQueue};
use comporta_model::error::Error;
use comporta_model::event::{AckGroup, Fate, Meta, Time};
use comporta_model::plan::{OnPanic, Retry};
use comporta_model::port::{Out, PortVisitor, Ports};
use comporta_model::stage::{Cx, Handler};

use crate::core::Core;
use crate::failure::{Reason, guard};
use crate::path::admit::{Wakes, Who};
use crate::path::emit::Links;
use crate::path::enqueue::{StageNode, deactivate};
use crate::sync::Arc;

/// How long a visit should take at most: long against what a visit costs (well under a
/// microsecond) and short against what a person or a deadline notices.
pub(crate) const QUANTUM: Duration = Duration::from_micros(100);

/// Below this mean service time the clock is first read after `PROBE_LATE` events rather than after
/// 1: a read costs about 28 ns, which would show against a handler of a few.
const PROBE_EARLY_NS: u64 = 250;
const PROBE_LATE: usize = 256;

/// What is fixed about a stage.
pub(crate) struct Rules<T> {
    pub(crate) name: Arc<str>,
    pub(crate) batch: usize,
    pub(crate) retry: Retry,
    pub(crate) emit_max: usize,
    pub(crate) on_panic: OnPanic,
    pub(crate) group: Option<(usize, Duration)>,
    pub(crate) ordered: bool,
    /// How to copy an event, if the stage retains.
    pub(crate) retain: Option<fn(&T) -> T>,
}

impl<T> Rules<T> {
    /// How many visits of an ordered stage may be ahead of the oldest: enough that none idles
    /// behind a slow one, and a bound on what waits to be let out.
    pub(crate) fn window(&self, instances: usize) -> Option<usize> {
        self.ordered.then_some(instances * 4)
    }
}

/// One instance of a stage: a handler with its state, its ports and where they lead.
#[repr(align(128))] // apart, as in `sync::Apart`: neighbours belong to other workers
pub(crate) struct Instance<H: Handler> {
    pub(crate) index: u32,
    pub(crate) handler: H,
    pub(crate) ports: H::Ports,
    pub(crate) links: Links,
    pub(crate) cx: Cx,
    pub(crate) pending: Option<Pending<H::Item>>,
    /// Copies of the events being handled, if the stage retains.
    kept: Vec<H::Item>,
    pub(crate) sent_lately: usize,
    pub(crate) pace: Pace,
    pub(crate) finishing: bool,
    /// It was the only instance when its visit began.
    pub(crate) alone: bool,
}

/// How long an event takes, learnt from visits.
#[derive(Default)]
pub(crate) struct Pace {
    mean_ns: u64,
    /// Nanoseconds per event of the last three visits; 0 where there was none.
    lately: [u64; 3],
}

impl Pace {
    /// A visit spent so much per event.
    pub(crate) fn note(&mut self, ns: u64) {
        let ns = ns.max(1);
        self.mean_ns = if self.mean_ns == 0 { ns } else { (self.mean_ns * 3 + ns) / 4 };
        self.lately.rotate_left(1);
        self.lately[2] = ns;
    }

    /// The mean, the latest counting most; 0 before the first visit.
    pub(crate) fn mean_ns(&self) -> u64 {
        self.mean_ns
    }

    /// The median of the last visits. A visit in which the machine ran something else for some
    /// milliseconds moves the mean a thousandfold, and says nothing about the next.
    pub(crate) fn usual_ns(&self) -> u64 {
        let mut sorted = self.lately;
        sorted.sort_unstable();
        if sorted[1] == 0 { sorted[2] } else { sorted[1] }
    }
}

/// A visit that waits to try an event again.
pub(crate) struct Pending<T> {
    pub(crate) chunk: Chunk<T>,
    pub(crate) ticket: Option<u64>,
    pub(crate) tally: Tally,
    pub(crate) wait: Duration,
}

/// How the events of a visit ended.
#[derive(Clone, Copy, Default)]
pub(crate) struct Tally {
    pub(crate) handled: usize,
    pub(crate) failed: usize,
    pub(crate) retried: usize,
}

/// A failure asked for by a test.
#[derive(Clone, Debug)]
pub(crate) enum Fault {
    Error(String),
    Panic(String),
}

pub(crate) type Faults = Vec<Fault>;

enum Stop {
    Spent,
    Full,
    Late,
    Quit,
    Failed(Error),
}

pub(crate) struct Mark;
impl PortVisitor for Mark {
    #[inline(always)]
    fn port<T: Send + 'static>(&mut self, _: usize, out: &mut Out<T>) {
        out.set_mark();
    }
}

struct Over(bool);
impl PortVisitor for Over {
    #[inline(always)]
    fn port<T: Send + 'static>(&mut self, _: usize, out: &mut Out<T>) {
        self.0 |= out.is_over();
    }
}

pub(crate) struct Flooded(pub(crate) bool);
impl PortVisitor for Flooded {
    fn port<T: Send + 'static>(&mut self, _: usize, out: &mut Out<T>) {
        self.0 |= out.is_flooded();
    }
}

pub(crate) struct Withdraw;
impl PortVisitor for Withdraw {
    fn port<T: Send + 'static>(&mut self, _: usize, out: &mut Out<T>) {
        out.withdraw();
    }
}

/// Events given back by `try_send`.
pub(crate) struct Refused(pub(crate) usize);
impl PortVisitor for Refused {
    fn port<T: Send + 'static>(&mut self, _: usize, out: &mut Out<T>) {
        self.0 += out.refused();
    }
}

pub(crate) struct Unbounded(pub(crate) usize);
impl PortVisitor for Unbounded {
    fn port<T: Send + 'static>(&mut self, _: usize, out: &mut Out<T>) {
        out.allow(usize::MAX, usize::MAX, self.0);
    }
}

/// When to look at the clock: after 1, 2, 4, 8 ... events, so that a visit overshoots its time at
/// most twofold.
///
/// A visit that is late all of a sudden is pardoned once: if what is left would fit its time at the
/// pace it had, then the machine was away and not the handler slow, and to stop would gain nothing
/// and leave the events in two pieces for the rest of their way. The look-outs begin anew with the
/// next event, so a handler that did become slow costs one event more.
struct Probe {
    next: usize,
    /// When, and at which event, the count of look-outs began.
    start: Time,
    from: usize,
    /// Nanoseconds per event as far as known; 0 if not.
    pace_ns: u64,
    pardoned: bool,
}

impl Probe {
    fn new(start: Time, pace: &Pace) -> Self {
        let early = pace.mean_ns() > PROBE_EARLY_NS || pace.mean_ns() == 0;
        let next = if early { 1 } else { PROBE_LATE };
        Probe { next, start, from: 0, pace_ns: pace.usual_ns(), pardoned: false }
    }

    #[cold]
    #[inline(never)]
    fn is_late(&mut self, core: &Core, at: usize, left: usize) -> bool {
        self.judge(core.clock.now(), at, left)
    }

    /// Whether a visit that has spent `at` events by now must stop with `left` to go.
    fn judge(&mut self, now: Time, at: usize, left: usize) -> bool {
        let (spent, events) = (now.since(self.start), at - self.from);
        if spent <= QUANTUM {
            self.next = at + events;
            self.pace_ns = (spent.as_nanos() as u64 / events as u64).max(1);
            return false;
        }
        let fits = QUANTUM.as_nanos() as u64 / self.pace_ns.max(1);
        if self.pardoned || self.pace_ns == 0 || left as u64 > fits {
            return true;
        }
        *self = Probe { next: at + 1, start: now, from: at, pardoned: true, ..*self };
        false
    }
}

impl<H: Handler> Instance<H> {
    pub(crate) fn make(core: &Arc<Core>, node: &StageNode<H>, index: u32) -> Result<Self, String> {
        let host: Arc<dyn comporta_model::stage::Host> = core.clone();
        let cx = Cx::new(node.rules.name.clone(), index as usize, host);
        let handler = node.make_handler(&cx)?;
        let mut ports = H::Ports::new();
        let exact = node.rules.batch == 1;
        let links = Links::new(core, node.id, &mut ports, exact);
        Ok(Instance {
            index,
            handler,
            ports,
            links,
            cx,
            pending: None,
            kept: Vec::new(),
            sent_lately: 0,
            pace: Pace::default(),
            finishing: false,
            alone: false,
        })
    }

    /// Events it holds that are in flight.
    pub(crate) fn held(&self) -> usize {
        self.pending.as_ref().map_or(0, |pending| {
            pending.chunk.len()
                + pending.ticket.map_or(0, |_| pending.tally.handled + pending.tally.failed)
        })
    }

    /// Runs the handler over the events from `at` on.
    #[inline(never)]
    #[expect(clippy::type_complexity, reason = "a plain function, or none")]
    fn run(
        &mut self,
        slots: &mut [Option<H::Item>],
        at: &mut usize,
        probe: &mut Probe,
        retain: Option<fn(&H::Item) -> H::Item>,
        core: &Core,
    ) -> Stop {
        while *at < slots.len() {
            // The clock is looked at between spans, so that the loop inside stays small.
            let span = if H::GROUPED { slots.len() } else { probe.next.max(*at + 1) };
            let until = slots.len().min(span);
            let stop = if H::IN_PLACE && retain.is_none() {
                self.run_in_place(&mut slots[..until], at)
            } else {
                self.run_span(&mut slots[..until], at, retain)
            };
            if let Some(stop) = stop {
                return stop;
            }
            if *at < slots.len() && probe.is_late(core, *at, slots.len() - *at) {
                return Stop::Late;
            }
        }
        Stop::Spent
    }

    /// In place, what is handled is what is sent, and the handler sees nothing but its event.
    #[inline(always)]
    fn run_in_place(&mut self, slots: &mut [Option<H::Item>], at: &mut usize) -> Option<Stop> {
        let Instance { handler, ports, cx, .. } = self;
        let room = handler.allowance(ports);
        let until = slots.len().min(room.saturating_add(1));
        for slot in slots.get_mut(*at..until).unwrap_or_default() {
            if let Err(error) = handler.call(std::slice::from_mut(slot), ports, cx) {
                return Some(Stop::Failed(error));
            }
            *at += 1;
        }
        cx.set_attempt(1);
        (*at > room).then_some(Stop::Full)
    }

    #[inline(always)]
    #[expect(clippy::type_complexity, reason = "a plain function, or none")]
    fn run_span(
        &mut self,
        slots: &mut [Option<H::Item>],
        at: &mut usize,
        retain: Option<fn(&H::Item) -> H::Item>,
    ) -> Option<Stop> {
        let Instance { handler, ports, cx, kept, .. } = self;
        let mut again = cx.attempt() > 1;
        while *at < slots.len() {
            let end = if H::GROUPED { slots.len() } else { *at + 1 };
            ports.each(&mut Mark);
            if let Some(copy) = retain {
                kept.clear();
                kept.extend(slots[*at..end].iter().flatten().map(copy));
            }
            if let Err(error) = handler.call(&mut slots[*at..end], ports, cx) {
                return Some(Stop::Failed(error));
            }
            let mut over = Over(H::IN_PLACE && *at >= handler.allowance(ports));
            ports.each(&mut over);
            if over.0 {
                let mut flooded = Flooded(false);
                ports.each(&mut flooded);
                if flooded.0 {
                    return Some(Stop::Failed(Error::msg("flood")));
                }
            }
            if needs_drop::<H::Item>() && !H::IN_PLACE {
                slots[*at..end].fill_with(|| None);
            }
            *at = end;
            if again {
                cx.set_attempt(1);
                again = false;
            }
            if over.0 {
                return Some(Stop::Full);
            }
            if cx.is_quitting() {
                return Some(Stop::Quit);
            }
        }
        None
    }
}

impl<H: Handler> StageNode<H> {
    pub(crate) fn make_handler(&self, cx: &Cx) -> Result<H, String> {
        let made = guard(|| {
            let mut handler = (self.maker)(cx)?;
            handler.init(cx)?;
            Ok::<H, Error>(handler)
        });
        match made {
            Ok(Ok(handler)) => Ok(handler),
            Ok(Err(error)) => Err(error.to_string()),
            Err(reason) => Err(reason.to_string()),
        }
    }

    /// One visit of a free instance to the queue.
    pub(crate) fn visit_events(&self, core: &Arc<Core>, now: Time, wakes: &mut Wakes) {
        if let Some((instance, chunk, ticket)) = self.take_events(core, wakes) {
            self.run(core, instance, chunk, (ticket, Tally::default()), now, wakes);
        }
    }

    #[expect(clippy::type_complexity, reason = "what a visit is made of, used once")]
    fn take_events(
        &self,
        core: &Core,
        wakes: &mut Wakes,
    ) -> Option<(Box<Instance<H>>, Chunk<H::Item>, Option<u64>)> {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        if state.claims == 0 {
            return None; // a copy of a token that was used
        }
        state.claims -= 1;
        let mut instance = state.idle.pop()?;
        instance.alone = state.instances + state.retiring == 1;
        let chunk = match self.rules.group {
            None => state.queue.pop(self.stride(core, state.stride)),
            Some((size, _)) => {
                state.flush_due = false;
                let gathered = gather(&mut state.queue, size);
                let now = core.clock.now();
                state.flush_at = state.flush_at.filter(|due| *due > now);
                self.gather_on(core, state);
                gathered
            }
        };
        let Some(chunk) = chunk else {
            state.idle.push(instance);
            deactivate(state.desk.cycle.as_ref(), wakes);
            if state.is_over() {
                wakes.over.push(self.id);
            }
            return None;
        };
        state.in_flight += chunk.len();
        state.desk.counts.visits += 1;
        if state.desk.has_waiters() {
            state.desk.pass_room(state.queue.len(), wakes);
            if !state.desk.has_waiters() {
                core.disinherit(self.id);
            }
        }
        let ticket = self.rules.ordered.then(|| {
            state.tickets_out += 1;
            state.next_ticket += 1;
            state.next_ticket - 1
        });
        state.claim(self.id, &self.rules, wakes);
        Some((instance, chunk, ticket))
    }

    fn stride(&self, core: &Core, stride: usize) -> usize {
        if core.is_tested() && !self.faults.lock().is_empty() { 1 } else { stride }
    }

    /// Runs an instance over a chunk, sends what it emits, and settles.
    pub(crate) fn run(
        &self,
        core: &Arc<Core>,
        mut instance: Box<Instance<H>>,
        mut chunk: Chunk<H::Item>,
        (ticket, mut tally): (Option<u64>, Tally),
        start: Time,
        wakes: &mut Wakes,
    ) {
        let who = Who::Instance { stage: self.id, instance: instance.index };
        instance.cx.set_times(chunk.meta.ingress, chunk.meta.deadline);
        let Instance { ports, links, sent_lately, alone, .. } = &mut *instance;
        if ticket.is_some() {
            ports.each(&mut Unbounded(self.rules.emit_max));
        } else {
            let want = chunk.len().max(*sent_lately);
            links.draw(ports, want, self.rules.emit_max, (&who, *alone));
        }
        let mut at = 0;
        let failed_before = tally.failed;
        let mut probe = Probe::new(start, &instance.pace);
        if ticket.is_some() {
            probe.next = usize::MAX; // its events left the queue in order and must be handled together
        }
        let wait = loop {
            let fault = if core.is_tested() { self.faults.lock().pop() } else { None };
            let stop = guard(|| match fault {
                None => {
                    instance.run(chunk.slots_mut(), &mut at, &mut probe, self.rules.retain, core)
                }
                Some(Fault::Error(message)) => Stop::Failed(Error::msg(message)),
                Some(Fault::Panic(message)) => std::panic::panic_any(message),
            });
            let reason = match stop {
                Ok(Stop::Spent | Stop::Full | Stop::Late | Stop::Quit) => break None,
                Ok(Stop::Failed(error)) => Reason::Error(error.to_string()),
                Err(panic) => panic,
            };
            match self.failed(core, &mut instance, &mut chunk, &mut at, reason, &mut tally) {
                Next::On => {}
                Next::Wait(wait) => break Some(wait),
                // The events of a ticket are handled together: it gets a new allowance.
                Next::Stop if ticket.is_some() => {
                    instance.ports.each(&mut Unbounded(self.rules.emit_max));
                }
                Next::Stop => break None,
            }
        };
        tally.handled += at - (tally.failed - failed_before);
        let ran = Ran { at, tally, ticket, wait, start };
        self.conclude(core, instance, chunk, ran, wakes);
    }

    /// The event at `at` failed: withdraws what it sent and decides what becomes of it.
    fn failed(
        &self,
        core: &Core,
        instance: &mut Instance<H>,
        chunk: &mut Chunk<H::Item>,
        at: &mut usize,
        reason: Reason,
        tally: &mut Tally,
    ) -> Next {
        let mut flooded = Flooded(false);
        instance.ports.each(&mut flooded);
        instance.ports.each(&mut Withdraw);
        if flooded.0 && self.rules.ordered {
            // The visit of an ordered stage handles all of its events; its allowance has no end.
            instance.ports.each(&mut Unbounded(self.rules.emit_max));
        }
        let reason = if flooded.0 { Reason::Flood(self.rules.emit_max) } else { reason };
        if matches!(reason, Reason::Panic(..)) && self.rules.on_panic == OnPanic::Reset {
            match self.make_handler(&instance.cx) {
                Ok(handler) => instance.handler = handler,
                Err(error) => tracing::warn!(
                    stage = %self.rules.name, %error, "an instance could not be made anew after a panic"
                ),
            }
        }
        let attempt = instance.cx.attempt();
        let meta = chunk.meta.clone();
        let slots = chunk.slots_mut();
        let end = if H::GROUPED { slots.len() } else { *at + 1 };
        let failed = &mut slots[*at..end];
        if failed.iter().any(Option::is_none) {
            for (slot, copy) in failed.iter_mut().zip(instance.kept.drain(..)) {
                *slot = Some(copy);
            }
        }
        let whole = failed.iter().all(Option::is_some);
        if let Some(wait) = self.rules.retry.wait_after(attempt).filter(|_| whole) {
            tally.retried += 1;
            instance.cx.set_attempt(attempt + 1);
            return if wait.is_zero() { Next::On } else { Next::Wait(wait) };
        }
        instance.cx.set_attempt(1);
        tally.failed += failed.len();
        let now = core.clock.now();
        let mut failures = self.failures.lock();
        for slot in failed {
            failures.push(reason.clone(), attempt, now, slot.take(), &meta);
        }
        *at = end;
        // A flood took the allowance of the visit with it.
        if flooded.0 && !self.rules.ordered { Next::Stop } else { Next::On }
    }
}

/// What a visit does after a failure.
enum Next {
    On,
    Wait(Duration),
    Stop,
}

/// A visit that has run: where it stopped and how its events ended.
pub(crate) struct Ran {
    /// Events of the chunk that are spent.
    pub(crate) at: usize,
    pub(crate) tally: Tally,
    pub(crate) ticket: Option<u64>,
    /// The event at `at` is to be tried again after this.
    pub(crate) wait: Option<Duration>,
    pub(crate) start: Time,
}

/// Takes up to `size` events as one chunk. Where they belong to different acknowledgement groups,
/// or only some to one, a group of its own stands for them all.
fn gather<T: Send + 'static>(queue: &mut ChunkQueue<T>, size: usize) -> Option<Chunk<T>> {
    let mut gathered = queue.pop(size)?;
    let mut parts: Vec<(Arc<AckGroup>, u64)> = Vec::new();
    let mut mixed = false;
    let mut note = |meta: &Meta, n: usize| match (&meta.ack, parts.last_mut()) {
        (None, _) => mixed = true,
        (Some(group), Some((last, count))) if Arc::ptr_eq(group, last) => *count += n as u64,
        (Some(group), _) => parts.push((group.clone(), n as u64)),
    };
    note(&gathered.meta, gathered.len());
    while gathered.len() < size
        && let Some(more) = queue.pop(size - gathered.len())
    {
        note(&more.meta, more.len());
        gathered.meta.absorb(&more.meta);
        let deadlines = [gathered.meta.deadline, more.meta.deadline];
        gathered.meta.deadline = deadlines.into_iter().flatten().min();
        gathered.append(&mut more.into_events());
    }
    let len = gathered.len() as u64;
    if parts.len() > 1 || parts.first().is_some_and(|(_, n)| *n < len) {
        let group = AckGroup::open(0, move |settled| {
            let fate = match settled {
                _ if settled.is_clean() => Fate::Handled,
                _ if settled.failed > 0 => Fate::Failed,
                _ if settled.shed > 0 => Fate::Shed,
                _ => Fate::Cancelled,
            };
            for (group, n) in &parts {
                group.settle(*n, fate);
            }
        });
        group.join(len - 1); // it was opened holding one
        gathered.meta.ack = Some(group);
    }
    Some(gathered)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_slow_visit_moves_the_mean_but_not_what_is_usual() {
        let mut pace = Pace::default();
        assert_eq!((pace.mean_ns(), pace.usual_ns()), (0, 0));
        pace.note(40_000); // even if it is the first
        assert_eq!(pace.usual_ns(), 40_000);
        pace.note(4);
        assert_eq!(pace.usual_ns(), 4);
        pace.note(40_000);
        pace.note(5);
        pace.note(4);
        assert_eq!(pace.usual_ns(), 5);
        assert!(pace.mean_ns() > 1000);
    }

    #[test]
    fn two_slow_visits_in_a_row_are_the_new_usual() {
        let mut pace = Pace::default();
        for ns in [4, 4, 4, 40_000, 50_000] {
            pace.note(ns);
        }
        assert_eq!(pace.usual_ns(), 40_000);
    }

    const MS: u64 = 1_000_000;

    fn probe(usual_ns: u64) -> Probe {
        let mut pace = Pace::default();
        pace.note(usual_ns);
        Probe::new(Time::ZERO, &pace)
    }

    fn at_ns(ns: u64) -> Time {
        Time::from_nanos(ns)
    }

    #[test]
    fn a_fast_visit_that_is_late_all_of_a_sudden_goes_on() {
        let mut probe = probe(4);
        assert_eq!(probe.next, PROBE_LATE);
        assert!(!probe.judge(at_ns(5 * MS), 128, 128));
        assert_eq!(probe.next, 129);
        assert!(!probe.judge(at_ns(5 * MS + 4), 129, 127));
        assert_eq!(probe.next, 130);
        assert!(!probe.judge(at_ns(5 * MS + 8), 130, 126));
        assert_eq!(probe.next, 132);
    }

    #[test]
    fn a_handler_that_became_slow_costs_one_event_more() {
        let mut probe = probe(4);
        assert!(!probe.judge(at_ns(128 * MS), 128, 128));
        assert!(probe.judge(at_ns(129 * MS), 129, 127));
    }

    #[test]
    fn a_visit_is_not_pardoned_before_its_pace_is_known_or_where_the_rest_does_not_fit() {
        let mut first = Probe::new(Time::ZERO, &Pace::default());
        assert!(first.judge(at_ns(MS), 1, 255));
        let mut slow = probe(1_000); // 100 fit a visit
        assert!(!slow.judge(at_ns(1_000), 1, 255));
        assert!(!slow.judge(at_ns(2_000), 2, 254));
        assert!(slow.judge(at_ns(MS), 4, 101));
    }

    #[test]
    fn the_clock_is_looked_at_after_1_2_4_and_8_events() {
        let mut probe = Probe::new(Time::ZERO, &Pace::default());
        for (at, next) in [(1, 2), (2, 4), (4, 8), (8, 16)] {
            assert_eq!(probe.next, at);
            assert!(!probe.judge(at_ns(1), at, 100));
            assert_eq!(probe.next, next);
        }
    }
}
