//! The error that a handler may return: any error, by `?`, as with `anyhow`.
//! It does not implement `std::error::Error` itself, so that `From` can take every error.

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

/// An error of a handler, a factory or a program's `build`.
pub struct Error(Box<dyn StdError + Send + Sync + 'static>);

/// The advice of an error about retries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Advice {
    /// The event is retried as the plan says.
    #[default]
    Usual,
    /// The error is permanent: the event fails at once, without a retry.
    Permanent,
    /// The event is retried after this wait instead of the plan's, up to the plan's longest wait.
    After(Duration),
}

/// An error with advice. Inside the box, so that `Result` stays as small as it is.
#[derive(Debug)]
struct Advised {
    error: Box<dyn StdError + Send + Sync + 'static>,
    advice: Advice,
}

impl fmt::Display for Advised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl StdError for Advised {}

/// The result of a handler: `Ok(())`, or any error by `?`.
pub type Result<T = (), E = Error> = std::result::Result<T, E>;

impl Error {
    /// Creates an error from a message.
    pub fn msg(message: impl fmt::Display) -> Self {
        Error(message.to_string().into())
    }

    /// Creates a permanent error, such as for a line that cannot be parsed: the event is not retried.
    ///
    /// ```
    /// # use comporta_model::error::{Error, Result};
    /// fn parse(text: &str) -> Result<u64> {
    ///     Ok(text.parse().map_err(Error::permanent)?)
    /// }
    /// # assert_eq!(parse("x").unwrap_err().to_string(), "invalid digit found in string");
    /// ```
    /// One that is only a text is `Error::permanent(Error::msg("..."))`.
    pub fn permanent(error: impl Into<Error>) -> Self {
        error.into().advised(Advice::Permanent)
    }

    /// Creates an error that sets the wait before the next try, as for a service that is busy. The number of
    /// tries and the longest wait are still the plan's.
    pub fn retry_after(error: impl Into<Error>, wait: Duration) -> Self {
        error.into().advised(Advice::After(wait))
    }

    fn advised(self, advice: Advice) -> Self {
        Error(Box::new(Advised { error: self.into_inner(), advice }))
    }

    /// Returns the advice of the error about retries.
    #[must_use]
    pub fn advice(&self) -> Advice {
        self.0.downcast_ref::<Advised>().map_or(Advice::Usual, |advised| advised.advice)
    }

    fn inner(&self) -> &(dyn StdError + Send + Sync + 'static) {
        self.0.downcast_ref::<Advised>().map_or(&*self.0, |advised| &*advised.error)
    }

    fn into_inner(self) -> Box<dyn StdError + Send + Sync + 'static> {
        match self.0.downcast::<Advised>() {
            Ok(advised) => advised.error,
            Err(error) => error,
        }
    }

    /// Returns the cause of the error inside, as [`std::error::Error::source`] does.
    #[must_use]
    pub fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.inner().source()
    }

    /// Returns the error inside, if it is an `E`.
    #[must_use]
    pub fn downcast_ref<E: StdError + 'static>(&self) -> Option<&E> {
        self.inner().downcast_ref()
    }
}

impl<E: StdError + Send + Sync + 'static> From<E> for Error {
    fn from(error: E) -> Self {
        Error(Box::new(error))
    }
}

impl From<Error> for Box<dyn StdError + Send + Sync> {
    fn from(error: Error) -> Self {
        error.into_inner()
    }
}

impl From<Error> for Box<dyn StdError> {
    fn from(error: Error) -> Self {
        error.into_inner()
    }
}

impl fmt::Display for Error {
    /// The message, and after it every cause: `open words.txt: no such file`. `{:#}` is the same.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.inner())?;
        let mut cause = self.inner().source();
        while let Some(inner) = cause {
            write!(f, ": {inner}")?;
            cause = inner.source();
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The return type of a handler: `()`, or a `Result<(), E>` with any error.
#[diagnostic::on_unimplemented(
    message = "a handler cannot return `{Self}`",
    label = "this returns `{Self}`",
    note = "return `()`, or a `Result<(), E>` whose error converts into `comporta::Error`",
    note = "a handler that waits is a closure for `App::sink_async`, `map_async` or `try_map_async`, or a type with `AsyncStage`"
)]
pub trait Outcome {
    /// Converts it into a `Result`.
    #[doc(hidden)]
    fn into_result(self) -> Result;
}

impl Outcome for () {
    #[inline]
    fn into_result(self) -> Result {
        Ok(())
    }
}

impl<E: Into<Error>> Outcome for std::result::Result<(), E> {
    #[inline]
    fn into_result(self) -> Result {
        self.map_err(Into::into)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_error_converts_and_prints_its_causes() {
        fn parse() -> Result<u32> {
            Ok("x".parse::<u32>()?)
        }
        let error = parse().unwrap_err();
        assert_eq!(error.to_string(), "invalid digit found in string");
        assert!(error.downcast_ref::<std::num::ParseIntError>().is_some());
    }

    #[test]
    fn advice_travels_with_an_error_and_hides_nothing_of_it() {
        let parse = || "x".parse::<u32>();
        let error = Error::permanent(parse().unwrap_err());
        assert_eq!(
            (error.advice(), error.to_string().as_str()),
            (Advice::Permanent, "invalid digit found in string")
        );
        assert!(error.downcast_ref::<std::num::ParseIntError>().is_some());
        let wait = Duration::from_secs(2);
        let again = Error::retry_after(error, wait); // the last word counts
        assert_eq!(again.advice(), Advice::After(wait));
        assert!(Box::<dyn StdError>::from(again).is::<std::num::ParseIntError>());
        assert_eq!(Error::msg("plain").advice(), Advice::Usual);
        assert_eq!(size_of::<Result>(), size_of::<Box<dyn StdError>>());
    }

    #[derive(Debug, thiserror::Error)]
    #[error("open words.txt")]
    struct Open(#[source] std::io::Error);

    #[test]
    fn an_error_shows_its_cause_and_goes_on_as_any_other() {
        let error = Error::from(Open(std::io::Error::other("no such file")));
        assert_eq!(
            format!("{error} {error:#}"),
            "open words.txt: no such file open words.txt: no such file"
        );
        assert_eq!(error.source().map(ToString::to_string).as_deref(), Some("no such file"));
        let boxed: Box<dyn StdError + Send + Sync> = error.into();
        assert!(boxed.is::<Open>());
    }
}
