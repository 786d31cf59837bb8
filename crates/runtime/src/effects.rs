//! The two sides of a visit: what a worker brings to it ([`Visit`]), and what it leads to
//! ([`Effects`]): tokens, grants and wake-ups made under a lock and handed over outside of it.
//!
//! Invariant: whoever is about to call user code hands its effects over first
//! ([`Effects::hand_over`]), so that nobody waits for a handler who need not. What is only to be
//! dropped stays until the end of the visit: nobody waits for that.

use std::any::Any;
use std::mem::needs_drop;
use std::num::NonZeroUsize;

use comporta_model::chunk::Slots;
use comporta_model::column::Columns;
use comporta_model::event::Time;

use crate::chunk_cache::ChunkCache;
use crate::core::Core;
use crate::cycle::Cycle;
use crate::path::line::Place;
use crate::path::ready::{Entry, Task, Token, When};
use crate::run_state::OnEnd;
use crate::sync::Arc;
use crate::user;
use crate::workers::WorkerHandle;

/// What a worker brings to a visit, and takes back from it.
pub(crate) struct Visit {
    /// The worker, by the number chunks know it by ([`Meta::home`]); 0 if it is none.
    ///
    /// [`Meta::home`]: comporta_model::event::Meta::home
    pub(crate) home: u32,
    /// When the visit begins.
    pub(crate) start: Time,
    /// When it ended, if it looked.
    pub(crate) end: Option<Time>,
    /// How many events the policy lets it take.
    pub(crate) limit: Option<NonZeroUsize>,
    /// Events it has settled, or a source has sent.
    pub(crate) done: usize,
    /// Storage for chunks that this worker has in its cache.
    pub(crate) cache: ChunkCache,
    /// Storage for the lanes of what it sends to keyed stages.
    pub(crate) lanes: Columns,
    pub(crate) effects: Effects,
}

impl Visit {
    pub(crate) fn new(home: u32, worker: Option<Arc<WorkerHandle>>) -> Self {
        let mut effects = Effects::default();
        effects.worker = worker;
        Visit {
            home,
            start: Time::ZERO,
            end: None,
            limit: None,
            done: 0,
            cache: ChunkCache::default(),
            lanes: Columns::default(),
            effects,
        }
    }

    /// It has seen to keys since its end, which takes a while. That is not time of the next visit, which would seem to be
    /// slow, and worth another worker; a source would seem to wait for its events.
    #[inline]
    pub(crate) fn saw_to_keys(&mut self, core: &Core) {
        if self.end.is_some() {
            self.end = Some(core.clock.now());
        }
    }

    /// The number of events it may take, `most` at most.
    pub(crate) fn at_most(&self, most: usize) -> usize {
        self.limit.map_or(most, |limit| most.min(limit.get()))
    }
}

/// What is due to others.
#[derive(Default)]
pub(crate) struct Effects {
    pub(crate) tokens: Vec<Token>,
    /// Callers that were granted room.
    pub(crate) callers: Vec<Arc<Place>>,
    /// Cycles that may be stuck.
    pub(crate) stuck: Vec<Arc<Cycle>>,
    /// Stages that may have seen their last event.
    pub(crate) over: Vec<u32>,
    /// The run has come to its end, and whoever wants to know is called.
    calls: Vec<OnEnd>,
    /// Values of the program that are no longer wanted.
    trash: Vec<Box<dyn Discard>>,
    /// The worker whose visit this is, if it is a worker's.
    worker: Option<Arc<WorkerHandle>>,
}

/// The right to call user code: nothing is due to anybody.
pub(crate) struct User<'a>(#[expect(dead_code, reason = "nothing may become due")] &'a mut Effects);

impl User<'_> {
    /// See [`user::call`].
    #[inline]
    pub(crate) fn call<R>(&self, body: impl FnOnce() -> R) -> Result<R, crate::failure::Reason> {
        user::call(body)
    }
}

impl Effects {
    /// A token of a stage is due.
    pub(crate) fn token(&mut self, stage: u32, task: Task) {
        self.tokens.push(Token::new(stage, task));
    }

    /// These are to be called when all else is handed over.
    pub(crate) fn call_later(&mut self, calls: Vec<OnEnd>) {
        self.calls.extend(calls);
    }

    /// A value of the program is no longer wanted.
    pub(crate) fn discard(&mut self, value: impl Any + Send) {
        self.trash.push(Box::new(Value(value)));
    }

    /// Code that drops values of the program is to run when nothing is due.
    pub(crate) fn call_off(&mut self, call: impl FnOnce() + Send + 'static) {
        self.trash.push(Box::new(Call(call)));
    }

    /// Events are no longer wanted; their storage is left empty.
    pub(crate) fn discard_events<T: Send + 'static>(&mut self, slots: &mut Slots<T>) {
        if needs_drop::<T>() && !slots.is_empty() {
            self.trash.push(Box::new(Events(std::mem::take(slots))));
        }
        slots.clear();
    }

    #[inline(always)]
    fn is_due(&self) -> bool {
        !self.tokens.is_empty()
            || !self.callers.is_empty()
            || !self.over.is_empty()
            || !self.stuck.is_empty()
    }

    /// Hands over all that is due: tokens to ready queues, where someone is woken for them; room to
    /// those who wait for it; the end of a stage to the next.
    #[inline(always)] // each visit comes here three times
    pub(crate) fn hand_over(&mut self, core: &Core) -> User<'_> {
        if self.is_due() {
            self.hand_over_due(core);
        }
        User(self)
    }

    #[cold]
    #[inline(never)]
    fn hand_over_due(&mut self, core: &Core) {
        core.resolve(self);
        let mut tokens = std::mem::take(&mut self.tokens);
        for token in tokens.drain(..) {
            let own = self.worker.as_deref().filter(|worker| {
                let own = worker.group == core.workers_of(token.stage);
                own && core.are_stealing(&core.worker_groups[worker.group])
            });
            match own {
                Some(worker) => {
                    let pays = core.pays_to_take(token.stage);
                    worker.local.push(Entry { token, since: core.clock.now(), pays }, When::Fifo);
                    core.timers.hurry();
                    if worker.local.has_stealable() {
                        core.worker_groups[worker.group].sleep.work_made();
                    }
                }
                None => core.make_ready(token),
            }
        }
        self.tokens = tokens;
        self.wake_callers();
    }

    /// Wakes callers that were granted room. Their wakers are user code: nothing else may be due.
    pub(crate) fn wake_callers(&mut self) {
        debug_assert!(self.tokens.is_empty(), "a waker is called while tokens are due");
        while let Some(caller) = self.callers.pop() {
            caller.wake();
        }
    }

    /// Whether there are wakers to be called, or values to be dropped.
    #[inline]
    pub(crate) fn wants_user_code(&self) -> bool {
        !self.callers.is_empty() || !self.trash.is_empty() || !self.calls.is_empty()
    }

    /// Takes over what is due elsewhere.
    pub(crate) fn take(&mut self, other: &mut Effects) {
        self.tokens.append(&mut other.tokens);
        self.callers.append(&mut other.callers);
        self.over.append(&mut other.over);
        self.trash.append(&mut other.trash);
        self.calls.append(&mut other.calls);
        self.stuck.append(&mut other.stuck);
    }

    /// The worker whose visit this is, if it is a worker's.
    pub(crate) fn worker(&self) -> Option<&Arc<WorkerHandle>> {
        self.worker.as_ref()
    }

    /// The program will not start: nothing is due to anybody.
    pub(crate) fn abandon(mut self) {
        self.tokens.clear();
        self.over.clear();
        self.callers.clear();
        self.stuck.clear();
        self.call_and_drop();
    }

    /// Calls whoever wants to know of the end, and drops what is no longer wanted.
    pub(crate) fn call_and_drop(&mut self) {
        debug_assert!(!self.is_due(), "values are dropped while something is due");
        for call in std::mem::take(&mut self.calls) {
            let _ = user::call(call);
        }
        for value in std::mem::take(&mut self.trash) {
            value.discard();
        }
    }
}

/// What is to be dropped.
trait Discard: Send {
    fn discard(self: Box<Self>);
}

struct Value<T>(T);

impl<T: Send> Discard for Value<T> {
    fn discard(self: Box<Self>) {
        user::discard(self.0);
    }
}

struct Call<F>(F);

impl<F: FnOnce() + Send> Discard for Call<F> {
    fn discard(self: Box<Self>) {
        let _ = user::call(self.0);
    }
}

struct Events<T>(Slots<T>);

impl<T: Send> Discard for Events<T> {
    /// One by one: of two that panic together, the second would abort the process.
    fn discard(self: Box<Self>) {
        self.0.into_iter().for_each(user::discard);
    }
}

impl Drop for Effects {
    fn drop(&mut self) {
        debug_assert!(
            !self.is_due() && !self.wants_user_code() || crate::sync::thread::panicking(),
            "effects were not handed over"
        );
    }
}
