//! Holds the policy of a cluster, and calls it with what it may do (`cluster_control.rs`).
//!
//! A policy is called by whichever thread has reason to: a worker that came to the end of the visit
//! order, the thread of timers. Never two calls at once, and nobody waits: a thread that finds it busy notes why it
//! came, and the one that is calling calls it for that too; a worker with a token in hand uses that
//! first. Only people who change something wait, and go before further calls. A policy is user code: it
//! is taken out while it is called, and no lock is held. A new one begins with the cluster as the plan,
//! and people since, have it. One that panics is replaced by the default.
//!
//! The stages that the plan makes elastic are beside every policy that is installed (`comporta_policy::elastic::Beside`), but not
//! beside the default that replaces one that panicked, which may have been theirs.

use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt;

use comporta_model::event::Time;
use comporta_model::graph::{Graph, StageId};
use comporta_model::plan::{Choice, ClusterSettings, Settings, defaults};
use comporta_policy::elastic::{Beside, ElasticChoice};
use comporta_policy::policies::Stealing;
use comporta_policy::{Entry, Policy, TimerId};

use crate::cluster_control::{CallReason, ClusterControl};
use crate::cluster_state::{Act, ClusterState};
use crate::core::Core;
use crate::log;
use crate::path::visit_order::Fired;
use crate::sync::{Arc, AtomicUsize, Condvar, Mutex, SeqCst, thread_local, wait};
use crate::user;

/// How many decisions are remembered.
const DECISIONS_MAX: usize = 256;
/// How often a policy is called for visits that were made before it could be called for them; what is
/// more is not made up for, or a policy slower than its visits would keep the workers for ever.
const VISITS_OWED_MAX: usize = 64;

/// The host of one cluster.
pub(crate) struct PolicyHost {
    cluster: usize,
    name: String,
    /// Threads of the cluster where no policy says otherwise.
    pub(crate) threads: AtomicUsize,
    /// Taken out while somebody uses it.
    installed: Mutex<Option<Box<Installed>>>,
    put_back: Condvar,
    /// People who wait for it.
    waiting: AtomicUsize,
    /// Why the policy is to be called.
    calls: Mutex<VecDeque<Noted>>,
    choice: Mutex<Choice>,
    decisions: Mutex<Decisions>,
}

struct Installed {
    policy: Box<dyn Policy>,
    state: ClusterState,
    /// One that failed, to be dropped when this is put back: it is user code.
    failed: Option<Box<dyn Policy>>,
}

/// The policy, taken out; put back when this is dropped.
struct Taken<'a> {
    host: &'a PolicyHost,
    installed: Option<Box<Installed>>,
}

impl std::ops::Deref for Taken<'_> {
    type Target = Installed;
    fn deref(&self) -> &Installed {
        self.installed.as_ref().expect("it is put back only when this is dropped")
    }
}

impl std::ops::DerefMut for Taken<'_> {
    fn deref_mut(&mut self) -> &mut Installed {
        self.installed.as_mut().expect("it is put back only when this is dropped")
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        let failed = self.failed.take();
        *self.host.installed.lock() = self.installed.take();
        self.host.put_back.notify_all();
        user::discard(failed);
    }
}

impl Drop for PolicyHost {
    /// The policy that was installed last goes with the program.
    fn drop(&mut self) {
        let installed = self.installed.lock().take();
        user::discard(installed);
    }
}

/// Why a policy was not installed.
#[derive(Debug)]
pub(crate) enum InstallError {
    /// It would not start; the one before goes on.
    Policy(String),
    /// The system has no more threads.
    Threads(String),
}

/// Why a policy is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Timer { timer: u32, epoch: u32 },
    LastFocused,
    MaxVisits,
}

/// A call that is to be made, so often.
#[derive(Clone, Copy, Debug)]
struct Noted {
    call: Call,
    times: usize,
}

/// Something that a policy did, and why.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Decision {
    /// When, since the program started.
    pub at: Time,
    /// The policy; for the threads of a stage that the plan makes elastic, its controller.
    pub policy: String,
    /// What it was called for: `start`, `timer 0`, `last focused`, `max visits`.
    pub call: String,
    /// The signal it saw and the rule it followed, if it said so.
    pub why: Option<String>,
    /// What it did.
    pub did: String,
}

/// The last decisions, oldest first.
#[derive(Default)]
struct Decisions {
    last: VecDeque<Decision>,
    /// How many there were before them.
    forgotten: u64,
}

impl Decisions {
    fn extend(&mut self, decided: Vec<Decision>) {
        self.last.extend(decided);
        let surplus = self.last.len().saturating_sub(DECISIONS_MAX);
        self.last.drain(..surplus);
        self.forgotten += surplus as u64;
    }
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Decision { at, policy, call, why, did } = self;
        write!(f, "{:.3} s: {policy} ({call}): {did}", at.as_nanos() as f64 / 1e9)?;
        why.iter().try_for_each(|why| write!(f, ", because {why}"))
    }
}

impl PolicyHost {
    pub(crate) fn new(cluster: usize, settings: &ClusterSettings) -> Self {
        PolicyHost {
            cluster,
            name: settings.name.clone(),
            threads: AtomicUsize::new(settings.threads),
            installed: Mutex::new(Some(Box::new(Installed {
                policy: Box::new(Stealing),
                state: ClusterState::default(),
                failed: None,
            }))),
            put_back: Condvar::new(),
            waiting: AtomicUsize::new(0),
            calls: Mutex::default(),
            choice: Mutex::new(settings.policy.clone()),
            decisions: Mutex::default(),
        }
    }

    /// The policy that is installed.
    pub(crate) fn choice(&self) -> Choice {
        self.choice.lock().clone()
    }

    pub(crate) fn decisions(&self) -> Vec<Decision> {
        self.decisions.lock().last.iter().cloned().collect()
    }

    /// How many decisions are no longer remembered.
    pub(crate) fn decisions_forgotten(&self) -> u64 {
        self.decisions.lock().forgotten
    }

    /// Has another policy decide from now on. If it will not start, the one before goes on, from its
    /// start.
    pub(crate) fn install(&self, core: &Arc<Core>, choice: Choice) -> Result<(), InstallError> {
        let entry = core.registry.find(&choice.name);
        let refuse = |message: String| InstallError::Policy(message);
        let entry = entry.ok_or_else(|| refuse(format!("there is no policy `{}`", choice.name)))?;
        let made = user::call(|| make(entry, &choice, &core.graph, &core.settings, self.cluster));
        let made = made.map_err(|panic| refuse(panic.to_string()))?;
        let mut taken = self.take();
        let before = std::mem::replace(&mut taken.policy, made);
        let started = self.begin(core, &mut taken, &choice);
        let unused = if started.is_ok() {
            *self.choice.lock() = choice;
            before
        } else {
            let refused = std::mem::replace(&mut taken.policy, before);
            self.begin_again(core, &mut taken);
            refused
        };
        drop(taken);
        user::discard(unused);
        self.serve(core, false);
        started
    }

    /// Gives the cluster so many threads, now and where no policy says otherwise.
    ///
    /// # Errors
    /// The system has fewer; nothing has changed.
    pub(crate) fn set_threads(&self, core: &Arc<Core>, threads: usize) -> Result<(), String> {
        let taken = self.take();
        let pool = &core.pools[self.cluster];
        let now = pool.threads();
        core.cut_threads(pool, now.saturating_sub(threads));
        let set = core.add_threads(pool, threads.saturating_sub(now));
        if set.is_ok() {
            self.threads.store(threads, SeqCst);
        }
        drop(taken);
        self.serve(core, false);
        set
    }

    /// A stage moves from this cluster to another. The policies of both begin anew, and neither is
    /// called in between: the one would still have the stage, and put it where it is not looked for.
    /// Returns `false` if the stage is not here any more.
    ///
    /// # Errors
    /// The policy there does not start with the stage; both go on without the move, from their start.
    pub(crate) fn hand_over(
        &self,
        core: &Arc<Core>,
        replicas: &[StageId],
        to: &PolicyHost,
    ) -> Result<bool, String> {
        let (mut here, mut there);
        if self.cluster < to.cluster {
            here = self.take();
            there = to.take();
        } else {
            there = to.take();
            here = self.take();
        }
        let bases = || replicas.iter().map(|id| core.assignments[id.index()].base.lock());
        // Both policies are taken: nobody else moves it.
        let moves = bases().all(|base| base.cluster == self.cluster);
        let mut moved = Ok(moves);
        if moves {
            bases().for_each(|mut base| base.cluster = to.cluster);
            // Where it goes first: the policy here may have no threads left for it.
            match to.begin(core, &mut there, &to.choice()) {
                Ok(()) => {}
                Err(InstallError::Threads(message)) => core.report(message),
                Err(InstallError::Policy(message)) => {
                    bases().for_each(|mut base| base.cluster = self.cluster);
                    moved = Err(message);
                }
            }
            self.begin_again(core, &mut here);
            if moved.is_err() {
                to.begin_again(core, &mut there);
            }
        }
        drop((here, there));
        to.serve(core, false);
        self.serve(core, false);
        moved
    }

    /// Waits for the policy, and goes before further calls. Must not be asked for by a policy.
    fn take(&self) -> Taken<'_> {
        self.waiting.fetch_add(1, SeqCst);
        let mut installed = self.installed.lock();
        while installed.is_none() {
            installed = wait(&self.put_back, installed, None);
        }
        let taken = installed.take();
        drop(installed);
        self.waiting.fetch_sub(1, SeqCst);
        Taken { host: self, installed: taken }
    }

    /// The policy, unless somebody uses it.
    fn try_take(&self) -> Option<Taken<'_>> {
        let taken = self.installed.lock().take();
        taken.map(|installed| Taken { host: self, installed: Some(installed) })
    }

    fn begin_again(&self, core: &Arc<Core>, taken: &mut Installed) {
        let choice = self.choice();
        match self.begin(core, taken, &choice) {
            Ok(()) => {}
            Err(InstallError::Policy(message)) => {
                self.fall_back(core, taken, &format!("did not start again: {message}"));
            }
            Err(InstallError::Threads(message)) => core.report(message),
        }
    }

    /// Everything as the plan has it, and then as the policy will.
    fn begin(
        &self,
        core: &Arc<Core>,
        taken: &mut Installed,
        choice: &Choice,
    ) -> Result<(), InstallError> {
        self.calls.lock().clear();
        let threads = self.threads.load(SeqCst);
        let Installed { policy, state, .. } = taken;
        calling(|| state.reset(core, self.cluster, threads)).map_err(InstallError::Threads)?;
        let mut control = ClusterControl::new(core, self.cluster, state, CallReason::Start);
        let started = calling(|| user::call(|| policy.start(&mut control)));
        control.done();
        self.record(core, &choice.name, "start", state);
        match started {
            Ok(Ok(())) => Ok(()),
            Ok(Err(refused)) => Err(InstallError::Policy(refused.to_string())),
            Err(panic) => Err(InstallError::Policy(panic.to_string())),
        }
    }

    /// The policy is replaced by the default one.
    fn fall_back(&self, core: &Arc<Core>, taken: &mut Installed, what: &str) {
        let name = self.choice().name;
        let mut stages = core.settings.stages.iter().zip(&core.assignments);
        let elastic = stages
            .any(|(stage, at)| stage.elastic.is_some() && at.base.lock().cluster == self.cluster);
        let without = if elastic { ", without elastic stages" } else { "" };
        core.report(format!(
            "the policy `{name}` of `{}` {what}; `{}` goes on{without}",
            self.name,
            defaults::POLICY
        ));
        taken.failed = Some(std::mem::replace(&mut taken.policy, Box::new(Stealing)));
        *self.choice.lock() = Choice::new(defaults::POLICY);
        // It asks for nothing that can be refused.
        let _ = self.begin(core, taken, &Choice::new(defaults::POLICY));
    }

    // --- what the policy is called for

    /// A worker came to the end of the visit order, or the visits are made. Returns whether more calls
    /// have been noted meanwhile, for the worker to come back to after its next visit.
    #[cold]
    pub(crate) fn focused(&self, core: &Arc<Core>, fired: Fired) -> bool {
        if fired.last_focused {
            self.note_call(Call::LastFocused, 1);
        }
        if fired.max_visits > 0 {
            self.note_call(Call::MaxVisits, fired.max_visits);
        }
        self.serve(core, true)
    }

    pub(crate) fn timer_due(&self, core: &Arc<Core>, timer: u32, epoch: u32) {
        self.note_call(Call::Timer { timer, epoch }, 1);
        self.serve(core, false);
    }

    /// Notes a call. Visits add up; of the others one call stands for all that were not answered yet.
    fn note_call(&self, call: Call, times: usize) {
        let mut calls = self.calls.lock();
        match calls.iter_mut().find(|noted| noted.call == call) {
            Some(noted) if call == Call::MaxVisits => {
                noted.times = noted.times.saturating_add(times).min(VISITS_OWED_MAX);
            }
            Some(_) => {}
            None => calls.push_back(Noted { call, times: times.min(VISITS_OWED_MAX) }),
        }
    }

    /// Calls the policy for all that was noted, unless somebody else does. A worker goes after what there
    /// is now. Returns whether more has come.
    fn serve(&self, core: &Arc<Core>, worker: bool) -> bool {
        loop {
            if self.waiting.load(SeqCst) > 0 {
                return false; // who waits will see to it
            }
            let Some(mut taken) = self.try_take() else { return false };
            let calls = self.calls.lock().len();
            for Noted { call, times } in (0..calls).map_while(|_| self.next_call()) {
                for _ in 0..times {
                    self.call(core, &mut taken, call);
                }
            }
            drop(taken);
            // One may have been noted between the last look and the drop, by one who then went.
            let more = !self.calls.lock().is_empty();
            if !more || worker {
                return more;
            }
        }
    }

    fn next_call(&self) -> Option<Noted> {
        self.calls.lock().pop_front()
    }

    fn call(&self, core: &Arc<Core>, taken: &mut Installed, call: Call) {
        let Installed { policy, state, .. } = &mut *taken;
        let name = match call {
            Call::Timer { epoch, .. } if epoch != state.epoch => return, // of the policy before
            Call::LastFocused if !state.visit_order().fires_last_focused => return, // any more
            Call::MaxVisits if state.visit_order().max_visits.is_none() => return,
            Call::Timer { timer, .. } => format!("timer {timer}"),
            Call::LastFocused => "last focused".to_owned(),
            Call::MaxVisits => "max visits".to_owned(),
        };
        let timer = matches!(call, Call::Timer { .. });
        let reason = if timer { CallReason::Timer } else { CallReason::Visits };
        let mut control = ClusterControl::new(core, self.cluster, state, reason);
        let called = calling(|| {
            user::call(|| match call {
                Call::Timer { timer, .. } => policy.on_timer(TimerId(timer), &mut control),
                Call::LastFocused => policy.on_last_focused(&mut control),
                Call::MaxVisits => policy.on_max_visits(&mut control),
            })
        });
        control.done();
        if let Call::Timer { timer, .. } = call {
            state.set_timer(core, self.cluster, timer);
        }
        self.record(core, &self.choice().name, &name, state);
        match called {
            Ok(Ok(())) => {}
            Ok(Err(refused)) => {
                let policy = self.choice().name;
                core.report(format!("the policy `{policy}` of `{}`: {refused}", self.name));
            }
            Err(panic) => self.fall_back(core, taken, &format!("failed ({name}): {panic}")),
        }
    }

    /// Remembers what the policy did.
    fn record(&self, core: &Core, policy: &str, call: &str, state: &mut ClusterState) {
        if state.acts.is_empty() {
            return;
        }
        let at = core.clock.now();
        let decided = state.acts.drain(..).map(|Act { by, why, did }| {
            let (policy, call) = (by.unwrap_or_else(|| policy.to_owned()), call.to_owned());
            Decision { at, policy, call, why, did }
        });
        let decided: Vec<Decision> = decided.collect();
        for decision in &decided {
            log::decided(&core.graph.name, &self.name, &decision.policy, decision);
        }
        self.decisions.lock().extend(decided);
    }
}

/// Makes the policy of a cluster, with the elastic stages of the plan beside it: those that it comes to have.
pub(crate) fn make(
    entry: &Entry,
    choice: &Choice,
    graph: &Graph,
    settings: &Settings,
    cluster: usize,
) -> Box<dyn Policy> {
    let stages = graph.stages.iter().zip(&settings.stages);
    let elastic = stages.filter_map(|(spec, stage)| {
        let controller = stage.elastic.clone()?;
        Some(ElasticChoice { stage: spec.name.to_string(), controller })
    });
    let threads_max = settings.clusters.get(cluster).and_then(|cluster| cluster.elastic_threads);
    Beside::wrap(entry.make(choice), elastic.collect(), threads_max)
}

thread_local! {
    static CALLING: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread is calling a policy, which must not wait for its own end.
pub(crate) fn is_calling() -> bool {
    CALLING.with(Cell::get)
}

fn calling<R>(call: impl FnOnce() -> R) -> R {
    let before = CALLING.with(|on| on.replace(true));
    let result = call();
    CALLING.with(|on| on.set(before));
    result
}
