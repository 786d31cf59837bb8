//! The error a handler may return: any error, by `?`, as with `anyhow`.
//! It does not implement `std::error::Error` itself: that is what lets `From` take every error.

use std::error::Error as StdError;
use std::fmt;

/// Whatever went wrong in a handler, a factory or a program's `build`.
pub struct Error(Box<dyn StdError + Send + Sync + 'static>);

/// The result of a handler: `Ok(())`, or any error by `?`.
pub type Result<T = (), E = Error> = std::result::Result<T, E>;

impl Error {
    /// An error that is only a message.
    pub fn msg(message: impl fmt::Display) -> Self {
        Error(message.to_string().into())
    }

    /// Returns what caused the error inside, as [`std::error::Error::source`] does.
    #[must_use]
    pub fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source()
    }

    /// Returns the error inside, if it is an `E`.
    #[must_use]
    pub fn downcast_ref<E: StdError + 'static>(&self) -> Option<&E> {
        self.0.downcast_ref()
    }
}

impl<E: StdError + Send + Sync + 'static> From<E> for Error {
    fn from(error: E) -> Self {
        Error(Box::new(error))
    }
}

impl From<Error> for Box<dyn StdError + Send + Sync> {
    fn from(error: Error) -> Self {
        error.0
    }
}

impl From<Error> for Box<dyn StdError> {
    fn from(error: Error) -> Self {
        error.0
    }
}

impl fmt::Display for Error {
    /// The message, and after it every cause: `open words.txt: no such file`. `{:#}` is the same.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        let mut cause = self.0.source();
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

/// What a handler may return: `()`, or a `Result<(), E>` of any error.
#[diagnostic::on_unimplemented(
    message = "a handler cannot return `{Self}`",
    label = "this returns `{Self}`",
    note = "return `()`, or a `Result<(), E>` whose error converts into `comporta::Error`",
    note = "handlers are not async: send what a task produces into an input (`App::input`, `Sender::send_async`), or make a source of a stream (`sources::stream`)"
)]
pub trait Outcome {
    /// The one form the runtime looks at.
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
