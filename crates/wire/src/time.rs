//! Deadlines, and the server's clock.
//!
//! Every deadline is a time of the server that holds the index. A client never compares it with its own clock: it sleeps for
//! the difference between two times of the server.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

use crate::error::{Error, Result};

/// The longest delay that a topic can allow: 100 years.
pub const MAX_DELAY: Duration = Duration::from_secs(100 * 365 * 86_400);

/// Deadlines are below this many milliseconds since 1970 (in the year 2248). A higher score would have no digits left for
/// the order within a millisecond.
pub const MAX_DEADLINE_MS: u64 = 1 << 43;

/// When a timer is due: after a delay, or at a time of the server's clock.
///
/// A time that has passed means now, and so does a delay of zero.
///
/// ```
/// # mod keylapse { pub use keylapse_wire::time::When; }
/// use std::time::{Duration, SystemTime};
/// use keylapse::When;
///
/// /// Returns when an unpaid order is closed: at the end of its sale, or after 15 min.
/// fn close(end_of_sale: Option<SystemTime>) -> When {
///     end_of_sale.map_or(When::In(Duration::from_secs(900)), When::At)
/// }
/// assert_eq!(close(None), Duration::from_secs(900).into());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// This long after the server executes the call.
    In(Duration),
    /// At this time by the server's clock.
    At(SystemTime),
}

impl From<Duration> for When {
    fn from(delay: Duration) -> Self {
        Self::In(delay)
    }
}

impl From<SystemTime> for When {
    fn from(at: SystemTime) -> Self {
        Self::At(at)
    }
}

impl When {
    /// Converts to whole milliseconds, rounded up so that no timer is early.
    ///
    /// # Errors
    /// If the delay is over `longest`, or the time is after the year 2248.
    #[doc(hidden)]
    pub fn resolve(self, longest: Duration) -> Result<WireWhen> {
        match self {
            Self::In(delay) if delay > longest => Err(Error::invalid(format!(
                "a delay of {} is over the limit of {}: were milliseconds taken for seconds, or is it a time since \
                 1970? Topic::max_delay sets the limit",
                in_words(delay),
                in_words(longest)
            ))),
            Self::In(delay) => Ok(WireWhen::In(ms_ceil(delay))),
            Self::At(at) => match unix_ms(at) {
                ms if ms < MAX_DEADLINE_MS => Ok(WireWhen::At(ms)),
                _ => Err(Error::invalid(
                    "a deadline after the year 2248 is not supported: was a unit mixed up?",
                )),
            },
        }
    }
}

/// Formats a delay in years or days, so that a mixed-up unit is obvious.
fn in_words(delay: Duration) -> String {
    match (delay.as_secs() / (365 * 86_400), delay.as_secs() / 86_400) {
        (0, 0) => format!("{delay:?}"),
        (0, days) => format!("{days} days"),
        (years, _) => format!("{years} years"),
    }
}

/// A [`When`] within its bounds, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireWhen {
    /// After the server's present time.
    In(u64),
    /// Since 1970.
    At(u64),
}

impl fmt::Display for WireWhen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::In(ms) => write!(f, "+{ms}"),
            Self::At(ms) => write!(f, "{ms}"),
        }
    }
}

/// Converts to whole milliseconds, rounded up.
pub fn ms_ceil(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// Converts from milliseconds since 1970.
pub fn system_time(ms: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(ms)
}

/// Converts to whole milliseconds since 1970, rounded up. Earlier times are 0.
pub fn unix_ms(at: SystemTime) -> u64 {
    at.duration_since(UNIX_EPOCH).map_or(0, ms_ceil)
}

/// A time of the server's clock, in microseconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServerTime(pub u64);

impl ServerTime {
    /// Creates a time from the reply of TIME: seconds and microseconds.
    pub fn new(secs: u64, micros: u64) -> Self {
        Self(secs.saturating_mul(1_000_000).saturating_add(micros))
    }

    /// Creates a time from milliseconds since 1970.
    pub fn from_ms(ms: u64) -> Self {
        Self(ms.saturating_mul(1000))
    }

    /// Returns the milliseconds since 1970, rounded down.
    pub fn ms(self) -> u64 {
        self.0 / 1000
    }
}

/// A timestamp of the server, and the local time at which it arrived.
///
/// The server took the timestamp before it arrived, so the timestamp plus the elapsed time is a *lower* bound of the
/// server's time. A client that waits by it is never early.
#[derive(Clone, Copy, Debug)]
pub struct ClockReading {
    /// The server's time.
    pub stamp: ServerTime,
    /// When the reply arrived.
    pub arrived: Instant,
}

impl ClockReading {
    /// Creates a reading from a reply that has just arrived.
    pub fn now(stamp: ServerTime) -> Self {
        Self { stamp, arrived: Instant::now() }
    }

    /// Returns the local time at which the server has certainly reached `ms`.
    pub fn when(&self, ms: u64) -> Instant {
        let ahead = ServerTime::from_ms(ms).0.saturating_sub(self.stamp.0);
        self.arrived + Duration::from_micros(ahead)
    }

    /// Returns the server's time that has certainly been reached at the local time `at`.
    pub fn at(&self, at: Instant) -> ServerTime {
        let elapsed = at.saturating_duration_since(self.arrived).as_micros();
        // A broken or foreign server may send the highest timestamp.
        ServerTime(self.stamp.0.saturating_add(u64::try_from(elapsed).unwrap_or(u64::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_are_rounded_up() {
        assert_eq!(When::In(Duration::from_micros(1)).resolve(MAX_DELAY).unwrap(), WireWhen::In(1));
        assert_eq!(When::In(Duration::ZERO).resolve(MAX_DELAY).unwrap(), WireWhen::In(0));
    }

    #[test]
    fn enormous_delays_and_times_are_refused() {
        assert!(When::In(Duration::MAX).resolve(MAX_DELAY).is_err());
        assert!(When::In(MAX_DELAY).resolve(MAX_DELAY).is_ok());
        let far = UNIX_EPOCH + Duration::from_millis(MAX_DEADLINE_MS);
        assert!(When::At(far).resolve(MAX_DELAY).is_err());
    }

    /// The first delay is a timestamp of 2027, passed in place of a delay.
    #[test]
    fn a_delay_over_the_limit_is_refused_with_its_size_in_words() {
        let refused =
            |delay, longest| When::In(Duration::from_secs(delay)).resolve(longest).unwrap_err().to_string();
        let ten_years = Duration::from_secs(10 * 365 * 86_400);
        let message = refused(1_800_000_000, ten_years);
        assert!(
            message.starts_with("a delay of 57 years is over the limit of 10 years: were milliseconds"),
            "{message}"
        );
        assert!(message.contains("Topic::max_delay"), "{message}");
        assert!(
            refused(2 * 86_400, Duration::from_secs(3600))
                .starts_with("a delay of 2 days is over the limit of 3600s")
        );
    }

    #[test]
    fn times_before_1970_mean_now() {
        let before = UNIX_EPOCH - Duration::from_secs(1);
        assert_eq!(When::At(before).resolve(MAX_DELAY).unwrap(), WireWhen::At(0));
    }

    #[test]
    fn a_reading_never_runs_ahead_of_the_stamp() {
        let reading = ClockReading::now(ServerTime::new(10, 500));
        assert_eq!(reading.when(10_000), reading.arrived);
        assert_eq!(reading.when(10_001), reading.arrived + Duration::from_micros(500));
        assert_eq!(reading.at(reading.arrived), ServerTime::new(10, 500));
    }

    /// A leap second is a second that a server counts twice.
    #[test]
    fn a_second_that_is_counted_twice_makes_a_client_wait_and_never_early() {
        let (before, after) = (ServerTime::new(10, 999_999), ServerTime::new(10, 0));
        let arrived = Instant::now();
        let [before, after] = [before, after].map(|stamp| ClockReading { stamp, arrived });
        assert!(after.when(11_000) > before.when(11_000));
        assert_eq!(after.when(11_000), arrived + Duration::from_secs(1));
        assert!(after.at(arrived) < before.at(arrived));
    }

    #[test]
    fn a_reading_of_the_last_stamp_there_is_stays_there() {
        let reading = ClockReading::now(ServerTime::new(u64::MAX, u64::MAX));
        assert_eq!(reading.at(reading.arrived + Duration::from_secs(1)), reading.stamp);
        assert_eq!(reading.when(u64::MAX), reading.arrived);
    }
}
