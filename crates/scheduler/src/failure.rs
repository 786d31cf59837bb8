//! How a handler fails, and what it may return.

use std::any::Any;
use std::error::Error;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use thiserror::Error;

/// The reason why a coroutine failed.
///
/// A failure is *unobserved* if its coroutine has no finalizer ([`on_end`](crate::on_end)) and its handle was dropped.
#[derive(Debug, Error)]
pub enum Failure {
    /// It returned an error ([`spawn_fallible`](crate::spawn_fallible), the handler of a source), or its
    /// source failed.
    #[error("the handler failed: {0}")]
    Error(#[source] Box<dyn Error + 'static>),
    /// It panicked, with this payload.
    #[error("the coroutine panicked: {}", panic_message(&**.0))]
    Panic(Box<dyn Any + Send + 'static>),
    /// It was cancelled.
    #[error("the coroutine was cancelled")]
    Cancelled,
}

/// The return type of the handler of a source: `()`, or a `Result`. An error ends the handler.
pub trait Outcome {
    /// Converts it into a `Result`.
    ///
    /// # Errors
    /// Returns the error of the handler.
    fn into_result(self) -> Result<(), Box<dyn Error + 'static>>;
}

impl Outcome for () {
    fn into_result(self) -> Result<(), Box<dyn Error + 'static>> {
        Ok(())
    }
}

impl<E: Into<Box<dyn Error + 'static>>> Outcome for Result<(), E> {
    fn into_result(self) -> Result<(), Box<dyn Error + 'static>> {
        self.map_err(Into::into)
    }
}

/// What is called with each unobserved failure.
pub(crate) type FailureHook = Box<dyn FnMut(&Failure)>;

/// Calls the hook; a panic of it is dropped.
pub(crate) fn call_hook(hook: &mut FailureHook, failure: &Failure) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(|| hook(failure))) {
        discard(payload);
    }
}

/// The text of a panic, if it has one.
pub(crate) fn panic_message(payload: &(dyn Any + Send)) -> &str {
    match (payload.downcast_ref::<&str>(), payload.downcast_ref::<String>()) {
        (Some(text), _) => text,
        (_, Some(text)) => text,
        _ => "(no message)",
    }
}

/// Drops a value of the user's; a panic of its `Drop` is dropped too.
pub(crate) fn discard<T>(value: T) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(value))) {
        // The payload of that panic may panic when dropped, too, and so on.
        mem::forget(payload);
    }
}
