//! A stage that runs: its queue, who may enter it, its instances, and the visits they make. All that
//! changes stands under one lock, in parts that know nothing of each other:
//! 1. [`inlet`] is what senders reach it by: asks [`gate`], the admission controller, then
//! 2. [`permits`], which decides who enters and holds those who wait, then
//! 3. [`queue`], or [`lanes`] of a keyed stage, and makes the tokens that [`instances`] says are due; [`groups`] says
//!    when a batch is.
//! 4. [`take`] begins a visit with an instance and a batch; [`tray`] holds what it has not begun; [`keyed`] asks for the
//!    lanes of events, and makes the visits that timers and expiry ask for.
//! 5. [`handle`] runs the handler over it ([`call`]), for as long as [`pace`] says; [`flight`] holds events whose handlers wait;
//!    [`fail`] decides what becomes of an event that failed; [`ports`] is what they ask of the ports.
//!    [`plain`] is 4 to 6 in one go, for visits in which nothing special is to be seen to.
//! 6. [`settle`] counts how events ended, and says where the instance goes; [`put_back`] queues what was not come to;
//!    [`finish`] ends it; [`order`] lets the results of an ordered stage out in order.
//! 7. [`node`] is what the rest of the runtime asks of a stage: its life, its numbers, live change.
//!
//! Invariant: no user code runs under the lock. What must be dropped goes into the visit's effects.

pub(crate) mod inlet;
pub(crate) mod gate;
pub(crate) mod permits;
pub(crate) mod queue;
pub(crate) mod lanes;
mod instances;
pub(crate) mod groups;
mod take;
mod plain;
mod keyed;
pub(crate) mod top_keys;
mod tray;
pub(crate) mod handle;
mod call;
pub(crate) mod flight;
pub(crate) mod fail;
pub(crate) mod pace;
pub(crate) mod ports;
mod settle;
mod put_back;
mod finish;
mod order;
mod node;

use comporta_model::ack::{Because, Fate};
use comporta_model::chunk::Chunk;
use comporta_model::event::{Meta, Time};
use comporta_model::keyed::{Keys, LaneRef};
use comporta_model::kind::Kind;
use comporta_model::plan::{OnPanic, Retry, WhenFull};
use comporta_model::port::Ports;
use comporta_model::replicas::Part;
use comporta_model::stage::Cx;

use crate::core::Core;
use crate::cycle::Cycle;
use crate::effects::Effects;
use crate::failed_event::Reporter;
use crate::failure::Failures;
use crate::latency::Latency;
use crate::path::emit::Links;
use crate::path::line::Place;
use crate::path::ready::{Task, Token};
use crate::path::room::RoomHint;
use crate::snapshot::Counts;
use crate::sync::{Arc, AtomicUsize, CachePadded, Mutex, OnceLock};
use call::DynHandler;
use fail::Faults;
use gate::Gate;
use groups::{Gathering, GroupSize};
use instances::{Instances, instances_for};
use order::Order;
use permits::{Permits, Shed};
use queue::{Side, StageQueue};
use top_keys::TopKeys;

/// Makes the handler of an instance.
pub(crate) type Maker<H> =
    Box<dyn Fn(&Cx) -> comporta_model::error::Result<Box<dyn DynHandler<H>>> + Send + Sync>;

/// Copies an event.
pub(crate) type CopyFn<T> = fn(&T) -> T;

/// A stage that runs.
pub(crate) struct Stage<H: Kind> {
    id: u32,
    rules: Rules<H::Item>,
    maker: Maker<H>,
    state: CachePadded<Mutex<State<H>>>,
    room: Arc<CachePadded<RoomHint>>,
    gate: Gate,
    /// How it is handed groups; known from the first instance on.
    group: OnceLock<GroupSize>,
    failures: Mutex<Failures<H::Item>>,
    order: Option<Box<Order<H::Ports>>>,
    faults: Mutex<Faults>,
    /// Threads that may visit it, of which a keyed stage gives each its share.
    threads: AtomicUsize,
    lane_watch: keyed::LaneWatch,
    /// Its visits may be plain.
    plain: bool,
    /// Its busiest keys, from when somebody has them counted.
    top_keys: OnceLock<Box<Mutex<TopKeys<LaneRef>>>>,
}

/// What is fixed about a stage.
pub(crate) struct Rules<T> {
    pub(crate) name: Arc<str>,
    pub(crate) batch: usize,
    pub(crate) retry: Retry,
    /// How many events one event may lead to.
    pub(crate) emit_max: usize,
    pub(crate) on_panic: OnPanic,
    /// How long an event may take whose handler waits.
    pub(crate) timeout: Option<std::time::Duration>,
    /// Its events must be handled as they came, or it has state that may depend on it.
    pub(crate) in_order: bool,
    /// Nothing leads on from it: what it handled has left the program.
    pub(crate) last: bool,
    /// Its handlers may send before they have handled an event.
    pub(crate) flushes: bool,
    /// It swallows its events: no handler is made.
    pub(crate) stub: bool,
    /// How to copy an event, if the stage retains.
    pub(crate) retain: Option<CopyFn<T>>,
    /// Called for each event that has failed for good.
    pub(crate) on_failed: Option<Reporter<T>>,
    /// The keys of its events, if it is keyed: each event comes to the queue with its lane.
    pub(crate) keys: Option<Arc<dyn Keys<T>>>,
}

/// What a stage is made of.
pub(crate) struct Parts<H: Kind> {
    pub(crate) id: u32,
    pub(crate) rules: Rules<H::Item>,
    pub(crate) maker: Maker<H>,
    pub(crate) group: Option<GroupSize>,
    pub(crate) ordered: bool,
    pub(crate) queue: StageQueue<H::Item>,
    pub(crate) capacity: usize,
    pub(crate) when_full: WhenFull,
    pub(crate) cycle: Option<Arc<Cycle>>,
    /// Producers outside of a cycle.
    pub(crate) producers: usize,
    /// As the plan has it: of a stage whose handlers wait, events that may be in flight.
    pub(crate) instances: usize,
    pub(crate) replica: Part,
    pub(crate) failures_max: usize,
    pub(crate) controller: Option<gate::Controller>,
}

/// Everything of a stage that changes.
struct State<H: Kind> {
    queue: StageQueue<H::Item>,
    permits: Permits,
    instances: Instances<H>,
    gathering: Gathering,
    tickets: order::Tickets,
    counts: Counts,
    /// Events that wait in the outboxes of their senders.
    outboxed: usize,
    /// Events that waited there and never came.
    given_up: usize,
    /// Events taken from the queue and not settled.
    in_flight: usize,
    /// Its visits take longer than it takes to move their events, as far as is known; and they take long.
    pays_to_move: bool,
    slow: bool,
    pace: pace::StagePace,
    /// How long what it handled had been in the program, if nothing leads on from it.
    latency: Latency,
    cycle: Option<Arc<Cycle>>,
    /// Producers that have not ended; those of a cycle are counted with it.
    producers: usize,
    phase: Phase,
    /// The program drains: nothing more comes in from outside.
    draining: bool,
    /// Events whose handlers wait.
    flights: flight::Flights<H>,
    /// Of a keyed stage in a cycle: lanes that wait to try an event again, as its cycle knows.
    lanes_waiting: usize,
}

/// How far a stage is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Open,
    /// So many instances have yet to finish.
    Finishing(usize),
    Ended,
    /// Stopped before its end.
    Cancelled,
}

impl<H: Kind> Stage<H> {
    /// What joins a sender of this stage to the queues that its output ports and its error port lead to.
    fn links(&self, core: &Arc<Core>, ports: &mut H::Ports, place: Arc<Place>) -> Links {
        let mut links = Links::new(core, self.id, ports, self.rules.batch == 1, place);
        let port = H::Ports::NAMES.len();
        if let Some(open) = core.wiring.errors(self.id, port) {
            open(&mut links, core, self.id, port);
        }
        links
    }

    pub(crate) fn new(parts: Parts<H>) -> Self {
        let Parts { id, rules, maker, group, ordered, mut queue, capacity, when_full, .. } = parts;
        let gate = Gate::new(parts.controller);
        queue.set_guarded(gate.is_present());
        let queued = queue.len();
        if let Some(cycle) = &parts.cycle {
            cycle.arrived(queued);
        }
        let counts = Counts {
            offered: queued as u64,
            arrived: queued as u64,
            started: queued as u64,
            ..Counts::default()
        };
        let permits = Permits::new(capacity, when_full, parts.cycle.clone(), H::GROUPED);
        let room = Arc::<CachePadded<RoomHint>>::default();
        room.publish(permits.hint(queued));
        room.set_when_full(when_full);
        room.set_guarded(gate.is_present());
        let known_group = OnceLock::new();
        if let Some(size) = group {
            let _ = known_group.set(size);
        }
        Stage {
            id,
            plain: plain::suits::<H>(&rules),
            maker,
            state: CachePadded::new(Mutex::new(State {
                queue,
                permits,
                instances: Instances::new(instances_for::<H>(parts.instances), parts.replica),
                gathering: Gathering::default(),
                tickets: order::Tickets::default(),
                counts,
                outboxed: 0,
                given_up: 0,
                in_flight: 0,
                pays_to_move: true,
                slow: false,
                pace: pace::StagePace::new(rules.batch),
                latency: Latency::default(),
                cycle: parts.cycle,
                producers: parts.producers,
                phase: Phase::Open,
                draining: false,
                flights: flight::Flights::new(parts.instances),
                lanes_waiting: 0,
            })),
            rules,
            room,
            gate,
            group: known_group,
            failures: Mutex::new(Failures::new(parts.failures_max)),
            order: ordered.then(|| Box::new(Order::new())),
            faults: Mutex::default(),
            threads: AtomicUsize::new(1),
            lane_watch: keyed::LaneWatch::default(),
            top_keys: OnceLock::new(),
        }
    }

    /// Makes the tokens that are due: see [`instances`].
    #[inline(always)] // a part of `changed`
    fn claim(&self, state: &mut State<H>, effects: &mut Effects) {
        if matches!(state.phase, Phase::Open) && state.instances.has_unclaimed() {
            self.claim_some(state, effects);
        }
    }

    /// As [`claim`](Self::claim), where so many events are queued and none waits for another.
    #[inline(always)]
    fn claim_for(&self, queued: usize, state: &mut State<H>, effects: &mut Effects) {
        let instances = &mut state.instances;
        let one = instances.idle() == 1 || (queued == 1 && instances.idle() > 0);
        if !one || instances.claims() > 0 {
            return self.claim(state, effects);
        }
        // Mostly one visit is all that could be made, and it has yet to be.
        if state.phase == Phase::Open && self.may_begin(state, 1) > 0 {
            state.instances.add_claims(1);
            effects.tokens.push(Token { home: self.home(state), ..Token::new(self.id, Task::Any) });
        }
    }

    /// The worker that should make the next visit. Single events are taken in the exact order of their coming, wherever
    /// they are.
    #[inline(always)]
    fn home(&self, state: &State<H>) -> u32 {
        let oldest = if self.rules.batch > 1 { state.queue.oldest() } else { None };
        Self::visitor(state).or_else(|| Some(oldest?.meta.home)).unwrap_or(0)
    }

    #[inline(never)]
    fn claim_some(&self, state: &mut State<H>, effects: &mut Effects) {
        let group = if H::GROUPED { self.group.get() } else { None };
        let visits = match group {
            None => state.queue.visits(self.stride(state)),
            Some(size) => state.gathering.visits(state.queue.len(), *size, state.is_last_call()),
        };
        let woken = if H::WAITS { state.flights.woken() } else { 0 };
        let visits = self.may_begin(state, visits) + woken;
        let missing = state.instances.claims_missing(visits);
        if missing == 0 {
            return;
        }
        state.instances.add_claims(missing);
        let home = self.home(state);
        for _ in 0..missing {
            if let Some(cycle) = &state.cycle {
                cycle.activate();
            }
            effects.tokens.push(Token { home, ..Token::new(self.id, Task::Any) });
        }
    }

    /// The worker that is to make the next visits too: to handle events of a quick stage in several places at once costs
    /// more than to handle them one after the other.
    fn visitor(state: &State<H>) -> Option<u32> {
        let by_one = state.instances.count() > 1 && !state.pays_to_move;
        if by_one { state.instances.visitor() } else { None }
    }

    /// Of so many visits for which the queue has events, how many may begin: as many as may be in flight, and have
    /// places in the order of results. A visit asks, too: its token may have been made for a flight that was woken.
    #[inline]
    fn may_begin(&self, state: &State<H>, visits: usize) -> usize {
        let visits = match &self.order {
            Some(_) if H::WAITS => visits.min(state.tickets.allowed(state.flights.most())),
            Some(_) => visits.min(state.tickets.allowed(state.instances.count())),
            None => visits,
        };
        if H::WAITS { visits.min(state.flights.room()) } else { visits }
    }

    /// How many events a visit takes. Where a handler may wait and results leave in order, each event has
    /// a place of its own in that order; where it flushes, what it sent leaves before other events' results.
    fn stride(&self, state: &State<H>) -> usize {
        let alone = H::WAITS && self.order.is_some();
        if alone || (H::WAITS && self.rules.flushes) {
            1
        } else {
            state.pace.stride(self.is_shared(state))
        }
    }

    /// Whether several instances may handle its events in any order: of a keyed stage, those of different lanes.
    fn is_shared(&self, state: &State<H>) -> bool {
        state.instances.count() > 1 && !self.rules.in_order
    }

    /// After every change of the state, before the lock is released: gives room to those who wait for
    /// it, makes the tokens that are due, informs those who ask for room without the lock, and notes
    /// whether the stage has seen its last event.
    #[inline(always)] // each visit comes here twice
    fn changed(&self, core: &Core, state: &mut State<H>, effects: &mut Effects) {
        if self.settled(core, state, effects) {
            let queued = state.queue.len();
            debug_assert_eq!(state.permits.room(queued), state.permits.hint(queued));
            self.room.publish(state.permits.room(queued));
        }
    }

    /// As [`changed`](Self::changed), where the queue and who may enter it are as they were. Returns whether nobody waits for
    /// room, so that little was to be done.
    #[inline(always)]
    fn settled(&self, core: &Core, state: &mut State<H>, effects: &mut Effects) -> bool {
        let plain = !H::WAITS && !H::GROUPED && self.rules.keys.is_none();
        if !plain || !state.permits.is_quiet() {
            self.changed_at_large(core, state, effects);
            return false;
        }
        let queued = state.queue.len();
        if queued > 0 {
            self.claim_for(queued, state, effects);
        }
        if state.producers == 0 && state.is_over() {
            effects.over.push(self.id);
        }
        true
    }

    #[inline(never)]
    fn changed_at_large(&self, core: &Core, state: &mut State<H>, effects: &mut Effects) {
        self.refresh(core, state, effects);
        if let Some(cycle) = &state.cycle
            && state.permits.has_waiters()
            && cycle.is_stuck()
        {
            effects.stuck.push(cycle.clone()); // what came from outside took the room
        }
    }

    /// As [`changed`](Self::changed), by whoever breaks a cycle that is stuck.
    fn refresh(&self, core: &Core, state: &mut State<H>, effects: &mut Effects) {
        let queued = state.queue.len();
        state.permits.pass_on(queued, effects);
        if state.permits.take_line_changed() {
            core.waiting_changed(self.id, || state.permits.waiting_stages());
        }
        self.note_group(core, state);
        if self.rules.keys.is_some() {
            self.note_lanes(core, state, effects);
        }
        if H::WAITS {
            self.note_blocked(state, effects); // instances may have come or gone
        }
        self.claim(state, effects);
        if self.rules.keys.is_some() {
            self.note_waiting_lanes(state, effects);
        }
        self.room.publish(state.permits.hint(queued));
        if state.is_over() {
            effects.over.push(self.id);
        }
    }

    /// Sees to it that the group that gathers is handed over in time.
    fn note_group(&self, core: &Core, state: &mut State<H>) {
        let Some(size) = self.group.get() else { return };
        let timer = state.gathering.note(state.queue.len(), *size, core.clock.now());
        if let Some(due) = timer {
            core.timers.add(due, Token::new(self.id, Task::Flush));
        }
    }

    /// `n` events ended: informs the cycle they belong to.
    #[inline(always)]
    fn cycle_ended(&self, state: &State<H>, n: usize, effects: &mut Effects) {
        if let Some(cycle) = &state.cycle
            && cycle.ended(n)
        {
            effects.over.push(self.id);
        }
    }
}

impl<H: Kind> State<H> {
    /// Whether no more events will come.
    fn is_last_call(&self) -> bool {
        self.cycle.is_none() && self.producers == 0
    }

    /// Whether the stage has seen its last event, and all it sent has left it.
    fn is_over(&self) -> bool {
        let fed = match &self.cycle {
            Some(cycle) => !cycle.is_over(),
            None => self.producers > 0 || self.in_flight + self.queue.len() + self.outboxed > 0,
        };
        self.phase == Phase::Open
            && !fed
            && !self.tickets.is_releasing()
            && self.queue.is_at_rest()
            && self.instances.at_rest()
    }

    /// Something of its cycle can act no more.
    fn deactivate(&self, effects: &mut Effects) {
        if let Some(cycle) = &self.cycle
            && cycle.deactivate()
        {
            effects.stuck.push(cycle.clone());
        }
    }

    /// Sheds up to `n` queued events of the stage `name` from one end. Returns how many there were.
    fn shed_queued(
        &mut self,
        name: &str,
        reason: Shed,
        n: usize,
        from: Side,
        effects: &mut Effects,
    ) -> usize {
        let mut shed = 0;
        while shed < n
            && let Some(chunk) = self.queue.remove(n - shed, from)
        {
            shed += chunk.len();
            self.shed(name, reason, chunk, effects);
        }
        shed
    }

    /// Sheds events that had come to the queue of the stage `name`.
    fn shed(&mut self, name: &str, reason: Shed, chunk: Chunk<H::Item>, effects: &mut Effects) {
        let n = chunk.len() as u64;
        chunk.because(&Because::Shed { stage: name, reason: reason.name() });
        chunk.settle(Fate::Shed);
        effects.discard_events(&mut chunk.into_events());
        self.counts.shed_late += n;
        self.counts.shed[reason as usize] += n;
    }
}

/// The age of what shares `meta`, in the queue it is in.
fn age(meta: &Meta, now: Time) -> std::time::Duration {
    now.duration_since(meta.enqueued)
}
