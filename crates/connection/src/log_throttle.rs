//! What goes wrong for hours is said when it begins and once a minute, not each
//! time it is tried.

use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

use crate::error::{Error, ErrorKind};
use crate::lock::lock;

/// The same reason is said again after this.
const REMINDER: Duration = Duration::from_secs(60);

/// The reason that was said last, and when. May be shared: a server that is away is
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
