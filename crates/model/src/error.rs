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

    /// The error inside, if it is an `E`.
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

impl fmt::Display for Error {
    /// The message, and after it every cause: `open words.txt: no such file`.
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
}
