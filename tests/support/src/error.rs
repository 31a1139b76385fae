//! The error of this crate: a sentence for people who read the output of tests.

use std::fmt;

/// An error with the reason why a server was not found or did not start, and with the remedy.
#[derive(Clone, PartialEq, Eq)]
pub struct Error(String);

impl Error {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }

    /// Returns a function for `map_err` that puts the failed action before its reason.
    pub(crate) fn because<E: fmt::Display>(tried: &str) -> impl FnOnce(E) -> Self {
        move |reason| Self(format!("{tried}: {reason}"))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

// `main` and `expect` print errors with Debug, which therefore prints the sentence, too.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Error {}
