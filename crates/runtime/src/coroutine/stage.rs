//! `App::stage_coroutine`: a stage whose handlers are coroutines. It is three nodes of the graph:
//!
//! 1. `NAME`       has the queue; its instances hand events over to the loop
//! 2. `NAME-loop`  the loop, which runs a handler for each event and sends what became of it
//! 3. `NAME-out`   sends on what a handler sent, or fails with its reason
//!
//! Invariants: an event that was handed over comes to `NAME-out` once, unless the program stops. No more than
//! `in_flight` handlers have begun and not ended. While so many events were handed over, `NAME` is held: it is not
//! visited, so that no worker waits, and no more is handed over than what visits had in hand.
//!
//! It is three nodes because a stage has no place yet for an event without an instance; as nodes, its parts are
//! counted, bounded and drained like any others.

use std::any::Any;
use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::{OnceLock, Weak};

use comporta_model::error::{Error, Outcome, Result};
use comporta_model::event::Ev;
use comporta_model::port::{AsInput, AsPort, Out, Port, StageKey};
use comporta_model::stage::{Cx, Stage};
use comporta_scheduler::{
    EventSource, Notifier, Registration, Scheduler, Step, channel, listen, spawn,
};

use super::event_loop::{OnDrain, report, wait_for};
use crate::app::App;
use crate::core::Core;
use crate::path::sender::Sender;
use crate::sync::{Arc, AtomicBool, Condvar, Mutex, SeqCst, wait};
use crate::user;

/// What a loop may be allowed to have in flight: less than the coroutines of a scheduler.
const IN_FLIGHT_MAX: usize = 20_000;

/// What became of an event.
struct Done<O> {
    sent: Vec<O>,
    result: Result,
}

/// What hands events over shares with the loop.
struct HandOver<I> {
    in_flight_max: usize,
    /// The stage `NAME`, known once it is declared.
    stage: OnceLock<u32>,
    state: Mutex<State<I>>,
    begun: Condvar,
    /// The program stops: what is in flight is cancelled.
    stopped: AtomicBool,
}

struct State<I> {
    to_loop: ToLoop<I>,
    /// Events handed over of which it is not yet known what became of them.
    in_flight: usize,
    /// Whether the stage is held.
    held: bool,
    /// Instances that have not finished.
    instances: usize,
}

/// The way to the loop.
enum ToLoop<I> {
    /// The loop has not begun.
    Unbegun,
    Open(Notifier<I>, Weak<Core>),
    /// Nothing more is handed over: the last instance has finished, or the loop has ended.
    Closed,
}

impl<I: Send> HandOver<I> {
    fn new(in_flight_max: usize) -> Arc<Self> {
        let state = State { to_loop: ToLoop::Unbegun, in_flight: 0, held: false, instances: 0 };
        Arc::new(HandOver {
            in_flight_max,
            stage: OnceLock::new(),
            state: Mutex::new(state),
            begun: Condvar::new(),
            stopped: AtomicBool::new(false),
        })
    }

    fn hand_over(&self, event: I) -> Result {
        let ended = || Error::msg("the event loop has ended");
        let mut state = self.state.lock();
        let (to_loop, core) = loop {
            match &state.to_loop {
                ToLoop::Closed => return Err(ended()),
                ToLoop::Open(to_loop, core) => break (to_loop.clone(), core.clone()),
                // Its thread was started before the workers.
                ToLoop::Unbegun => state = wait(&self.begun, state, None),
            }
        };
        state.in_flight += 1;
        self.hold_if_full(&mut state, &core);
        drop(state);
        to_loop.notify(event).map_err(|refused| {
            drop(refused);
            self.over(&core);
            ended()
        })
    }

    /// An event is not in flight any more.
    fn over(&self, core: &Weak<Core>) {
        let mut state = self.state.lock();
        state.in_flight -= 1;
        self.hold_if_full(&mut state, core);
    }

    /// Has the stage visited no more while as many events are in flight as may be, and again when a quarter
    /// of them is over. Under the lock, so that the last call is the one that counts; no user code runs.
    fn hold_if_full(&self, state: &mut State<I>, core: &Weak<Core>) {
        let least = self.in_flight_max - self.in_flight_max.div_ceil(4);
        let hold = if state.held {
            state.in_flight > least
        } else {
            state.in_flight >= self.in_flight_max
        };
        if hold != state.held
            && let (Some(core), Some(stage)) = (core.upgrade(), self.stage.get())
        {
            state.held = hold;
            core.hold(*stage, hold);
        }
    }

    /// The loop begins.
    fn open(&self, to_loop: Notifier<I>, core: Weak<Core>) {
        let mut state = self.state.lock();
        let unused = match state.to_loop {
            ToLoop::Unbegun => {
                state.to_loop = ToLoop::Open(to_loop, core);
                None
            }
            ToLoop::Open(..) | ToLoop::Closed => Some(to_loop),
        };
        drop(state);
        self.begun.notify_all();
        drop(unused);
    }

    /// The program stops.
    fn stop(&self) {
        self.stopped.store(true, SeqCst);
        self.close();
    }

    /// Nothing more is handed over.
    fn close(&self) {
        let before = std::mem::replace(&mut self.state.lock().to_loop, ToLoop::Closed);
        self.begun.notify_all();
        drop(before);
    }
}

/// An instance of `NAME`.
struct Hands<I: Send> {
    over: Arc<HandOver<I>>,
    finished: bool,
}

impl<I: Send> Hands<I> {
    /// After the last instance nothing more comes.
    fn leave(&mut self) {
        if std::mem::replace(&mut self.finished, true) {
            return;
        }
        let mut state = self.over.state.lock();
        state.instances -= 1;
        let last = state.instances == 0;
        drop(state);
        if last {
            self.over.close();
        }
    }
}

impl<I: Send + 'static> Stage for Hands<I> {
    type In = I;
    type Ports = ();
    const TAKES: bool = true;

    fn handle(&mut self, event: Ev<'_, I>, (): &mut (), _: &Cx) -> Result {
        self.over.hand_over(event.take())
    }

    fn finish(&mut self, (): &mut (), _: &Cx) -> Result {
        self.leave();
        Ok(())
    }
}

impl<I: Send> Drop for Hands<I> {
    fn drop(&mut self) {
        self.leave();
    }
}

impl App {
    /// A stage whose handler may wait in the midst of what it does (feature `scheduler`): for each event it runs in a
    /// coroutine of its own, all of them on one thread, which belongs to this stage. It suspends in the operations of
    /// `comporta_scheduler`, from inside of loops and of other people's functions, while others go on.
    ///
    /// What the handler sent leaves when it returns; a `stop` of the scheduler that it calls is ignored. If it returns an error or panics, it costs this event only:
    /// what it sent is withdrawn.
    ///
    /// In plans, graphs and snapshots it is three parts: `NAME` has the queue and its bounds; `NAME-loop` is the loop;
    /// `NAME-out` sends what handlers sent, in the order in which they returned, and has their failures.
    /// An event counts as handled by `NAME`, and is acknowledged, when it is handed to the loop; its deadline, tier and
    /// latency begin anew at `NAME-out`. Retries are the handler's own.
    ///
    /// At most `in_flight` handlers have begun and not ended (at least 1, at most 20,000). While there are so many, `NAME` is
    /// not visited: its queue fills, and then what the plan says of a full queue holds.
    ///
    /// ```
    /// # mod comporta { pub use comporta_model::{plan::Plan, port::Out}; pub use comporta_runtime::App; pub use comporta_scheduler as scheduler; }
    /// use comporta::scheduler::sleep;
    /// use comporta::{App, Out, Plan};
    /// use std::time::Duration;
    ///
    /// let app = App::new("polite");
    /// let numbers = app.source("numbers", || 0..100_u64);
    /// let greet = app.stage_coroutine("greet", 1_000, |n: u64, out: &mut Out<String>| {
    ///     sleep(Duration::from_millis(20)); // all hundred of them at once
    ///     out.send(format!("hello {n}"));
    /// });
    /// let show = app.sink("show", |text: String| println!("{text}"));
    /// app.connect(numbers, greet);
    /// app.connect(greet, show);
    /// let summary = app.run(&Plan::new())?;
    /// assert_eq!(summary.snapshot.stage("show").unwrap().counts.handled, 100);
    /// # Ok::<(), comporta_runtime::StartError>(())
    /// ```
    pub fn stage_coroutine<I, O, R>(
        &self,
        name: impl Into<String>,
        in_flight: usize,
        handler: impl Fn(I, &mut Out<O>) -> R + Send + 'static,
    ) -> CoroutineStage<I, O>
    where
        I: Send + 'static,
        O: Send + 'static,
        R: Outcome + 'static,
    {
        let name = name.into();
        let over = HandOver::new(in_flight.clamp(1, IN_FLIGHT_MAX));
        let making = over.clone();
        let input = self.stage_with(&*name, move |_| {
            making.state.lock().instances += 1;
            Ok(Hands { over: making.clone(), finished: false })
        });
        let _ = over.stage.set(input.as_input().stage.0);
        let (at_stop, own) = (over.clone(), name.clone());
        let done = self.add_loop(
            format!("{name}-loop"),
            OnDrain::GoesOn,
            move || at_stop.stop(),
            move |sender, scheduler, core| run(scheduler, core, &own, &over, sender, handler),
        );
        let output =
            self.process(format!("{name}-out"), |done: Done<O>, out: &mut Out<O>| -> Result {
                done.result?;
                done.sent.into_iter().for_each(|event| out.send(event));
                Ok(())
            });
        self.connect_local(Port::<Done<O>>::of(done, 0), output);
        CoroutineStage { input: input.as_input(), output: output.as_port(), takes: PhantomData }
    }
}

/// A stage whose handlers are coroutines: see [`App::stage_coroutine`].
pub struct CoroutineStage<I, O> {
    input: StageKey,
    output: Port<O>,
    takes: PhantomData<fn(I)>,
}

impl<I, O> Clone for CoroutineStage<I, O> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<I, O> Copy for CoroutineStage<I, O> {}

impl<I, O> AsInput<I> for CoroutineStage<I, O> {
    fn as_input(&self) -> StageKey {
        self.input
    }
}

impl<I, O> AsPort<O> for CoroutineStage<I, O> {
    fn as_port(&self) -> Port<O> {
        self.output
    }
}

impl<I, O> fmt::Debug for CoroutineStage<I, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CoroutineStage").finish_non_exhaustive()
    }
}

/// What is handed over, as a source of the loop.
struct HandedOver<I>(Arc<HandOver<I>>, Weak<Core>);

impl<I: Send + 'static> EventSource for HandedOver<I> {
    type Event = I;
    fn attach(self, to: Registration<'_, I>) -> io::Result<()> {
        // Bounded by what is in flight, and what visits have in hand when the stage is held.
        let to_loop = to.capacity(usize::MAX).notifier();
        self.0.open(to_loop, self.1);
        Ok(())
    }
}

/// The loop, on its thread.
fn run<I, O, R>(
    scheduler: &mut Scheduler,
    core: &Arc<Core>,
    name: &str,
    over: &Arc<HandOver<I>>,
    sender: Sender<Done<O>>,
    handler: impl Fn(I, &mut Out<O>) -> R + 'static,
) where
    I: Send + 'static,
    O: Send + 'static,
    R: Outcome + 'static,
{
    let handed_over = HandedOver(over.clone(), Arc::downgrade(core));
    let taken = scheduler.spawn_fallible(move || take(handed_over, sender, handler));
    match taken {
        Ok(unobserved) => drop(unobserved),
        Err(error) => core.report(format!("the event loop `{name}`: {error}")),
    }
    loop {
        match scheduler.step() {
            Ok(Step::Failed(failure)) => report(core, name, &failure),
            Ok(Step::Resumed | Step::Idle) => {}
            // A handler may ask for a stop, too, but the others are not its own to end.
            Ok(Step::Stopped) if !over.stopped.load(SeqCst) => {}
            Ok(Step::Stopped | Step::Complete) => break,
            Err(error) => {
                core.report(format!("the event loop `{name}`: {error}"));
                break;
            }
        }
    }
    over.close();
}

/// Begins a handler for each event that is handed over, when there are fewer than there may be.
fn take<I, O, R>(
    handed_over: HandedOver<I>,
    sender: Sender<Done<O>>,
    handler: impl Fn(I, &mut Out<O>) -> R + 'static,
) -> io::Result<()>
where
    I: Send + 'static,
    O: Send + 'static,
    R: Outcome + 'static,
{
    let (over, core) = (handed_over.0.clone(), handed_over.1.clone());
    // Holds one item for each handler that has begun.
    let (begin, ended) = channel::<()>(over.in_flight_max);
    let events = listen(handed_over)?;
    let shared = Rc::new((sender, handler, ended));
    while let Some(event) = events.next()? {
        let in_flight = InFlight(over.clone(), core.clone());
        if begin.send(()).is_err() {
            return Ok(()); // it is unwinding
        }
        let own = shared.clone();
        let begun = spawn(move || {
            finish(&own.0, handle(&own.1, event));
            let _ = own.2.try_recv();
            drop(in_flight);
        });
        if let Err(error) = begun {
            let result = Err(Error::msg(format!("no coroutine for its handler: {error}")));
            finish(&shared.0, Done { sent: Vec::new(), result });
            let _ = shared.2.try_recv();
        }
    }
    Ok(())
}

/// Counts an event as over when it is dropped, however its handler ends.
struct InFlight<I: Send>(Arc<HandOver<I>>, Weak<Core>);

impl<I: Send> Drop for InFlight<I> {
    fn drop(&mut self) {
        self.0.over(&self.1);
    }
}

/// Calls the handler of an event; what it sent is withdrawn if it fails.
fn handle<I, O, R: Outcome>(handler: &impl Fn(I, &mut Out<O>) -> R, event: I) -> Done<O> {
    let handled = catch_unwind(AssertUnwindSafe(|| {
        let mut out = Out::default();
        handler(event, &mut out).into_result().map(|()| out.drain().collect())
    }));
    match handled.unwrap_or_else(|payload| Err(panicked(payload))) {
        Ok(sent) => Done { sent, result: Ok(()) },
        Err(error) => Done { sent: Vec::new(), result: Err(error) },
    }
}

fn panicked(payload: Box<dyn Any + Send>) -> Error {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    let error = Error::msg(format!("the handler panicked: {}", text.unwrap_or("(no message)")));
    // It may panic when it is dropped.
    user::discard(payload);
    error
}

/// Sends what became of an event, when there is room for it. It is refused only if the program stops.
fn finish<O: Send + 'static>(sender: &Sender<Done<O>>, done: Done<O>) {
    let _ = wait_for(sender.send_async(done));
}
