//! A spike: a handler of another kind, one whose events are in flight without an instance. An instance
//! begins an event and is free again; a future stands for what the event will lead to. It is polled by
//! workers, for tokens that its waker makes, and lands in the releaser of `order`, whose links belong to no
//! instance. An ordered stage gives an event its ticket when it is taken, another when it lands.
//!
//! What it showed: an event in flight waits with a `Place`, as every sender does, and a wake-up is a grant. A
//! ticket then belongs to an event, not to a visit. The number of events in flight needs a bound of its own,
//! which instances gave before. An event that its handler took is gone when the future fails: a retry needs
//! the copy that `retain` makes.

use std::pin::Pin;
use std::task::{Context, Poll, Wake};

use comporta_model::ack::{Fate, Obligation};
use comporta_model::column::{Columns, Duties, Duty};
use comporta_model::event::{Meta, Time};
use comporta_model::port::Ports;
use comporta_model::stage::Handler;

use super::handle::{Instance, Tally};
use super::order::Deposited;
use super::ports::{Flooded, Mark, Owes, Unbounded, Withdraw};
use super::queue::Turn;
use super::take::Batch;
use super::{Phase, Stage, State};
use crate::core::Core;
use crate::effects::{Effects, Visit};
use crate::failure::Reason;
use crate::path::emit::InLine;
use crate::path::line::Place;
use crate::path::ready::{Task, Token};
use crate::sync::Arc;
use crate::user;

/// Sends what an event led to.
pub(crate) type Emit<P> = Box<dyn FnOnce(&mut P) + Send>;
/// What an event will lead to.
pub(crate) type Landing<P> = Pin<Box<dyn Future<Output = Emit<P>> + Send>>;
/// Begins to handle an event.
pub(crate) type Begin<T, P> = Box<dyn Fn(T) -> Landing<P> + Send + Sync>;

/// How a stage handles events whose results come later.
pub(crate) struct Flights<T, P> {
    pub(crate) begin: Begin<T, P>,
    /// Its results leave in the order in which its events came.
    pub(crate) ordered: bool,
    /// So many events may be in flight at once.
    pub(crate) most: usize,
}

/// An event in flight. Its place is what it waits with: a wake-up is a grant.
pub(super) struct Flight<P> {
    future: Landing<P>,
    place: Arc<Place>,
    meta: Meta,
    owed: Duties,
    enqueued: Time,
    ticket: Option<u64>,
    turn: Option<Turn>,
}

/// What a future wakes.
struct FlightWaker {
    core: std::sync::Weak<Core>,
    place: Arc<Place>,
}

impl Wake for FlightWaker {
    fn wake(self: Arc<Self>) {
        let wakes = self.place.grant(1);
        if let (Some(core), Some(token)) =
            (self.core.upgrade().filter(|_| wakes), self.place.token())
        {
            core.make_ready(token);
        }
    }
}

impl<H: Handler> Stage<H> {
    /// So many visits may begin, of those that could.
    pub(super) fn may_fly(&self, state: &State<H>, visits: usize) -> usize {
        let most = self.flights.as_ref().map_or(usize::MAX, |flights| flights.most);
        visits.min(most.saturating_sub(state.in_flight))
    }

    /// Begins the event of a visit.
    pub(super) fn fly(
        &self,
        core: &Arc<Core>,
        mut instance: Box<Instance<H>>,
        mut batch: Batch<H::Item>,
        visit: &mut Visit,
    ) {
        assert!(batch.tray.is_none() && batch.chunk.len() == 1, "a flight is one event");
        let (Some(flights), Some(event)) = (&self.flights, batch.chunk.slots_mut()[0].take())
        else {
            return;
        };
        let meta = Meta { duty: batch.chunk.first_duty().0.clone(), ..batch.chunk.meta.clone() };
        let owed = batch.chunk.spend(1);
        let begun = visit.effects.hand_over(core).call(|| (flights.begin)(event));
        let turn = instance.turn.take();
        let number = {
            let mut guard = self.state.lock();
            let state = &mut *guard;
            if let Some(cycle) = &state.cycle {
                cycle.activate(); // in flight it can act
            }
            self.place(core, state, instance, InLine::No, &mut visit.effects);
            self.changed(core, state, &mut visit.effects);
            state.flown += 1;
            state.flown
        };
        let place = Place::of_task(Token::new(self.id, Task::Wake { flight: number }));
        let (enqueued, ticket) = (meta.enqueued, batch.ticket);
        let (future, failed): (Landing<_>, _) = match begun {
            Ok(future) => (future, None),
            Err(reason) => (Box::pin(std::future::pending()), Some(reason)),
        };
        let flight = Flight { future, place, meta, owed, enqueued, ticket, turn };
        match failed {
            Some(reason) => self.land(core, flight, Err(reason), visit),
            None => self.poll(core, number, flight, visit),
        }
    }

    /// The waker of a flight was called.
    pub(super) fn wake(&self, core: &Arc<Core>, number: u32, visit: &mut Visit) {
        let flight = self.state.lock().flights.remove(&number);
        if let Some(flight) = flight {
            self.poll(core, number, flight, visit);
        } // else it is being polled, or was cancelled
    }

    fn poll(&self, core: &Arc<Core>, number: u32, mut flight: Flight<H::Ports>, visit: &mut Visit) {
        let _ = flight.place.take(); // what it was woken for
        let waker = FlightWaker { core: Arc::downgrade(core), place: flight.place.clone() };
        let waker = Arc::new(waker).into();
        let user = visit.effects.hand_over(core);
        let polled = user.call(|| flight.future.as_mut().poll(&mut Context::from_waker(&waker)));
        match polled {
            Ok(Poll::Ready(emit)) => self.land(core, flight, Ok(emit), visit),
            Err(reason) => self.land(core, flight, Err(reason), visit),
            Ok(Poll::Pending) => {
                let mut state = self.state.lock();
                if state.phase == Phase::Cancelled {
                    return state.cancel_flight(flight, &mut visit.effects);
                }
                let place = flight.place.clone();
                state.flights.insert(number, flight);
                if place.park() {
                    visit.effects.tokens.extend(place.token()); // it was woken meanwhile
                }
            }
        }
    }

    /// An event has led to all it will.
    fn land(
        &self,
        core: &Arc<Core>,
        flight: Flight<H::Ports>,
        landed: Result<Emit<H::Ports>, Reason>,
        visit: &mut Visit,
    ) {
        let Flight { future, meta, owed, enqueued, ticket, turn, .. } = flight;
        user::discard(future);
        let mut ports = H::Ports::new();
        ports.each(&mut Unbounded(self.emit_max()));
        ports.each(&mut Mark);
        if meta.duty != Duty::default() {
            ports.each(&mut Owes(&meta.duty)); // what leaves before it owes something else
        }
        let landed = landed.and_then(|emit| user::call(|| emit(&mut ports)));
        let mut flooded = Flooded(false);
        ports.each(&mut flooded);
        let failed = match landed {
            Ok(()) if flooded.0 => Some(Reason::Flood(self.emit_max())),
            landed => landed.err(),
        };
        let (tally, spent) = match failed {
            None => (Tally { handled: 1, ..Tally::default() }, owed),
            Some(reason) => {
                ports.each(&mut Withdraw);
                let mut taken = None;
                let event = std::iter::once((&mut taken, Columns::default()));
                self.set_aside(core, event, reason, 1, &meta);
                owed.settle(Fate::Failed);
                (Tally { failed: 1, ..Tally::default() }, Duties::default())
            }
        };
        visit.done = 1;
        let end = core.clock.now();
        visit.end = Some(end);
        let ticket = {
            let mut state = self.state.lock();
            turn.into_iter().for_each(|turn| state.queue.done(turn));
            ticket.unwrap_or_else(|| state.tickets.take())
        };
        let meta = Meta { home: visit.home, enqueued: end, ..meta };
        let of = Deposited { tally, meta, spent, together: Obligation::default(), enqueued };
        if self.deposit(&mut ports, ticket, of) {
            self.release_results(core, visit);
        }
        let mut guard = self.state.lock();
        self.claim(&mut guard, &mut visit.effects);
        guard.deactivate(&mut visit.effects);
        self.changed(core, &mut guard, &mut visit.effects);
    }
}

impl<H: Handler> State<H> {
    fn cancel_flight(&mut self, flight: Flight<H::Ports>, effects: &mut Effects) {
        self.in_flight -= 1;
        self.counts.cancelled += 1;
        flight.owed.settle(Fate::Cancelled);
        effects.discard(flight);
    }

    /// The program stops.
    pub(super) fn cancel_flights(&mut self, effects: &mut Effects) {
        for (_, flight) in std::mem::take(&mut self.flights) {
            self.cancel_flight(flight, effects);
        }
    }
}

mod tests {
    use std::collections::{BTreeMap, HashMap};
    use std::sync::mpsc;
    use std::task::Waker;
    use std::time::Duration;

    use comporta_model::ack::Settled;
    use comporta_model::plan::Plan;
    use comporta_model::port::Out;
    use comporta_model::source::{Demand, Pull, Source};

    use super::*;
    use crate::app::App;
    use crate::path::work::is_worker;
    use crate::running::{Ended, Running, Summary};
    use crate::sync::Mutex;

    const BOUND: Duration = Duration::from_secs(30);
    const MOST: usize = 16;

    /// What events in flight wait for: each is let go, from outside, by its number.
    #[derive(Clone)]
    struct World {
        waiting: Arc<Mutex<HashMap<u64, Waker>>>,
        ready: Arc<Mutex<Vec<u64>>>,
        begun: mpsc::Sender<u64>,
    }

    impl World {
        fn new() -> (Self, mpsc::Receiver<u64>) {
            let (begun, heard) = mpsc::channel();
            (World { waiting: Arc::default(), ready: Arc::default(), begun }, heard)
        }

        async fn answer(self, n: u64) -> u64 {
            let mut told = false;
            std::future::poll_fn(|cx| {
                assert!(is_worker(), "polled on a thread that is no worker's");
                if self.ready.lock().contains(&n) {
                    return Poll::Ready(());
                }
                let before = self.waiting.lock().insert(n, cx.waker().clone());
                drop(before);
                if !std::mem::replace(&mut told, true) {
                    let _ = self.begun.send(n);
                }
                // It may have been let go in between, when there was nobody to wake.
                if self.ready.lock().contains(&n) { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
            n
        }

        fn let_go(&self, n: u64) {
            self.ready.lock().push(n);
            let waker = self.waiting.lock().remove(&n);
            waker.into_iter().for_each(Waker::wake);
        }
    }

    /// What a future gives is sent on.
    fn sending<F>(begin: impl Fn(u64) -> F + Send + Sync + 'static) -> Begin<u64, Out<u64>>
    where
        F: Future<Output = u64> + Send + 'static,
    {
        Box::new(move |n| {
            let answer = begin(n);
            Box::pin(async move {
                let n = answer.await;
                Box::new(move |out: &mut Out<u64>| out.send(n)) as Emit<Out<u64>>
            })
        })
    }

    fn never(_: u64, _: &mut Out<u64>) {
        unreachable!("the stage begins its events");
    }

    /// One instance, two threads; what arrives at the end is in the returned list.
    fn start(
        source: impl FnOnce(&App) -> comporta_model::port::Port<u64>,
        ordered: bool,
        begin: Begin<u64, Out<u64>>,
    ) -> (Running, Arc<Mutex<Vec<u64>>>) {
        let arrived = Arc::new(Mutex::new(Vec::new()));
        let see = arrived.clone();
        let app = App::new("flights");
        let numbers = source(&app);
        let ask = app.process("ask", never);
        let ask = if ordered { ask.ordered() } else { ask };
        let ask = ask.with_flights(begin, ordered, MOST);
        let end = app.sink("end", move |n: u64| see.lock().push(n));
        app.connect(numbers, ask);
        app.connect(ask, end);
        let plan = Plan::new().threads(2).stage("ask", |ask| ask.batch(1));
        let started = app.start(&plan.stage("end", |end| end.capacity(2)));
        (started.expect("the plan fits the program"), arrived)
    }

    fn complete(running: Running) -> Summary {
        let summary = running.wait_for(BOUND).unwrap_or_else(|_| panic!("a flight is stuck"));
        assert_eq!(summary.ended, Ended::Complete);
        assert!(summary.snapshot.adds_up(), "{summary}");
        summary
    }

    #[test]
    fn events_in_flight_occupy_neither_an_instance_nor_a_thread() {
        let (world, begun) = World::new();
        let of = world.clone();
        let begin = sending(move |n| of.clone().answer(n));
        let numbers = MOST as u64 + 4;
        let (running, arrived) =
            start(|app| app.source("numbers", move || 0..numbers), false, begin);
        let mut all: Vec<u64> = begun.iter().take(MOST).collect();
        all.sort_unstable(); // two workers begin them
        assert!(all.iter().copied().eq(0..MOST as u64), "{all:?} are in flight at once");
        let now = running.snapshot();
        let ask = now.stage("ask").unwrap();
        assert_eq!((ask.in_flight, ask.instances), (MOST, 1), "no more than may be");
        assert!(now.adds_up());
        (1..MOST as u64).for_each(|n| world.let_go(n));
        begun.iter().take(4).for_each(|n| world.let_go(n));
        while arrived.lock().len() < numbers as usize - 1 {
            std::thread::yield_now();
        }
        world.let_go(0); // all others have overtaken it
        let summary = complete(running);
        let mut arrived = arrived.lock().clone();
        assert_eq!(arrived.pop(), Some(0));
        arrived.sort_unstable();
        assert!(arrived.into_iter().eq(1..numbers), "{summary}");
    }

    #[test]
    fn results_of_an_ordered_stage_leave_in_order_across_awaits() {
        const NUMBERS: u64 = 400;
        const TOGETHER: usize = 4; // as many as an ordered stage of one instance lets begin
        let (world, begun) = World::new();
        let of = world.clone();
        let begin = sending(move |n| of.clone().answer(n));
        let (running, arrived) = start(|app| app.source("numbers", || 0..NUMBERS), true, begin);
        for _ in 0..NUMBERS as usize / TOGETHER {
            let together: Vec<u64> = begun.iter().take(TOGETHER).collect();
            together.into_iter().rev().for_each(|n| world.let_go(n));
        }
        let _ = complete(running);
        assert!(arrived.lock().iter().copied().eq(0..NUMBERS));
    }

    #[test]
    fn a_panic_in_a_poll_or_before_costs_one_event() {
        let (world, begun) = World::new();
        let of = world.clone();
        let begin = sending(move |n| {
            assert_ne!(n, 5, "not begun");
            let answer = of.clone().answer(n);
            async move {
                let n = answer.await;
                assert_ne!(n, 3, "not answered");
                n
            }
        });
        let (running, arrived) = start(|app| app.source("numbers", || 0..8_u64), true, begin);
        for n in begun.iter().take(7) {
            world.let_go(n);
        }
        let summary = complete(running);
        assert_eq!(*arrived.lock(), [0, 1, 2, 4, 6, 7]);
        let ask = summary.snapshot.stage("ask").unwrap();
        assert_eq!((ask.counts.handled, ask.counts.failed, ask.failures_kept), (6, 2, 2));
    }

    /// Gives a number each pull, and hears how it ended.
    struct Acknowledged {
        left: u64,
        told: Arc<Mutex<BTreeMap<u64, Settled>>>,
    }

    impl Source for Acknowledged {
        type Item = u64;
        const ACKNOWLEDGED: bool = true;

        fn pull(
            &mut self,
            out: &mut Out<u64>,
            demand: Demand,
        ) -> comporta_model::error::Result<Pull> {
            if self.left == 0 {
                return Ok(Pull::AfterAck);
            }
            self.left -= 1;
            out.send(demand.group);
            Ok(Pull::More)
        }

        fn settled(&mut self, settled: Settled) {
            self.told.lock().insert(settled.group, settled);
        }
    }

    #[test]
    fn a_stop_cancels_what_is_in_flight_and_its_source_hears_of_it() {
        for ordered in [false, true] {
            let (world, begun) = World::new();
            let of = world.clone();
            let begin = sending(move |n| of.clone().answer(n));
            let told = Arc::<Mutex<BTreeMap<u64, Settled>>>::default();
            let source = Acknowledged { left: 4, told: told.clone() };
            let (running, arrived) =
                start(|app| app.source("numbers", move || source), ordered, begin);
            let mut groups: Vec<u64> = begun.iter().take(4).collect();
            groups.sort_unstable();
            world.let_go(groups[0]);
            // Handled, and acknowledged, before the others.
            while told.lock().is_empty() {
                std::thread::yield_now();
            }
            let summary = running.stop();
            assert!(summary.snapshot.adds_up(), "{summary}");
            let counts = summary.snapshot.stage("ask").unwrap().counts;
            assert_eq!((counts.handled, counts.cancelled), (1, 3), "{summary}");
            assert_eq!(*arrived.lock(), groups[..1]);
            let cancelled: Vec<u64> = told.lock().values().map(|told| told.cancelled).collect();
            assert_eq!(cancelled, [0, 1, 1, 1]);
            groups.into_iter().for_each(|n| world.let_go(n)); // nobody is there any more
        }
    }
}
