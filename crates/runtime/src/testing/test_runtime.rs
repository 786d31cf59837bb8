//! Runs a whole program step by step on virtual time.
//! [`VirtualWorkers`] decides which worker acts next and how time passes; this is what a test says and sees.

use std::any::Any;
use std::fmt;
use std::num::NonZeroUsize;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use comporta_model::event::Time;
use comporta_model::graph::{Kind, StageId};
use comporta_model::plan::Plan;

use super::service_time::ServiceTime;
use super::virtual_workers::{Goal, TIMERS_IN_VAIN, VirtualWorkers, is_ended};
use crate::app::App;
use crate::control::Control;
use crate::core::Core;
use crate::effects::Effects;
use crate::env::Clock;
use crate::running::{install_policies, ready};
use crate::snapshot::Snapshot;
use crate::stage::fail::Fault;
use crate::start_error::StartError;
use crate::sync::{Arc, Relaxed};

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
    workers: Arc<VirtualWorkers>,
}

impl TestRuntime {
    /// Builds the program: opens its sources and makes its instances, but makes no visit.
    ///
    /// # Errors
    /// Like [`App::start`].
    pub fn new(app: App, plan: &Plan) -> Result<Self, StartError> {
        let core = app.build(plan, Clock::virtual_at_zero(), true)?;
        let workers = Arc::<VirtualWorkers>::default();
        core.set_virtual_workers(workers.clone());
        let runtime = TestRuntime { core, workers }; // dropped if the rest is refused
        runtime.core.open_resources()?;
        let effects = ready(&runtime.core)?;
        if let Err(refused) = install_policies(&runtime.core) {
            effects.abandon();
            return Err(refused);
        }
        runtime.core.dispatch(effects);
        Ok(runtime)
    }

    /// Sets the seed that chooses the worker of each step and draws service times; the same seed gives the same
    /// run.
    #[must_use]
    pub fn seeded(self, seed: u64) -> Self {
        self.workers.seed(seed);
        self
    }

    /// Has no visit be plain, so that a test can compare the two ways of making one.
    #[doc(hidden)]
    #[must_use]
    pub fn visits_at_large(self) -> Self {
        self.core.hooks.at_large.store(true, Relaxed);
        self
    }

    /// Gives the handler of a stage time: it holds its worker, its instance and, of a keyed stage, its key for so long
    /// of virtual time, while other workers go on. A batch takes the sum of its events' times. The
    /// handler itself is called when its time has passed, so that whatever it does comes at the end.
    ///
    /// From then on visits are made on threads that the runtime has for this, one of them at a time; what ends at an
    /// instant ends before anything begins there. More busy handlers than processors do not slow each other down.
    ///
    /// ```
    /// # mod comporta { pub use comporta_model::plan::Plan; pub use comporta_runtime::{App, testing}; }
    /// use comporta::testing::{ServiceTime, TestRuntime};
    /// use comporta::{App, Plan};
    /// use std::time::Duration;
    ///
    /// let app = App::new("queries");
    /// let queries = app.source("queries", || 0..10_u64);
    /// let query = app.map("query", |n: u64| n);
    /// app.connect(queries, query);
    /// app.connect(query, app.sink("rows", |_: u64| ()));
    ///
    /// let plan = Plan::new().threads(2).stage("query", |stage| stage.instances(2));
    /// let mut runtime = TestRuntime::new(app, &plan)?;
    /// runtime.service_time("query", ServiceTime::waiting(Duration::from_millis(50)));
    /// assert!(runtime.run());
    /// assert_eq!(runtime.now().as_millis(), 250); // ten queries of 50 ms, two at a time
    /// # Ok::<(), comporta_runtime::StartError>(())
    /// ```
    ///
    /// # Panics
    /// Panics if there is no such stage, if it is a source or an input, or if its handlers wait: their time is that of
    /// what they wait for.
    pub fn service_time(&mut self, stage: &str, time: ServiceTime) {
        let id = self.find(stage);
        let spec = &self.core.graph.stages[id as usize];
        assert!(spec.kind == Kind::Stage, "`{stage}` handles no events");
        assert!(!spec.waits, "the handlers of `{stage}` wait: have them wait for `AsyncCx::sleep`");
        self.workers.set_time(id, time);
    }

    /// Makes one visit, if there is anything to do now. Returns `true` if it made one. Of a handler with a
    /// [service time](Self::service_time), what comes before that time is a step, and what comes after it.
    pub fn step(&mut self) -> bool {
        self.act(Goal::Step) > 0
    }

    /// Makes steps until there is nothing to do now. Returns the number of steps.
    ///
    /// # Panics
    /// Panics after ten million steps, as such a program never comes to rest.
    pub fn run_until_idle(&mut self) -> usize {
        self.act(Goal::Idle)
    }

    /// Moves the clock forward and runs until idle, stopping at each timer on the way.
    pub fn advance(&mut self, by: Duration) {
        let end = self.now() + by;
        self.act(Goal::Until(end));
        self.core.clock.advance(end.duration_since(self.now())); // it may have stopped on the way
    }

    /// Runs until every stage has ended, skipping time in which nothing happens. Returns `true` if the
    /// program ended, and `false` if something in it waits for an event that does not come.
    pub fn run(&mut self) -> bool {
        self.act(Goal::End);
        self.is_ended()
    }

    fn act(&mut self, goal: Goal) -> usize {
        self.workers.act(&self.core, goal)
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
                let awaited = self.workers.skip_idle(&self.core)?;
                in_vain = if awaited { 0 } else { in_vain + 1 };
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
        is_ended(&self.core)
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

    /// Sets the CPU usage of others that policies see from now on, from 0 to 100. It is 0 at first. What handlers
    /// use that are busy for their [service time](Self::service_time) is added to it.
    pub fn set_cpu_usage(&self, percent: u32) {
        self.core.hooks.cpu_usage.store(percent.min(100), Relaxed);
    }

    /// Sets the number of processors that policies see from now on. It is that of the machine at first.
    pub fn set_cpus(&self, n: NonZeroUsize) {
        self.core.hooks.cpus.store(n.get(), Relaxed);
    }

    /// Makes the next event of a stage fail with this message instead of being handled; of a stage with replicas, the next of
    /// the first.
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
        self.all(stage).for_each(|id| self.core.hold(id, true));
    }

    /// Ends a [`hold`](Self::hold).
    ///
    /// # Panics
    /// Panics if there is no such stage.
    pub fn resume(&mut self, stage: &str) {
        self.all(stage).for_each(|id| self.core.hold(id, false));
    }

    fn find(&self, stage: &str) -> u32 {
        let found = self.core.graph.find(stage);
        found.unwrap_or_else(|| panic!("the program has no stage `{stage}`")).0
    }

    /// Its replicas.
    fn all(&self, stage: &str) -> impl Iterator<Item = u32> {
        self.core.replicas.of(StageId(self.find(stage))).iter().map(|id| id.0)
    }

    fn inject(&self, stage: &str, fault: Fault) {
        self.core.node(self.find(stage)).inject(fault);
    }
}

impl Drop for TestRuntime {
    fn drop(&mut self) {
        self.core.stop(); // lets go of the instances
        self.workers.close();
        self.core.farewell();
        self.core.close_resources();
    }
}

impl fmt::Debug for TestRuntime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestRuntime").field("app", &self.core.graph.name).finish_non_exhaustive()
    }
}
