//! A running program: watching it and ending it.

use std::any::Any;
use std::fmt;
use std::task::{Poll, Waker};
use std::time::Duration;

use crate::control::Control;
use crate::core::Core;
use crate::effects::Effects;
use crate::failure::{Failure, Reason};
use crate::policy_host::InstallError;
use crate::run_state::RunState;
use crate::snapshot::{Snapshot, StageSnapshot};
use crate::start_error::StartError;
use crate::sync::{Arc, Mutex};
use crate::user;

/// How long a stop waits for handlers that do not return before it goes without them.
const GRACE: Duration = Duration::from_secs(1);

/// A running program. Dropping it stops the program at once.
#[must_use = "dropping it stops the program: `wait` for its end"]
pub struct Running {
    core: Arc<Core>,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ended {
    /// Every source ended and every event settled.
    Complete,
    /// Like [`Complete`](Self::Complete), but a source ended because it failed, so that events may be
    /// missing. [`Summary::problems`] has the reason.
    SourceFailed,
    /// A handler called `quit`.
    Quit,
    /// The program was drained: its sources were closed, and every event in it settled.
    Drained,
    /// The program was drained, and the time limit expired before every event had settled.
    TimedOut,
    /// The program was stopped.
    Stopped,
}

/// The results of a run.
#[must_use]
#[non_exhaustive]
pub struct Summary {
    /// How the run ended.
    pub ended: Ended,
    /// The last snapshot of the program.
    pub snapshot: Snapshot,
    /// Problems other than failed events, such as of a source or of `finish`.
    pub problems: Vec<String>,
    /// Stages whose handlers had not returned when the run was given up.
    pub stuck: Vec<String>,
    /// The failures of each stage that had any, by reason.
    pub failures: Vec<StageFailures>,
    result: Option<Box<dyn Any + Send>>,
}

impl Summary {
    /// Takes the value that a handler passed to `quit`. Returns `None` if there is none, or if it was taken
    /// already or is not an `R`; in the last case it stays.
    pub fn take_result<R: Any>(&mut self) -> Option<R> {
        let result = self.result.take()?;
        match result.downcast() {
            Ok(result) => Some(*result),
            Err(other) => {
                self.result = Some(other);
                None
            }
        }
    }
}

/// The failed events of a stage, by reason.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StageFailures {
    /// The stage.
    pub stage: String,
    /// How many of its events failed for good.
    pub failed: u64,
    /// How many further tries were made.
    pub retried: u64,
    /// Each reason among the failures that are still kept, in the order first seen, with its count.
    pub reasons: Vec<(Reason, u64)>,
}

impl StageFailures {
    fn of(stage: &StageSnapshot, failures: Vec<Failure>) -> Self {
        let mut reasons: Vec<(Reason, u64)> = Vec::new();
        for failure in failures {
            match reasons.iter_mut().find(|(known, _)| *known == failure.reason) {
                Some((_, times)) => *times += 1,
                None => reasons.push((failure.reason, 1)),
            }
        }
        let counts = &stage.counts;
        let (failed, retried) = (counts.failed, counts.retried);
        StageFailures { stage: stage.name.clone(), failed, retried, reasons }
    }
}

/// How many reasons of a stage are shown.
const REASONS_SHOWN: usize = 3;

impl fmt::Display for StageFailures {
    /// A line for the stage, and one for each of the first reasons.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let events = if self.failed == 1 { "event" } else { "events" };
        write!(f, "failed: {} {events} of `{}`", self.failed, self.stage)?;
        match self.retried {
            0 => writeln!(f)?,
            1 => writeln!(f, ", after 1 further try")?,
            retried => writeln!(f, ", after {retried} further tries")?,
        }
        for (reason, times) in self.reasons.iter().take(REASONS_SHOWN) {
            writeln!(f, "  {times} × {reason}")?;
        }
        match self.reasons.len().saturating_sub(REASONS_SHOWN) {
            0 => Ok(()),
            1 => writeln!(f, "  and 1 other reason"),
            more => writeln!(f, "  and {more} other reasons"),
        }
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Ended::Complete => "complete",
            Ended::SourceFailed => "ended by a source that failed",
            Ended::Quit => "quit",
            Ended::Drained => "drained",
            Ended::TimedOut => "not drained in time",
            Ended::Stopped => "stopped",
        })
    }
}

impl fmt::Debug for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Summary")
            .field("ended", &self.ended)
            .field("snapshot", &self.snapshot)
            .field("problems", &self.problems)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {} after {:.3?}", self.snapshot.app, self.ended, self.snapshot.elapsed)?;
        write!(f, "{}", self.snapshot)?;
        self.failures.iter().try_for_each(|failures| write!(f, "{failures}"))?;
        for stage in &self.snapshot.stages {
            let held = stage.queued + stage.in_flight + stage.outboxed;
            if held > 0 {
                let (queued, outboxed) = (stage.queued, stage.outboxed);
                writeln!(
                    f,
                    "left: `{}` held {held} events, {queued} queued and {outboxed} outboxed",
                    stage.name
                )?;
            }
        }
        for problem in &self.problems {
            writeln!(f, "problem: {problem}")?;
        }
        for stage in &self.stuck {
            writeln!(f, "stuck: a handler of `{stage}` has not returned")?;
        }
        Ok(())
    }
}

impl Running {
    pub(crate) fn start(core: Arc<Core>) -> Result<Running, StartError> {
        let running = Running { core };
        if running.core.graph.stages.iter().any(|stage| stage.waits) {
            let name = &running.core.graph.name;
            let started = running.core.reactor.start(name);
            started.map_err(|message| StartError::Threads { message })?;
        }
        let effects = {
            let _reactor = running.core.enter_reactor(); // for pools and clients that begin with a task
            running.core.open_resources()?;
            ready(&running.core)?
        };
        if let Err(refused) = running.core.start_threads() {
            effects.abandon();
            return Err(refused);
        }
        running.core.dispatch(effects);
        Ok(running)
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

    /// Returns the stages with a handler that has not returned for longer than the plan's `stuck_after`,
    /// one name for each such call. Another worker stands in for each of these. Blocking stages are not
    /// named: their handlers may take as long as they do.
    #[must_use]
    pub fn stuck(&self) -> Vec<String> {
        self.core.stuck()
    }

    /// Returns `true` if the program has ended.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        self.core.run_state().is_ended()
    }

    /// Calls `call` when the program has ended, or at once if it already has. It is called on a thread of
    /// the program, or on the one that stops it, and should only notify others, as by a channel on which a
    /// caller waits for several things.
    ///
    /// ```
    /// # mod comporta { pub use comporta_model::plan::Plan; pub use comporta_runtime::App; }
    /// # use comporta::{App, Plan};
    /// # let app = App::new("short");
    /// # let numbers = app.source("numbers", || 0..9_u64);
    /// # let show = app.sink("show", |_: u64| ());
    /// # app.connect(numbers, show);
    /// let running = app.start(&Plan::new())?;
    /// let (tell, told) = std::sync::mpsc::channel();
    /// running.on_end(move || drop(tell.send("ended"))); // others may send on the same channel
    /// assert_eq!(told.recv(), Ok("ended"));
    /// assert!(running.is_ended());
    /// # Ok::<(), comporta_runtime::StartError>(())
    /// ```
    pub fn on_end(&self, call: impl FnOnce() + Send + 'static) {
        self.core.on_end(Box::new(call));
    }

    /// Returns a future that is ready when the program has ended or was stopped, for programs inside an
    /// async runtime. After that, [`wait`](Self::wait) returns without blocking.
    ///
    /// ```
    /// # mod comporta { pub use comporta_model::plan::Plan; pub use comporta_runtime::App; }
    /// # use comporta::{App, Plan};
    /// # async fn embedded(app: App) -> Result<(), comporta_runtime::StartError> {
    /// let running = app.start(&Plan::new())?;
    /// running.ended().await;
    /// println!("{}", running.wait());
    /// # Ok(())
    /// # }
    /// ```
    pub fn ended(&self) -> impl Future<Output = ()> + Send + use<> {
        let end = Arc::new(Mutex::new((false, None::<Waker>)));
        let told = end.clone();
        self.on_end(move || {
            let waker = {
                let mut end = told.lock();
                end.0 = true;
                end.1.take()
            };
            waker.into_iter().for_each(Waker::wake);
        });
        std::future::poll_fn(move |context| {
            let fresh = context.waker().clone(); // user code: not under the lock
            let mut end = end.lock();
            let (ended, spare) =
                if end.0 { (true, Some(fresh)) } else { (false, end.1.replace(fresh)) };
            drop(end);
            user::discard(spare);
            if ended { Poll::Ready(()) } else { Poll::Pending }
        })
    }

    /// Closes all sources and inputs and returns at once: a drain that can be watched. Afterwards
    /// [`wait`](Self::wait) for the end, or give up with [`drain_within`](Self::drain_within) and a
    /// duration of zero.
    pub fn close(&self) {
        self.core.close();
    }

    /// Waits for the end of the program.
    pub fn wait(self) -> Summary {
        self.core.wait_until(None, RunState::is_ended);
        self.summarise(Ended::Complete)
    }

    /// Waits for the end of the program, for at most `bound`.
    ///
    /// # Errors
    /// Returns the running program if it has not ended in time.
    pub fn wait_for(self, bound: Duration) -> Result<Summary, Running> {
        if self.core.wait_until(Some(bound), RunState::is_ended) {
            Ok(self.summarise(Ended::Complete))
        } else {
            Err(self)
        }
    }

    /// Closes all sources and inputs and waits until every event in the program has settled, for at most
    /// the plan's `drain`. Events that are left then are cancelled.
    pub fn drain(self) -> Summary {
        let bound = self.core.settings.drain;
        self.drain_within(bound)
    }

    /// Like [`drain`](Self::drain), for at most `bound`.
    pub fn drain_within(self, bound: Duration) -> Summary {
        self.close();
        let done = self.core.wait_until(Some(bound), RunState::is_ended);
        self.summarise(if done { Ended::Drained } else { Ended::TimedOut })
    }

    /// Stops the program at once. Queued events are cancelled.
    pub fn stop(self) -> Summary {
        self.summarise(Ended::Stopped)
    }

    /// Waits for the threads, but for those that do not return, has sources hear of the end, and closes
    /// resources.
    fn part(&self) {
        if std::mem::replace(&mut self.core.run_state().parted, true) {
            return;
        }
        self.core.wait_until(Some(GRACE), |run| run.threads as isize <= run.left);
        {
            let _reactor = self.core.enter_reactor();
            self.core.farewell();
            self.core.close_resources();
        }
        self.core.reactor.stop();
    }

    fn summarise(self, ended: Ended) -> Summary {
        let core = &self.core;
        core.stop();
        self.part();
        let snapshot = core.snapshot();
        let stuck = core.in_visits(Duration::ZERO);
        let failing = snapshot.stages.iter().zip(core.replicas.all());
        let failing = failing.filter(|(stage, _)| stage.counts.failed > 0);
        let failures = failing
            .map(|(stage, replicas)| StageFailures::of(stage, core.failures(replicas)))
            .collect();
        let mut run = core.run_state();
        let mut problems = std::mem::take(&mut run.problems);
        if run.problems_more > 0 {
            problems.push(format!("and {} more", run.problems_more));
        }
        let ended = match ended {
            _ if run.quit => Ended::Quit,
            Ended::Complete if run.closed => Ended::Drained,
            Ended::Complete if run.source_failed => Ended::SourceFailed,
            _ => ended,
        };
        Summary { ended, snapshot, problems, stuck, failures, result: run.result.take() }
    }
}

/// Makes the instances of every stage and opens the sources, consumers first.
pub(crate) fn ready(core: &Arc<Core>) -> Result<Effects, StartError> {
    let mut effects = Effects::default();
    for id in core.replicas.all().rev().flatten() {
        if let Err(message) = core.node(id.0).start(core, &mut effects) {
            effects.abandon();
            return Err(StartError::Stage { name: core.name(*id).to_owned(), message });
        }
    }
    Ok(effects)
}

impl Core {
    /// Starts the clock, and gives every cluster its threads and its policy.
    fn start_threads(self: &Arc<Self>) -> Result<(), StartError> {
        if self.clock.is_real() {
            let name = format!("{}-clock", self.graph.name);
            self.spawn(name, Core::keep_time).map_err(|error| StartError::Threads {
                message: format!("no thread for the clock: {error}"),
            })?;
        }
        install_policies(self)
    }
}

/// Gives every cluster its threads and its policy.
pub(crate) fn install_policies(core: &Arc<Core>) -> Result<(), StartError> {
    for (host, settings) in core.policy_hosts.iter().zip(&core.settings.clusters) {
        host.install(core, settings.policy.clone()).map_err(|refused| match refused {
            InstallError::Threads(message) => StartError::Threads { message },
            InstallError::Policy(message) => StartError::Policy {
                cluster: settings.name.clone(),
                policy: settings.policy.to_string(),
                message,
            },
        })?;
    }
    Ok(())
}

impl Drop for Running {
    fn drop(&mut self) {
        self.core.stop();
        // On a worker it would wait for itself.
        if !crate::path::work::is_worker() {
            self.part();
        }
    }
}

impl fmt::Debug for Running {
    /// With what its threads are doing and which visits are due: where a program that seems to stand still
    /// stands.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let core = &self.core;
        let stages = core.graph.stages.iter().zip(core.nodes());
        let stages: Vec<_> = stages.map(|(spec, node)| (&spec.name, node.reading())).collect();
        f.debug_struct("Running")
            .field("app", &core.graph.name)
            .field("stages", &stages)
            .field("workers", &core.worker_groups)
            .field("pools", &core.pools.iter().collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}
