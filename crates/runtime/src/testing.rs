//! The test runtime: a stage, or a whole graph, run step by step on virtual time.
//!
//! [`StageTester`] runs one stage by itself. [`TestRuntime`] runs a graph with the code that runs in production,
//! but on the thread of the test: each step is one visit, and a seed chooses the worker that makes it.
//! Only the test moves the clock. [`KeyedTester`] (`keyed_tester`) runs a keyed stage by itself.
//! Long because the test of one stage and that of a program share their words and are read together.

use std::any::Any;
use std::fmt;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use comporta_model::event::{Ev, Time};
use comporta_model::plan::Plan;
use comporta_model::port::{AsPort, Ports};
use comporta_model::stage::{Cx, Host, Stage};

use crate::app::App;
use crate::control::Control;
use crate::core::Core;
use crate::effects::Effects;
use crate::env::Clock;
use crate::failure::Reason;
use crate::path::work::{Stepped, Worker, as_worker};
use crate::running::{install_policies, ready};
use crate::snapshot::Snapshot;
use crate::stage::fail::Fault;
use crate::start_error::StartError;
use crate::sync::{Arc, Mutex, Relaxed, SeqCst};
use crate::user;

pub use crate::keyed_tester::KeyedTester;

/// Tests one stage by itself: send it events, and look at the events that it sends.
///
/// ```
/// # use comporta_runtime::testing::StageTester;
/// # use comporta_model::{event::Ev, port::Out, stage::{Cx, Stage}, error::Result};
/// struct Double;
/// impl Stage for Double {
///     type In = u32;
///     type Ports = Out<u32>;
///     fn handle(&mut self, n: Ev<'_, u32>, out: &mut Out<u32>, _: &Cx) -> Result {
///         out.send(*n * 2);
///         Ok(())
///     }
/// }
/// let mut tester = StageTester::new(Double);
/// tester.send(21).unwrap();
/// assert_eq!(tester.out.drain().collect::<Vec<_>>(), [42]);
/// ```
pub struct StageTester<S: Stage> {
    /// The stage.
    pub stage: S,
    /// The events that it sent: `tester.out.drain()`, or `tester.out.port.drain()` for one port of several.
    pub out: S::Ports,
    cx: Cx,
    host: Arc<TesterHost>,
}

pub(crate) struct TesterHost {
    pub(crate) clock: Clock,
    quit: Mutex<Option<Box<dyn Any + Send>>>,
    pub(crate) problems: Mutex<Vec<String>>,
}

impl TesterHost {
    pub(crate) fn new() -> Arc<Self> {
        let clock = Clock::virtual_at_zero();
        Arc::new(TesterHost { clock, quit: Mutex::default(), problems: Mutex::default() })
    }
}

impl Host for TesterHost {
    fn now(&self) -> Time {
        self.clock.now()
    }
    fn quit(&self, result: Box<dyn Any + Send>) {
        *self.quit.lock() = Some(result);
    }
    // A stage that waits is tried in a program.
    fn wake_at(&self, _: Time, waker: std::task::Waker) -> u64 {
        waker.wake();
        0
    }
    fn forget_timer(&self, _: Time, _: u64) {}
    fn report(&self, problem: String) {
        self.problems.lock().push(problem);
    }
}

impl<S: Stage> StageTester<S> {
    /// Initialises a stage.
    ///
    /// # Panics
    /// Panics if `init` fails.
    pub fn new(mut stage: S) -> Self {
        let host = TesterHost::new();
        let cx = Cx::new("tester".into(), 0, host.clone());
        if let Err(error) = stage.init(&cx) {
            panic!("init failed: {error}");
        }
        StageTester { stage, out: S::Ports::new(), cx, host }
    }

    /// Sends an event to the stage. Events that a failing call sent are withdrawn, as in a program.
    ///
    /// # Errors
    /// Returns the error or the panic of the handler.
    pub fn send(&mut self, event: S::In) -> Result<(), Reason> {
        use crate::stage::ports::{Mark, Withdraw};
        let mut slot = Some(event);
        let StageTester { stage, out, cx, .. } = self;
        out.each(&mut Mark);
        let result = match user::call(|| stage.handle(Ev::lend(&mut slot), out, cx)) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(Reason::Error(user::text(error))),
            Err(reason) => Err(reason),
        };
        if result.is_err() {
            out.each(&mut Withdraw);
        }
        result
    }

    /// Calls `finish`, as after the last event.
    ///
    /// # Errors
    /// Returns the error or the panic of the handler.
    pub fn finish(&mut self) -> Result<(), Reason> {
        let StageTester { stage, out, cx, .. } = self;
        match user::call(|| stage.finish(out, cx)) {
            Ok(result) => result.map_err(|error| Reason::Error(error.to_string())),
            Err(reason) => Err(reason),
        }
    }

    /// Moves the clock of the stage forward.
    pub fn advance(&self, by: Duration) {
        self.host.clock.advance(by);
    }

    /// Sets the number of the attempt that the next call sees.
    pub fn set_attempt(&self, attempt: u32) {
        self.cx.set_attempt(attempt);
    }

    /// Returns the value that the stage passed to `quit`, if any.
    pub fn quit_with<R: Any>(&self) -> Option<R> {
        self.host.quit.lock().take()?.downcast().ok().map(|result| *result)
    }
}

impl<S: Stage> fmt::Debug for StageTester<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StageTester").field("cx", &self.cx).finish_non_exhaustive()
    }
}

/// Copies of the events that a port sent, in order.
#[derive(Clone)]
pub struct Recorder<T>(Arc<Mutex<Vec<T>>>);

/// Records the events that a port sends. Call it before the app becomes a [`TestRuntime`].
pub fn record<T: Clone + Send + 'static>(app: &App, port: impl AsPort<T>) -> Recorder<T> {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let recorder = Recorder(seen.clone());
    app.watch(port.as_port(), Arc::new(move |event: &T| seen.lock().push(event.clone())));
    recorder
}

impl<T> Recorder<T> {
    /// Takes the events that were recorded since the last call.
    #[must_use]
    pub fn take(&self) -> Vec<T> {
        std::mem::take(&mut *self.0.lock())
    }
}

impl<T> fmt::Debug for Recorder<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder").field("events", &self.0.lock().len()).finish()
    }
}

/// Has a resource be opened by `open` in place of what the program says, and dropped at the end. Before the app
/// is made a [`TestRuntime`], or started.
///
/// ```
/// # mod comporta { pub use comporta_model::plan::Plan; pub use comporta_runtime::{App, testing}; }
/// use comporta::testing::{TestRuntime, record, replace_resource};
/// use comporta::{App, Plan};
///
/// fn program() -> App {
///     let app = App::new("prices");
///     let rate = app.resource("rate", || Ok(std::fs::read("rate.txt")?.len() as u64), drop);
///     let euros = app.source("euros", || [1, 2].into_iter());
///     let cents = app.map("cents", move |euros: u64| euros * *rate.get());
///     app.connect(euros, cents);
///     app.connect(cents, app.sink("show", |cents: u64| println!("{cents}")));
///     app
/// }
///
/// let app = program();
/// replace_resource(&app, "rate", || Ok(100_u64));
/// let mut runtime = TestRuntime::new(app, &Plan::new())?;
/// assert!(runtime.run());
/// # assert_eq!(runtime.snapshot().stage("show").unwrap().counts.handled, 2);
/// # Ok::<(), comporta_runtime::StartError>(())
/// ```
///
/// # Panics
/// If the program has no such resource, or it is of another type.
#[track_caller]
pub fn replace_resource<R: Send + Sync + 'static>(
    app: &App,
    name: &str,
    open: impl FnOnce() -> comporta_model::error::Result<R> + Send + 'static,
) {
    let replaced = app.replace_resource(name, open);
    let of = std::any::type_name::<R>();
    assert!(replaced, "the program has no resource `{name}` of the type `{of}`");
}

/// How many timers of policies in a row may bring nothing on before a program counts as at rest.
const TIMERS_IN_VAIN: usize = 1_000;

/// Runs a program step by step on virtual time.
///
/// ```
/// # mod comporta { pub use comporta_model::plan::Plan; pub use comporta_runtime::{App, testing}; }
/// use comporta::{App, Plan, testing::TestRuntime};
///
/// let app = App::new("slow-end");
/// let numbers = app.source("numbers", || 0..10_u64);
/// let pass = app.map("pass", |n: u64| n);
/// let end = app.sink("end", |_: u64| ());
/// app.connect(numbers, pass);
/// app.connect(pass, end);
///
/// let mut runtime = TestRuntime::new(app, &Plan::new().every(|stage| stage.capacity(2)))?;
/// runtime.hold("end"); // as if its handler took for ever
/// runtime.run_until_idle();
/// let snapshot = runtime.snapshot();
/// assert_eq!(snapshot.stage("end").unwrap().queued, 2); // full, so the others wait
/// assert_eq!(snapshot.stage("end").unwrap().counts.handled, 0);
///
/// runtime.resume("end");
/// assert!(runtime.run());
/// assert_eq!(runtime.snapshot().stage("end").unwrap().counts.handled, 10);
/// # Ok::<(), comporta_runtime::StartError>(())
/// ```
pub struct TestRuntime {
    core: Arc<Core>,
    workers: Vec<Worker>,
    dice: u64,
}

impl TestRuntime {
    /// Builds the program: opens its sources and makes its instances, but makes no visit.
    ///
    /// # Errors
    /// Like [`App::start`].
    pub fn new(app: App, plan: &Plan) -> Result<Self, StartError> {
        let core = app.build(plan, Clock::virtual_at_zero(), true)?;
        let runtime = TestRuntime { core, workers: Vec::new(), dice: 0 }; // dropped if the rest is refused
        runtime.core.open_resources()?;
        let effects = ready(&runtime.core)?;
        if let Err(refused) = install_policies(&runtime.core) {
            effects.abandon();
            return Err(refused);
        }
        runtime.core.dispatch(effects);
        Ok(runtime)
    }

    /// Sets the seed that chooses the worker of each step; the same seed gives the same run.
    #[must_use]
    pub fn seeded(mut self, seed: u64) -> Self {
        self.dice = seed;
        self
    }

    /// Makes one visit, if there is anything to do now. Returns `true` if it made one.
    pub fn step(&mut self) -> bool {
        if self.core.is_stopped() {
            return false;
        }
        self.fire_timers();
        self.follow_groups();
        let n = self.workers.len();
        let first = usize::try_from(self.roll() % n.max(1) as u64).unwrap_or(0);
        (0..n).any(|i| {
            let worker = &mut self.workers[(first + i) % n];
            as_worker(|| worker.step(&self.core)) == Stepped::Ran
        })
    }

    /// Makes steps until there is nothing to do now. Returns the number of steps.
    ///
    /// # Panics
    /// Panics after ten million steps, as such a program never comes to rest.
    pub fn run_until_idle(&mut self) -> usize {
        let mut steps = 0;
        while self.step() {
            steps += 1;
            assert!(steps < 10_000_000, "the program does not come to rest");
        }
        steps
    }

    /// Moves the clock forward and runs until idle, stopping at each timer on the way.
    pub fn advance(&mut self, by: Duration) {
        let end = self.core.clock.now() + by;
        self.run_until_idle();
        while !self.core.is_stopped()
            && let Some(next) = self.core.timers.next().filter(|next| *next <= end)
        {
            self.core.clock.advance(next.duration_since(self.core.clock.now()));
            self.run_until_idle();
        }
        self.core.clock.advance(end.duration_since(self.core.clock.now()));
    }

    /// Runs until every stage has ended, skipping time in which nothing happens. Returns `true` if the
    /// program ended, and `false` if something in it waits for an event that does not come.
    pub fn run(&mut self) -> bool {
        // Timers of policies go on for ever; a program that they do not bring on is at rest.
        let mut in_vain = 0;
        while in_vain < TIMERS_IN_VAIN {
            let awaited = self.core.timers.awaits_token(); // something is sure to come
            in_vain = if self.run_until_idle() == 0 && !awaited { in_vain + 1 } else { 0 };
            if self.is_ended() {
                return true;
            }
            let Some(next) = self.core.timers.next() else { return false };
            self.core.clock.advance(next.duration_since(self.core.clock.now()));
        }
        false
    }

    /// Runs until a future is ready that the program brings on, such as a request of a gateway, jumping over
    /// time in which nothing happens. Returns what it is ready with; nothing if the program comes to rest, or
    /// to its end, before.
    ///
    /// ```
    /// # mod comporta { pub use comporta_model::plan::Plan; pub use comporta_runtime::{App, testing}; }
    /// use comporta::{App, Plan, testing::TestRuntime};
    ///
    /// let app = App::new("doubles");
    /// let doubles = app.gateway::<u64, u64>("doubles");
    /// let double = app.map("double", |n: u64| 2 * n);
    /// app.connect(doubles.requests, double);
    /// app.connect(double, doubles.replies);
    /// let client = doubles.client;
    ///
    /// let mut runtime = TestRuntime::new(app, &Plan::new())?;
    /// assert_eq!(runtime.complete(client.request(21)), Some(Ok(42)));
    /// # Ok::<(), comporta_runtime::StartError>(())
    /// ```
    pub fn complete<F: Future>(&mut self, future: F) -> Option<F::Output> {
        let mut future = pin!(future);
        let mut cx = Context::from_waker(Waker::noop());
        let mut in_vain = 0;
        loop {
            if let Poll::Ready(output) = future.as_mut().poll(&mut cx) {
                return Some(output);
            }
            if self.step() {
                in_vain = 0;
            } else if self.core.is_stopped() || in_vain == TIMERS_IN_VAIN {
                return None;
            } else {
                in_vain += 1;
                let next = self.core.timers.next()?;
                self.core.clock.advance(next.duration_since(self.core.clock.now()));
                self.fire_timers();
            }
        }
    }

    /// Closes all sources and inputs.
    pub fn close(&mut self) {
        let mut effects = Effects::default();
        for node in self.core.nodes() {
            node.close(&self.core, &mut effects);
        }
        self.core.dispatch(effects);
    }

    /// Returns `true` if every stage has ended or a handler called `quit`.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        let run = self.core.run_state();
        run.live == 0 || run.quit
    }

    /// Returns the value that a handler passed to `quit`, if any.
    #[must_use]
    pub fn quit_with<R: Any>(&self) -> Option<R> {
        self.core.run_state().result.take()?.downcast().ok().map(|result| *result)
    }

    /// Returns the problems other than failed events.
    #[must_use]
    pub fn problems(&self) -> Vec<String> {
        self.core.run_state().problems.clone()
    }

    /// Returns a snapshot of the program.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.core.snapshot()
    }

    /// Returns a handle that changes how the program runs.
    #[must_use]
    pub fn control(&self) -> Control {
        Control::new(self.core.clone())
    }

    /// Returns the virtual time.
    #[must_use]
    pub fn now(&self) -> Time {
        self.core.clock.now()
    }

    /// Sets the CPU usage that policies see from now on, from 0 to 100. It is 0 at first.
    pub fn set_cpu_usage(&self, percent: u32) {
        self.core.cpu_usage.store(percent.min(100), Relaxed);
    }

    /// Makes the next event of a stage fail with this message instead of being handled.
    ///
    /// # Panics
    /// Panics if there is no such stage.
    pub fn fail_next(&self, stage: &str, message: &str) {
        self.inject(stage, Fault::Error(message.to_owned()));
    }

    /// Makes the handler panic with this message at the next event of a stage.
    ///
    /// # Panics
    /// Panics if there is no such stage.
    pub fn panic_next(&self, stage: &str, message: &str) {
        self.inject(stage, Fault::Panic(message.to_owned()));
    }

    /// Holds a stage: it takes no events until it is [resumed](Self::resume), and its queue fills.
    ///
    /// # Panics
    /// Panics if there is no such stage.
    pub fn hold(&mut self, stage: &str) {
        self.core.hold(self.find(stage), true);
    }

    /// Ends a [`hold`](Self::hold).
    ///
    /// # Panics
    /// Panics if there is no such stage.
    pub fn resume(&mut self, stage: &str) {
        self.core.hold(self.find(stage), false);
    }

    fn find(&self, stage: &str) -> u32 {
        let found = self.core.graph.find(stage);
        found.unwrap_or_else(|| panic!("the program has no stage `{stage}`")).0
    }

    fn inject(&self, stage: &str, fault: Fault) {
        self.core.node(self.find(stage)).inject(fault);
    }

    fn fire_timers(&self) {
        let mut due = Vec::new();
        self.core.timers.due(self.core.clock.now(), &mut due);
        due.into_iter().for_each(|alarm| self.core.sound(alarm));
    }

    /// Workers come and go with the worker_groups.
    fn follow_groups(&mut self) {
        let core = self.core.clone();
        let leaves = |worker: &mut Worker| worker.handle().leaving.load(SeqCst);
        self.workers.extract_if(.., leaves).for_each(|worker| worker.leave(&core));
        for workers in &core.worker_groups {
            for member in workers.members().iter() {
                let known = self.workers.iter().any(|w| Arc::ptr_eq(w.handle(), member));
                if !known {
                    self.workers.push(Worker::new(workers, member.clone()));
                }
            }
        }
    }

    /// Splitmix64.
    fn roll(&mut self) -> u64 {
        self.dice = self.dice.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.dice;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}

impl Drop for TestRuntime {
    fn drop(&mut self) {
        self.core.stop(); // lets go of the instances
        self.core.farewell();
        self.core.close_resources();
    }
}

impl fmt::Debug for TestRuntime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestRuntime").field("app", &self.core.graph.name).finish_non_exhaustive()
    }
}
