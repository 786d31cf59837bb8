//! The one way into user code: handlers, factories, keys, iterators, callbacks, and the `Clone`,
//! `Drop` and `Display` of what a program sends.
//!
//! While it runs no lock of the runtime is held (asserted here, in debug builds) and no wake-up, token
//! or grant is owed: a visit has handed over its effects ([`Effects::hand_over`]) before it comes here.
//! A panic ends here, as a [`Reason`].
//!
//! [`Effects::hand_over`]: crate::effects::Effects::hand_over

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::fmt::Display;
use std::mem::needs_drop;
use std::panic;
use std::sync::Once;

use comporta_model::error::Error;

use crate::failure::Reason;
use crate::sync::assert_unlocked;

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
    static PLACE: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Calls user code, turning a panic into a reason. The panic is not printed: it is reported with the
/// event it cost. For this a hook is put before the program's own, once; it is silent only about
/// panics in here.
#[inline]
pub(crate) fn call<R>(body: impl FnOnce() -> R) -> Result<R, Reason> {
    let inside = Inside::enter();
    let result = panic::catch_unwind(panic::AssertUnwindSafe(body));
    inside.leave();
    result.map_err(reason)
}

/// The thread is in user code. Apart from [`call`], which is compiled once for each call.
struct Inside {
    before: bool,
}

impl Inside {
    #[inline]
    fn enter() -> Self {
        assert_unlocked();
        install_hook();
        // `with` costs less than `INSIDE.replace`.
        Inside { before: INSIDE.with(|inside| inside.replace(true)) }
    }

    #[inline]
    fn leave(self) {
        INSIDE.with(|inside| inside.set(self.before));
    }
}

/// A panic that was just caught inside of a [`call`], as a reason.
pub(crate) fn reason(payload: Box<dyn Any + Send>) -> Reason {
    let place = PLACE.take();
    Reason::Panic(message(payload), place)
}

/// Drops a value of the program.
pub(crate) fn discard<T>(value: T) {
    if needs_drop::<T>() {
        let _ = call(|| drop(value));
    }
}

/// The text of an error of the program, which is dropped.
pub(crate) fn text<E: Display>(error: E) -> String {
    let text = call(|| error.to_string());
    discard(error);
    text.unwrap_or_else(|reason| format!("(its text cannot be had: {reason})"))
}

/// The result of a fallible call, with its error, or its panic, as text.
pub(crate) fn try_call<R>(body: impl FnOnce() -> Result<R, Error>) -> Result<R, String> {
    match call(body) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(text(error)),
        Err(reason) => Err(reason.to_string()),
    }
}

fn install_hook() {
    static HOOK: Once = Once::new();
    // Shuttle's threads share one of the system's: a handler interrupted there would silence others.
    if cfg!(not(shuttle)) {
        HOOK.call_once(|| {
            let usual = panic::take_hook();
            panic::set_hook(Box::new(move |info| {
                if INSIDE.get() {
                    PLACE.set(info.location().map(ToString::to_string));
                } else {
                    usual(info);
                }
            }));
        });
    }
}

/// What a panic was raised with, as text. The payload is the program's too: its `Display` and its
/// `Drop` may panic again, and what that raises is leaked rather than dropped.
fn message(payload: Box<dyn Any + Send>) -> String {
    let before = INSIDE.replace(true);
    let shown = panic::catch_unwind(panic::AssertUnwindSafe(move || {
        let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
        text.or_else(|| payload.downcast_ref::<String>().cloned())
            .or_else(|| payload.downcast_ref::<Error>().map(ToString::to_string))
            .unwrap_or_else(|| "(a value that is no text)".to_owned())
    }));
    INSIDE.set(before);
    shown.unwrap_or_else(|payload| {
        std::mem::forget(payload);
        "(a value whose text cannot be had)".to_owned()
    })
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_a_reason_with_its_place() {
        let reason = call(|| panic!("bad {}", 7)).unwrap_err();
        let text = reason.to_string();
        assert!(text.starts_with("panic at ") && text.ends_with(": bad 7"), "{text}");
        assert_eq!(call(|| 3), Ok(3));
    }

    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("dropped");
        }
    }

    #[test]
    fn a_payload_that_panics_when_it_is_dropped_costs_nothing() {
        let reason = call(|| panic::panic_any(Bomb)).unwrap_err();
        assert!(reason.to_string().contains("cannot be had"), "{reason}");
        discard(Bomb);
    }

    #[test]
    #[cfg(debug_assertions)]
    fn user_code_under_a_lock_is_an_error_of_the_runtime() {
        let lock = crate::sync::Mutex::new(());
        let caught = panic::catch_unwind(panic::AssertUnwindSafe(|| {
            let _held = lock.lock();
            call(|| ())
        }));
        assert!(caught.is_err());
        assert_eq!(call(|| 1), Ok(1), "the lock is not held any more");
    }
}
