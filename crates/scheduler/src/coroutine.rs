//! Coroutines and their stacks: asymmetric, stackful, on corosensei. The only file with `unsafe`.
//!
//! - [`Coroutine`] is a body on a stack of its own; `resume` runs it until it suspends or ends.
//! - [`suspend`] returns from the `resume` in hand, from however many calls deep.
//! - [`StackPool`] keeps the stacks of coroutines that ended. A stack is mapped with a guard page
//!   below it: an overflow ends the process there and never writes to another's memory.
//! - `trim` gives the pages of a stack that are not in use back to the system.
//!
//! Two things here are `unsafe`. A coroutine suspends through a `Yielder` that corosensei lends to
//! its body; functions called deep inside find it through a thread-local pointer. And pages are
//! given back with `madvise`, below the pointer of a stack at which nothing lives.
//!
//! Invariant: `RUNNING` is null, or points to the `Link` of the coroutine whose `resume` is the
//! innermost of ours on this thread; it is null inside of [`hide`], too. It holds also if `resume` panics; nothing
//! unwinds out of a body, which would free what the invariant says is alive: the process aborts instead.

#![allow(unsafe_code)]

use crate::repository::Cause;
use corosensei::stack::{DefaultStack, Stack as _};
use corosensei::{CoroutineResult, Yielder};
use std::cell::Cell;
use std::io;
use std::mem;
use std::process;
use std::ptr;

thread_local! {
    static RUNNING: Cell<*const Link> = const { Cell::new(ptr::null()) };
}

/// Room for the frames between the one that suspends and the switch itself: those of `Yielder::suspend`, which
/// are some hundred bytes without optimisation.
#[cfg(target_os = "linux")]
const MARGIN: usize = 4096;

/// What code inside of a coroutine needs of it.
struct Link {
    owner: *const (),
    yielder: Cell<*const Yielder<Cause, ()>>,
    /// An address below the frame that suspended it, by less than a call of a small function takes.
    suspended_at: Cell<usize>,
}

pub(crate) struct Coroutine {
    raw: corosensei::Coroutine<Cause, (), (), DefaultStack>,
    link: Box<Link>,
    /// Where the stack ends; corosensei owns it until the coroutine has ended.
    limit: usize,
    base: usize,
}

impl Coroutine {
    /// A coroutine that will run `body`, which must not unwind: the process would abort. What its owner is, [`owner`]
    /// returns inside of it.
    pub(crate) fn new<T>(
        stack: Stack,
        owner: *const T,
        body: impl FnOnce() + 'static,
    ) -> Coroutine {
        let (limit, base) = (stack.0.limit().get(), stack.0.base().get());
        // Boxed, because corosensei hands over no more than 1 KiB.
        let body = Box::new(body);
        let raw = corosensei::Coroutine::with_stack(stack.0, move |yielder, _begin| {
            let running = RUNNING.get();
            // SAFETY: `resume` has set `RUNNING` to the link of this coroutine, boxed beside it, and
            // borrows both until the switch returns.
            unsafe { (*running).yielder.set(yielder) };
            let unwound = AbortOnDrop;
            body();
            mem::forget(unwound);
        });
        let owner = owner.cast();
        let link = Link { owner, yielder: Cell::new(ptr::null()), suspended_at: Cell::new(0) };
        Coroutine { raw, link: Box::new(link), limit, base }
    }

    /// Runs it until it suspends or ends; returns whether it ended. What suspended it returns `cause`.
    #[inline]
    pub(crate) fn resume(&mut self, cause: Cause) -> bool {
        let _outer = Outer(RUNNING.replace(&raw const *self.link));
        let result = self.raw.resume(cause);
        matches!(result, CoroutineResult::Return(()))
    }

    /// Gives back the pages below the frame that suspended it.
    pub(crate) fn trim(&mut self) {
        let at = self.link.suspended_at.get();
        // Elsewhere if it was suspended from inside a foreign coroutine that it resumed.
        if (self.limit..self.base).contains(&at) && !self.raw.done() {
            // SAFETY: the coroutine is suspended (`self` is borrowed, and it is not running), its
            // stack pointer is less than `MARGIN` below the frame that suspended it, which is above `at`, and
            // nothing lives below that.
            #[cfg(target_os = "linux")]
            unsafe {
                give_back(self.limit, at.saturating_sub(MARGIN));
            }
        }
    }

    /// The stack of a coroutine that has ended.
    pub(crate) fn into_stack(self) -> Stack {
        Stack(self.raw.into_stack())
    }
}

/// The owner of the innermost coroutine that runs on this thread, to be compared; null if there is none.
#[inline(always)]
pub(crate) fn owner<T>() -> *const T {
    let link = RUNNING.get();
    if link.is_null() {
        return ptr::null();
    }
    // SAFETY: by the invariant of `RUNNING` the coroutine is being resumed by this thread right now, and its link alive.
    unsafe { (*link).owner.cast() }
}

/// Code that runs until the guard is dropped runs in no coroutine, although one has called it.
pub(crate) fn hide() -> Outer {
    Outer(RUNNING.replace(ptr::null()))
}

/// Restores `RUNNING` when it is dropped: when `resume` returns or panics.
pub(crate) struct Outer(*const Link);

impl Drop for Outer {
    #[inline]
    fn drop(&mut self) {
        RUNNING.set(self.0);
    }
}

/// Aborts the process when it is dropped, which only unwinding does.
struct AbortOnDrop;

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        process::abort();
    }
}

/// Suspends the innermost coroutine that runs on this thread, after a call of `prepare`, which leaves it where it will be
/// resumed from. Returns why it was resumed.
///
/// # Panics
/// Panics if that coroutine is not one of this owner's, or there is none.
#[inline(always)]
pub(crate) fn suspend<T>(owner: *const T, prepare: impl FnOnce()) -> Cause {
    let link = RUNNING.get();
    // SAFETY: by the invariant of `RUNNING` the link is alive if there is one.
    let here = !link.is_null() && ptr::eq(unsafe { (*link).owner }, owner.cast());
    assert!(here, "an operation would wait outside of a coroutine of its scheduler");
    prepare();
    // SAFETY: by the invariant of `RUNNING` the coroutine is being resumed by this thread right now:
    // its link is alive, and so is the yielder, which lives as long as its body runs. The body
    // runs, because user code that gets here is called by it. It is still the innermost: whatever `prepare` may have
    // resumed has returned.
    unsafe {
        mark(&*link);
        (*(*link).yielder.get()).suspend(())
    }
}

/// Notes where the frame ends that calls this, and suspends next, however large it is.
///
/// Never inlined: so its own frame, in which the local is, stands right below that one (see `trim`).
#[inline(never)]
fn mark(link: &Link) {
    let marker = 0_u8;
    link.suspended_at.set((&raw const marker).addr());
}

/// A stack that no coroutine uses.
pub(crate) struct Stack(DefaultStack);

/// The stacks of coroutines that ended, up to a number, the last one first.
pub(crate) struct StackPool {
    size: usize,
    kept_max: usize,
    kept: Vec<Stack>,
    /// So many at the bottom hold no pages; so many were not touched since the last `trim`.
    trimmed: usize,
    untouched: usize,
}

impl StackPool {
    pub(crate) fn new(size: usize, kept_max: usize) -> StackPool {
        StackPool { size, kept_max, kept: Vec::new(), trimmed: 0, untouched: 0 }
    }

    pub(crate) fn take(&mut self) -> io::Result<Stack> {
        let Some(stack) = self.kept.pop() else {
            return DefaultStack::new(self.size).map(Stack);
        };
        self.untouched = self.untouched.min(self.kept.len());
        self.trimmed = self.trimmed.min(self.kept.len());
        Ok(stack)
    }

    pub(crate) fn put(&mut self, stack: Stack) {
        if self.kept.len() < self.kept_max {
            self.kept.push(stack);
        }
    }

    /// Gives back the pages of up to `most` stacks that were not used since the last call.
    /// Returns whether it left some with pages.
    pub(crate) fn trim(&mut self, most: usize) -> bool {
        let end = self.untouched.min(self.trimmed + most).max(self.trimmed);
        for stack in &self.kept[self.trimmed..end] {
            stack.trim();
        }
        self.trimmed = end;
        self.untouched = self.kept.len();
        self.trimmed < self.kept.len()
    }
}

impl Stack {
    fn trim(&self) {
        // SAFETY: no coroutine uses this stack, so nothing lives on it.
        #[cfg(target_os = "linux")]
        unsafe {
            give_back(self.0.limit().get(), self.0.base().get());
        }
    }
}

/// Gives back the whole pages of a stack between its guard page and `end`.
///
/// # Safety
/// `limit` is the limit of a mapped stack, `end` lies in it, and nothing lives between them.
#[cfg(target_os = "linux")]
unsafe fn give_back(limit: usize, end: usize) {
    let page = rustix::param::page_size();
    let (from, to) = (limit + page, end & !(page - 1));
    if from < to {
        let at = ptr::with_exposed_provenance_mut(from);
        // An error would leave the pages where they are, which is no harm.
        // SAFETY: as the caller promises.
        let _ = unsafe { rustix::mm::madvise(at, to - from, rustix::mm::Advice::LinuxDontNeed) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;
    use std::panic;
    use std::rc::Rc;

    const SIZE: usize = 2 * 1024 * 1024;
    const NOBODY: *const () = ptr::null();

    fn wait() -> Cause {
        suspend(NOBODY, || ())
    }

    fn pool() -> StackPool {
        StackPool::new(SIZE, 2)
    }

    #[inline(never)]
    fn deep(calls: usize, at_the_end: &dyn Fn()) -> usize {
        let frame = std::hint::black_box([calls; 64]);
        if calls == 0 {
            at_the_end();
        } else {
            deep(calls - 1, at_the_end);
        }
        std::hint::black_box(frame)[0]
    }

    #[test]
    fn a_coroutine_suspends_from_nested_calls_and_goes_on_there() {
        let log = Rc::new(Cell::new(0));
        let inner = log.clone();
        let mut coroutine = Coroutine::new(pool().take().unwrap(), NOBODY, move || {
            deep(100, &|| {
                inner.set(1);
                assert_eq!(wait(), Cause::Event);
                inner.set(2);
            });
        });
        assert!(!coroutine.resume(Cause::Event));
        assert_eq!(log.get(), 1);
        assert!(coroutine.resume(Cause::Event));
        assert_eq!(log.get(), 2);
    }

    #[test]
    fn a_resume_that_panics_leaves_no_coroutine_running() {
        let mut coroutine = Coroutine::new(pool().take().unwrap(), NOBODY, || ());
        assert!(coroutine.resume(Cause::Event));
        let resumed =
            panic::catch_unwind(panic::AssertUnwindSafe(|| coroutine.resume(Cause::Event)));
        assert!(resumed.is_err(), "it has ended");
        assert!(RUNNING.get().is_null());
    }

    #[test]
    fn a_body_that_unwinds_aborts_the_process() {
        let output = process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "coroutine::tests::unwinds", "--ignored", "--nocapture"])
            .output()
            .unwrap();
        const SIGABRT: i32 = 6;
        assert_eq!(output.status.signal(), Some(SIGABRT), "{output:?}");
    }

    #[test]
    #[ignore = "ends its process: run by a_body_that_unwinds_aborts_the_process"]
    fn unwinds() {
        Coroutine::new(pool().take().unwrap(), NOBODY, || panic!("on purpose"))
            .resume(Cause::Event);
    }

    #[test]
    fn trimming_leaves_what_lives_on_a_suspended_stack() {
        let mut coroutine = Coroutine::new(pool().take().unwrap(), NOBODY, || {
            for calls in [0, 10, 300, 3] {
                deep(300, &|| ());
                let kept = std::hint::black_box([calls; 100]);
                assert_eq!(deep(calls, &|| assert_eq!(wait(), Cause::Event)), calls);
                assert_eq!(std::hint::black_box(kept), [calls; 100]);
            }
        });
        for _ in 0..4 {
            assert!(!coroutine.resume(Cause::Event));
            coroutine.trim();
        }
        assert!(coroutine.resume(Cause::Event));
    }

    #[test]
    fn trimming_leaves_a_large_frame_that_suspends() {
        let mut coroutine = Coroutine::new(pool().take().unwrap(), NOBODY, || {
            let kept = std::hint::black_box([1_u8; 64 * 1024]);
            assert_eq!(wait(), Cause::Event);
            assert!(std::hint::black_box(&kept).iter().all(|byte| *byte == 1));
        });
        assert!(!coroutine.resume(Cause::Event));
        coroutine.trim();
        assert!(coroutine.resume(Cause::Event));
    }

    #[test]
    fn a_coroutine_suspended_from_inside_a_foreign_one_is_not_trimmed_but_goes_on() {
        let mut outer = Coroutine::new(pool().take().unwrap(), NOBODY, || {
            let mut foreign = corosensei::Coroutine::<(), (), u8>::new(|_, ()| {
                assert_eq!(wait(), Cause::Event);
                7
            });
            assert_eq!(foreign.resume(()).as_return(), Some(7));
        });
        assert!(!outer.resume(Cause::Event));
        outer.trim();
        assert!(outer.resume(Cause::Event));
    }

    #[test]
    fn pool_reuses_the_last_stack_and_keeps_no_more_than_its_bound() {
        let mut pool = pool();
        let stacks: Vec<Stack> = (0..3).map(|_| pool.take().unwrap()).collect();
        let bases: Vec<usize> = stacks.iter().map(|stack| stack.0.base().get()).collect();
        stacks.into_iter().for_each(|stack| pool.put(stack));
        assert_eq!(pool.kept.len(), 2);
        assert_eq!(pool.take().unwrap().0.base().get(), bases[1]);
    }

    #[test]
    fn pool_trims_a_stack_once_and_only_when_it_was_left_alone() {
        let mut pool = pool();
        let stack = pool.take().unwrap();
        pool.put(stack);
        assert!(pool.trim(8), "just used: the next call comes for it");
        assert!(!pool.trim(8));
        assert_eq!(pool.trimmed, 1);
        let stack = pool.take().unwrap();
        assert_eq!(pool.trimmed, 0);
        pool.put(stack);
        assert!(pool.trim(0) && pool.trim(0), "a bound of none trims none");
    }
}
