//! Lines of the log that cannot fail.
//!
//! A subscriber writes to a pipe whose reader may be gone, and then many of them panic:
//! `tracing_subscriber::fmt` complains with `eprintln!`, which panics when stderr is closed as well. A line that
//! is lost must not cost a timer.

use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;
use tracing::Span;

use crate::error::{Error, ErrorKind};
use crate::panics::{contained, lock};

/// Says something; whoever panics about that is not heard.
pub fn quietly(say: impl FnOnce()) {
    let _ = contained(say);
}

/// A span that is opened and closed quietly.
#[derive(Debug)]
pub struct QuietSpan(Span);

impl QuietSpan {
    /// Opens a span; where that panics, none.
    pub fn open(open: impl FnOnce() -> Span) -> Self {
        Self(contained(open).unwrap_or_else(|_| Span::none()))
    }

    /// No span.
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

/// The same reason is said again after this.
const REMINDER: Duration = Duration::from_secs(60);

/// What goes wrong for hours is said when it begins and once a minute, not each time it is tried: the reason that was said
/// last, and when. May be shared: a server that is away is
/// one piece of news, not one for each partition.
#[derive(Debug, Default)]
pub struct LogThrottle(Mutex<Option<(ErrorKind, Instant)>>);

impl LogThrottle {
    /// Whether this is worth a line in the log. That the server is lost is said by
    /// its connections, and not by all who wait for it.
    pub fn should_log(&self, error: &Error) -> bool {
        !error.is_of_the_line() && self.is_new(error)
    }

    /// Whether this is another reason than before, or the same for another minute.
    pub fn is_new(&self, error: &Error) -> bool {
        let (kind, mut last) = (error.kind(), lock(&self.0));
        let said = last.is_some_and(|(said, at)| said == kind && at.elapsed() < REMINDER);
        if !said {
            *last = Some((kind, Instant::now()));
        }
        !said
    }

    /// All is well; whether it was not until now.
    pub fn is_over(&self) -> bool {
        lock(&self.0).take().is_some()
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
