//! The one error of this crate: a sentence for whoever reads the test's output.

use std::fmt;

/// Why a server could not be found or started, and what to do about it.
#[derive(Clone, PartialEq, Eq)]
pub struct Error(String);

impl Error {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }

    /// For `map_err`: puts what was tried before the reason why it failed.
    pub(crate) fn because<E: fmt::Display>(tried: &str) -> impl FnOnce(E) -> Self {
        move |reason| Self(format!("{tried}: {reason}"))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

// `main` and `expect` print errors with Debug: let that be the sentence too.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Error {}
