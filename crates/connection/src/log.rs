//! Lines of the log that cannot fail.
//!
//! A subscriber writes to a pipe whose reader may be gone, and then many of them panic:
//! `tracing_subscriber::fmt` complains with `eprintln!`, which panics when stderr is closed as well. A line that
//! is lost must not cost a timer.

use tracing::Span;

use crate::panics::contained;

/// Says something; whoever panics about that is not heard.
pub fn quietly(say: impl FnOnce()) {
    let _ = contained(say);
}

/// A span that is opened and closed quietly.
pub struct QuietSpan(Span);

impl QuietSpan {
    pub fn open(open: impl FnOnce() -> Span) -> Self {
        Self(contained(open).unwrap_or_else(|_| Span::none()))
    }

    pub fn none() -> Self {
        Self(Span::none())
    }

    /// Does something to it that may panic.
    pub fn with(&self, change: impl FnOnce(&Span)) {
        quietly(|| change(&self.0));
    }

    /// Says something within it.
    pub fn within(&self, say: impl FnOnce()) {
        quietly(|| self.0.in_scope(say));
    }

    /// The same span, for a future that is [contained](crate::panics::Contained).
    pub fn span(&self) -> Span {
        contained(|| self.0.clone()).unwrap_or_else(|_| Span::none())
    }
}

impl Drop for QuietSpan {
    fn drop(&mut self) {
        let span = std::mem::replace(&mut self.0, Span::none());
        quietly(|| drop(span));
    }
}

// The macros of `tracing`, quietly. Under names of their own first, as `warn` is an attribute, too.

#[doc(hidden)]
#[macro_export]
macro_rules! say_error {
    ($($line:tt)*) => { $crate::log::quietly(|| $crate::log::tracing::error!($($line)*)) };
}

#[doc(hidden)]
#[macro_export]
macro_rules! say_warn {
    ($($line:tt)*) => { $crate::log::quietly(|| $crate::log::tracing::warn!($($line)*)) };
}

#[doc(hidden)]
#[macro_export]
macro_rules! say_info {
    ($($line:tt)*) => { $crate::log::quietly(|| $crate::log::tracing::info!($($line)*)) };
}

#[doc(hidden)]
#[macro_export]
macro_rules! say_debug {
    ($($line:tt)*) => { $crate::log::quietly(|| $crate::log::tracing::debug!($($line)*)) };
}

#[doc(hidden)]
#[macro_export]
macro_rules! say_trace {
    ($($line:tt)*) => { $crate::log::quietly(|| $crate::log::tracing::trace!($($line)*)) };
}

#[doc(hidden)]
pub use tracing;
pub use {say_debug as debug, say_error as error, say_info as info, say_trace as trace, say_warn as warn};
