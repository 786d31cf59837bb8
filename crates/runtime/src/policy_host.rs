//! Who governs a cluster: holds its policy, calls it, and lends it the control (`cluster_control.rs`).
//!
//! A policy is called by whichever thread has reason to: a worker that came to the end of the visit
//! order, the clock. Never two calls at once, and nobody waits: who finds it busy leaves word, and
//! whoever is calling it calls it for that too; a worker with a token in hand uses that first. Only
//! persons who change something wait, and go before further calls. A new policy begins with the
//! cluster as the plan, and a person since, have it. One that panics is replaced by the default.

use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt;

use comporta_model::event::Time;
use comporta_model::plan::{Choice, PoolSettings, defaults};
use comporta_policy::policies::Stealing;
use comporta_policy::{Policy, TimerId};

use crate::cluster_control::{ClusterControl, State, set_threads};
use crate::core::Core;
use crate::failure::guard;
use crate::path::visit_order::Fired;
use crate::sync::{Arc, AtomicUsize, Mutex, MutexGuard, SeqCst, thread_local};

/// How many decisions are remembered.
const DECISIONS_MAX: usize = 256;

/// The host of one cluster.
pub(crate) struct PolicyHost {
    cluster: usize,
    name: String,
    /// Threads of the cluster where no policy says otherwise.
    pub(crate) threads: AtomicUsize,
    post: Mutex<Post>,
    /// Persons who wait for it.
    waiting: AtomicUsize,
    /// Why the policy is to be called.
    calls: Mutex<VecDeque<Call>>,
    choice: Mutex<Choice>,
    decisions: Mutex<VecDeque<Decision>>,
}

struct Post {
    policy: Box<dyn Policy>,
    state: State,
}

/// Why a policy is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Timer { timer: u32, epoch: u32 },
    LastFocused,
    MaxVisits,
}

/// Something that a policy did, and why.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Decision {
    /// When, since the program started.
    pub at: Time,
    /// The policy.
    pub policy: String,
    /// What it was called for: `start`, `timer 0`, `last focused`, `max visits`.
    pub call: String,
    /// The signal it saw and the rule it followed, if it said so.
    pub why: Option<String>,
    /// What it did.
    pub did: String,
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Decision { at, policy, call, why, did } = self;
        write!(f, "{:.3} s: {policy} ({call}): {did}", at.as_nanos() as f64 / 1e9)?;
        why.iter().try_for_each(|why| write!(f, ", because {why}"))
    }
}

impl PolicyHost {
    pub(crate) fn new(cluster: usize, settings: &PoolSettings) -> Self {
        PolicyHost {
            cluster,
            name: settings.name.clone(),
            threads: AtomicUsize::new(settings.threads),
            post: Mutex::new(Post { policy: Box::new(Stealing), state: State::default() }),
            waiting: AtomicUsize::new(0),
            calls: Mutex::default(),
            choice: Mutex::new(settings.policy.clone()),
            decisions: Mutex::default(),
        }
    }

    /// The policy that governs.
    pub(crate) fn choice(&self) -> Choice {
        self.choice.lock().clone()
    }

    pub(crate) fn decisions(&self) -> Vec<Decision> {
        self.decisions.lock().iter().cloned().collect()
    }

    /// Has a policy govern from now on. If it will not, the one before goes on, from its start.
    pub(crate) fn install(&self, core: &Arc<Core>, choice: Choice) -> Result<(), String> {
        let entry = core.registry.find(&choice.name);
        let entry = entry.ok_or_else(|| format!("there is no policy `{}`", choice.name))?;
        let made = guard(|| entry.make(&choice)).map_err(|reason| reason.to_string())?;
        let mut post = self.enter();
        let before = std::mem::replace(&mut post.policy, made);
        let started = self.begin(core, &mut post, &choice);
        if started.is_ok() {
            *self.choice.lock() = choice;
        } else {
            post.policy = before;
            self.begin_again(core, &mut post);
        }
        drop(post);
        self.serve(core, false);
        started
    }

    /// Gives the cluster so many threads, now and where no policy says otherwise.
    pub(crate) fn set_threads(&self, core: &Arc<Core>, threads: usize) {
        let post = self.enter();
        self.threads.store(threads, SeqCst);
        set_threads(core, &core.pools[self.cluster], threads);
        drop(post);
        self.serve(core, false);
    }

    /// A stage moves from this cluster to another. The policies of both begin anew, and neither is
    /// called in between: the one would still have the stage, and put it where it is not looked for.
    pub(crate) fn hand_over(&self, core: &Arc<Core>, stage: u32, to: &PolicyHost) {
        let (mut post, mut other);
        if self.cluster < to.cluster {
            post = self.enter();
            other = to.enter();
        } else {
            other = to.enter();
            post = self.enter();
        }
        core.places[stage as usize].base.lock().cluster = to.cluster;
        // Where it goes first: the policy here may have no threads left for it.
        to.begin_again(core, &mut other);
        self.begin_again(core, &mut post);
        drop((post, other));
        to.serve(core, false);
        self.serve(core, false);
    }

    /// A person comes before further calls of the policy. Must not be asked for by a policy.
    fn enter(&self) -> MutexGuard<'_, Post> {
        self.waiting.fetch_add(1, SeqCst);
        let post = self.post.lock();
        self.waiting.fetch_sub(1, SeqCst);
        post
    }

    fn begin_again(&self, core: &Arc<Core>, post: &mut Post) {
        let choice = self.choice();
        if let Err(message) = self.begin(core, post, &choice) {
            self.fall_back(core, post, &format!("did not start again: {message}"));
        }
    }

    /// Everything as the plan has it, and then as the policy will.
    fn begin(&self, core: &Arc<Core>, post: &mut Post, choice: &Choice) -> Result<(), String> {
        self.calls.lock().clear();
        let threads = self.threads.load(SeqCst);
        calling(|| post.state.reset(core, self.cluster, threads));
        let mut control = ClusterControl::new(core, self.cluster, &mut post.state, true);
        let started = calling(|| guard(|| post.policy.start(&mut control)));
        control.done();
        self.record(core, &choice.name, "start", &mut post.state);
        match started {
            Ok(Ok(())) => Ok(()),
            Ok(Err(refused)) => Err(refused.to_string()),
            Err(panic) => Err(panic.to_string()),
        }
    }

    /// The policy is replaced by the default one.
    fn fall_back(&self, core: &Arc<Core>, post: &mut Post, what: &str) {
        let name = self.choice().name;
        core.report(format!(
            "the policy `{name}` of `{}` {what}; `{}` goes on",
            self.name,
            defaults::POLICY
        ));
        post.policy = Box::new(Stealing);
        *self.choice.lock() = Choice::new(defaults::POLICY);
        // It asks for nothing that can be refused.
        let _ = self.begin(core, post, &Choice::new(defaults::POLICY));
    }

    // --- what the policy is called for

    /// A worker came to the end of the visit order, or the visits are made. Says whether word is
    /// left for it to come back to, if it has something in hand.
    #[cold]
    pub(crate) fn focused(&self, core: &Arc<Core>, fired: Fired, in_hand: bool) -> bool {
        if fired.last_focused {
            self.leave_word(Call::LastFocused);
        }
        if fired.max_visits {
            self.leave_word(Call::MaxVisits);
        }
        self.serve(core, in_hand)
    }

    pub(crate) fn timer_due(&self, core: &Arc<Core>, timer: u32, epoch: u32) {
        self.leave_word(Call::Timer { timer, epoch });
        self.serve(core, false);
    }

    fn leave_word(&self, call: Call) {
        let mut calls = self.calls.lock();
        if !calls.contains(&call) {
            calls.push_back(call);
        }
    }

    /// Calls the policy for all that word was left of, unless someone else does. Who has something
    /// in hand goes after what there is now; says whether more has come.
    fn serve(&self, core: &Arc<Core>, in_hand: bool) -> bool {
        loop {
            let Some(mut post) = self.post.try_lock() else { return false };
            let calls = self.calls.lock().len();
            for call in (0..calls).map_while(|_| self.next_call()) {
                self.call(core, &mut post, call);
            }
            drop(post);
            // Word may have been left between the last look and the drop, by one who then went.
            let more = !self.calls.lock().is_empty();
            if !more || in_hand {
                return more;
            }
            if self.waiting.load(SeqCst) > 0 {
                return false; // who waits will see to it
            }
        }
    }

    fn next_call(&self) -> Option<Call> {
        self.calls.lock().pop_front()
    }

    fn call(&self, core: &Arc<Core>, post: &mut Post, call: Call) {
        let Post { policy, state } = &mut *post;
        let name = match call {
            Call::Timer { epoch, .. } if epoch != state.epoch => return, // of the policy before
            Call::LastFocused if !state.visit_order().fires_last_focused => return, // any more
            Call::MaxVisits if state.visit_order().max_visits == 0 => return,
            Call::Timer { timer, .. } => format!("timer {timer}"),
            Call::LastFocused => "last focused".to_owned(),
            Call::MaxVisits => "max visits".to_owned(),
        };
        let mut control = ClusterControl::new(core, self.cluster, state, false);
        let called = calling(|| {
            guard(|| match call {
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
            Err(panic) => self.fall_back(core, post, &format!("failed ({name}): {panic}")),
        }
    }

    /// Remembers what the policy did.
    fn record(&self, core: &Core, policy: &str, call: &str, state: &mut State) {
        if state.acts.is_empty() {
            return;
        }
        let at = core.clock.now();
        let mut decisions = self.decisions.lock();
        for (why, did) in state.acts.drain(..) {
            tracing::debug!(app = %core.graph.name, cluster = %self.name, policy, call, ?why, "{did}");
            if decisions.len() == DECISIONS_MAX {
                decisions.pop_front();
            }
            let (policy, call) = (policy.to_owned(), call.to_owned());
            decisions.push_back(Decision { at, policy, call, why, did });
        }
    }
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
