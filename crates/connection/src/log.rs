//! Logging that cannot panic.
//!
//! A subscriber may write to a pipe whose reader has exited, and many subscribers panic then: `tracing_subscriber::fmt`
//! reports the error with `eprintln!`, which panics if stderr is closed too. A lost log line must not stop a timer.

use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;
use tracing::Span;

use crate::error::{Error, ErrorKind};
use crate::panics::{catch_panic, lock};

/// Calls `log` and discards its panic.
pub fn suppress_panics(log: impl FnOnce()) {
    let _ = catch_panic(log);
}

/// A span whose subscriber may panic.
#[derive(Debug)]
pub struct PanicSafeSpan(Span);

impl PanicSafeSpan {
    /// Opens a span, or none if `open` panics.
    pub fn open(open: impl FnOnce() -> Span) -> Self {
        Self(catch_panic(open).unwrap_or_else(|_| Span::none()))
    }

    /// Returns the disabled span.
    pub fn none() -> Self {
        Self(Span::none())
    }

    /// Changes the span, and discards a panic of `change`.
    pub fn with(&self, change: impl FnOnce(&Span)) {
        suppress_panics(|| change(&self.0));
    }

    /// Calls `log` within the span, and discards its panic.
    pub fn within(&self, log: impl FnOnce()) {
        suppress_panics(|| self.0.in_scope(log));
    }

    /// Returns the span, for a future in a [`CatchPanic`](crate::panics::CatchPanic).
    pub fn span(&self) -> Span {
        catch_panic(|| self.0.clone()).unwrap_or_else(|_| Span::none())
    }
}

impl Drop for PanicSafeSpan {
    fn drop(&mut self) {
        let span = std::mem::replace(&mut self.0, Span::none());
        suppress_panics(|| drop(span));
    }
}

/// A [`LogThrottle`] lets a lasting problem be logged again after this time.
const REMINDER: Duration = Duration::from_secs(60);

/// Limits the log lines of a lasting problem: one when it begins, and one per minute. All tasks with the problem share one
/// throttle, so that an unreachable server is not logged for each partition.
#[derive(Debug, Default)]
pub struct LogThrottle(Mutex<Option<(ErrorKind, Instant)>>);

impl LogThrottle {
    /// Returns whether to log this error. Never true for a connection error, which the connection itself logs once for all
    /// tasks.
    pub fn should_log(&self, error: &Error) -> bool {
        !error.is_connection_error() && self.is_new(error)
    }

    /// Returns whether the kind of the error differs from the last one, or one minute has passed.
    pub fn is_new(&self, error: &Error) -> bool {
        let (kind, mut last) = (error.kind(), lock(&self.0));
        let is_new = last.is_none_or(|(logged, at)| logged != kind || at.elapsed() >= REMINDER);
        if is_new {
            *last = Some((kind, Instant::now()));
        }
        is_new
    }

    /// Records success. Returns whether there was a problem before.
    pub fn is_over(&self) -> bool {
        lock(&self.0).take().is_some()
    }
}

// The macros of `tracing`, without panics. They are defined under other names, as `warn` is also an attribute.

#[doc(hidden)]
#[macro_export]
macro_rules! log_error {
    ($($line:tt)*) => { $crate::log::suppress_panics(|| $crate::log::tracing::error!($($line)*)) };
}

#[doc(hidden)]
#[macro_export]
macro_rules! log_warn {
    ($($line:tt)*) => { $crate::log::suppress_panics(|| $crate::log::tracing::warn!($($line)*)) };
}

#[doc(hidden)]
#[macro_export]
macro_rules! log_info {
    ($($line:tt)*) => { $crate::log::suppress_panics(|| $crate::log::tracing::info!($($line)*)) };
}

#[doc(hidden)]
#[macro_export]
macro_rules! log_debug {
    ($($line:tt)*) => { $crate::log::suppress_panics(|| $crate::log::tracing::debug!($($line)*)) };
}

#[doc(hidden)]
#[macro_export]
macro_rules! log_trace {
    ($($line:tt)*) => { $crate::log::suppress_panics(|| $crate::log::tracing::trace!($($line)*)) };
}

#[doc(hidden)]
pub use tracing;
pub use {log_debug as debug, log_error as error, log_info as info, log_trace as trace, log_warn as warn};

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_reason_is_said_when_it_is_new_and_once_a_minute() {
        let away = Error::new(ErrorKind::ReadOnly, "READONLY");
        let busy = Error::new(ErrorKind::Unavailable, "BUSY");
        let throttle = LogThrottle::default();
        assert!(!throttle.is_over());
        assert!(throttle.should_log(&away) && !throttle.should_log(&away));
        tokio::time::advance(REMINDER).await;
        assert!(throttle.should_log(&away) && !throttle.should_log(&away));
        assert!(throttle.should_log(&busy));
        assert!(throttle.is_over() && !throttle.is_over());
        assert!(throttle.should_log(&busy));
    }

    #[test]
    fn that_the_server_is_lost_is_left_to_its_connections() {
        let throttle = LogThrottle::default();
        for kind in [ErrorKind::Unreachable, ErrorKind::Timeout] {
            let lost = Error::new(kind, "no answer");
            assert!(!throttle.should_log(&lost) && throttle.is_new(&lost) && !throttle.is_new(&lost));
        }
    }
}
