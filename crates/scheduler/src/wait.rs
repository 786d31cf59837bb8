//! Suspension until one of several things happens, with the parameters registered for it.
//! The document's handler yields a list of sources, a timed wake-up and a finalizer; here the handler
//! registers them by calling ([`listen`](crate::listen), [`on_end`](crate::on_end)), and a [`Wait`] says
//! which of its sources wake it this time.

use crate::channel::Receiver;
use crate::core::{Core, Parked};
use crate::events::Events;
use crate::observer::unwinding;
use crate::wait_list::WaitList;
use std::cell::Cell;
use std::fmt;
use std::io;
use std::sync::mpsc::TryRecvError;
use std::time::{Duration, Instant};

/// Something that a [`Wait`] can wait for: [`Events`] and [`Receiver`].
pub trait Selectable: sealed::Selectable {}

mod sealed {
    use super::*;

    #[expect(unnameable_types, reason = "nobody else can implement it")]
    pub trait Selectable {
        type Item;
        /// An item, an error, or the end; `None` if there is only to wait.
        fn take_now(&self) -> Option<io::Result<Option<Self::Item>>>;
        #[expect(private_interfaces, reason = "nobody else can call it")]
        fn list(&self) -> &WaitList;
    }
}

impl<E> Selectable for Events<E> {}

impl<E> sealed::Selectable for Events<E> {
    type Item = E;
    fn take_now(&self) -> Option<io::Result<Option<E>>> {
        self.take()
    }
    #[expect(private_interfaces, reason = "nobody else can call it")]
    fn list(&self) -> &WaitList {
        self.waiting()
    }
}

impl<T> Selectable for Receiver<T> {}

impl<T> sealed::Selectable for Receiver<T> {
    type Item = T;
    fn take_now(&self) -> Option<io::Result<Option<T>>> {
        match self.try_recv() {
            Ok(item) => Some(Ok(Some(item))),
            Err(TryRecvError::Disconnected) => Some(Ok(None)),
            Err(TryRecvError::Empty) => None,
        }
    }
    #[expect(private_interfaces, reason = "nobody else can call it")]
    fn list(&self) -> &WaitList {
        self.waiting()
    }
}

type TakeFn<'a, P> = Box<dyn FnMut() -> Option<io::Result<Option<P>>> + 'a>;

struct Arm<'a, P> {
    take: TakeFn<'a, P>,
    list: &'a WaitList,
    /// It woke the handler, which has not used that.
    owes: Cell<bool>,
}

/// The handler took another arm, or unwinds: the next that waits for this one is woken instead.
impl<P> Drop for Arm<'_, P> {
    fn drop(&mut self) {
        if self.owes.get() {
            self.list.wake_one();
        }
    }
}

/// Waits for the first of several sources, each of which has its own result.
///
/// ```
/// use comporta_scheduler::{Scheduler, Wait, listen, sources};
/// use std::time::Duration;
///
/// #[derive(Debug, PartialEq)]
/// enum Woken {
///     Tick,
///     Late,
/// }
///
/// let mut scheduler = Scheduler::builder().virtual_time().build()?;
/// let woken = scheduler.block_on(|| {
///     let ticks = listen(sources::every(Duration::from_secs(2)))?;
///     Wait::new()
///         .on(&ticks, |_at| Woken::Tick)
///         .after(Duration::from_secs(1), Woken::Late)
///         .suspend()
/// });
/// assert_eq!(woken.unwrap()?, Some(Woken::Late));
/// # Ok::<(), std::io::Error>(())
/// ```
#[must_use = "it waits when `suspend` is called"]
pub struct Wait<'a, P> {
    arms: Vec<Arm<'a, P>>,
    limit: Option<(Duration, P)>,
}

impl<'a, P> Wait<'a, P> {
    /// Creates an empty wait.
    pub fn new() -> Wait<'a, P> {
        Wait { arms: Vec::new(), limit: None }
    }

    /// Adds a source; `with` converts its item into the result of the wait.
    pub fn on<S: Selectable>(
        mut self,
        source: &'a S,
        with: impl FnOnce(<S as sealed::Selectable>::Item) -> P + 'a,
    ) -> Wait<'a, P> {
        let mut with = Some(with);
        let take = move || {
            let taken = source.take_now()?;
            let with = with.take().expect("an arm is not asked again after it answered");
            Some(taken.map(|item| item.map(with)))
        };
        let owes = Cell::new(false);
        self.arms.push(Arm { take: Box::new(take), list: source.list(), owes });
        self
    }

    /// Sets a time limit, after which the result is `params`. The last call counts.
    pub fn after(mut self, limit: Duration, params: P) -> Wait<'a, P> {
        self.limit = Some((limit, params));
        self
    }

    /// Suspends the coroutine until a source has an item, and returns the result. If several have one, the
    /// source that was served longest ago goes first, so that none starves, however waits are nested or
    /// alternate. Returns `None` if all sources have ended and there is no limit.
    ///
    /// # Errors
    /// Returns an error if one of the sources failed, or the coroutine is unwinding and would have to wait.
    ///
    /// # Panics
    /// Panics if it would have to wait outside of a coroutine.
    pub fn suspend(self) -> io::Result<Option<P>> {
        let Wait { mut arms, limit } = self;
        let core = Core::expect_handler("Wait::suspend");
        core.spend();
        let deadline = limit.as_ref().and_then(|(limit, _)| core.deadline(Some(*limit)));
        loop {
            if let Some(taken) = take_first(&mut arms) {
                return taken.map(Some);
            }
            if arms.is_empty() && limit.is_none() {
                return Ok(None);
            }
            match park(&core, &arms, deadline) {
                Parked::Woken => {}
                Parked::TimedOut => {
                    let late = take_first(&mut arms);
                    return late.transpose().map(|taken| taken.or(limit.map(|(_, params)| params)));
                }
                Parked::Unwinding => return Err(unwinding()),
            }
        }
    }
}

/// Asks the arms, the one first that was served longest ago; those that have ended are taken out.
fn take_first<P>(arms: &mut Vec<Arm<'_, P>>) -> Option<io::Result<P>> {
    arms.sort_by_key(|arm| arm.list.served().get());
    let mut place = 0;
    while let Some(arm) = arms.get_mut(place) {
        match (arm.take)() {
            Some(Ok(None)) => drop(arms.remove(place)),
            Some(Ok(Some(params))) => {
                arm.owes.set(false);
                let last = arms.iter().map(|arm| arm.list.served().get()).max().unwrap_or(0);
                arms[place].list.served().set(last + 1);
                return Some(Ok(params));
            }
            Some(Err(error)) => return Some(Err(error)),
            None => place += 1,
        }
    }
    None
}

/// Suspends until one of the arms' lists wakes the handler.
fn park<P>(core: &Core, arms: &[Arm<'_, P>], deadline: Option<Instant>) -> Parked {
    core.park(
        deadline,
        |handler| arms.iter().for_each(|arm| arm.list.enlist(handler.clone())),
        |_| {
            let handler = core.running();
            arms.iter().for_each(|arm| arm.owes.set(arm.list.leave(&handler)));
        },
    )
}

impl<P> Default for Wait<'_, P> {
    fn default() -> Self {
        Wait::new()
    }
}

impl<P> fmt::Debug for Wait<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wait").field("arms", &self.arms.len()).finish_non_exhaustive()
    }
}
