//! Backoff schedules: how long to wait before the next attempt.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::time::MAX_DELAY;

/// The delays of a well-known payment notification service in seconds: 15 retries within 24 h 4 min.
const PAYMENT_NOTICE: [u64; 15] =
    [15, 15, 30, 180, 600, 1200, 1800, 1800, 1800, 3600, 10_800, 10_800, 10_800, 21_600, 21_600];

/// A backoff schedule: how long to wait after each failed attempt.
///
/// `delay(1)` is the delay after the first attempt. The longest delay is 100 years ([`MAX_DELAY`]).
///
/// ```
/// use std::time::Duration;
/// use keylapse::Backoff;
///
/// let backoff = Backoff::table([Duration::from_secs(15), Duration::from_secs(180)]);
/// assert_eq!(backoff.delay(1), Duration::from_secs(15));
/// assert_eq!(backoff.delay(2), Duration::from_secs(180));
/// assert_eq!(backoff.attempts(), Some(3));
/// ```
#[derive(Clone)]
pub struct Backoff(Kind);

#[derive(Clone)]
enum Kind {
    Fixed(Duration),
    Table(Arc<[Duration]>),
    Exponential { base: Duration, cap: Duration },
    Custom(Arc<dyn Fn(u32) -> Duration + Send + Sync>),
}

impl Backoff {
    /// Waits for the same time after each attempt.
    pub fn fixed(delay: Duration) -> Self {
        Self(Kind::Fixed(delay))
    }

    /// Waits for one delay of the table after each failed attempt.
    ///
    /// A table of n delays allows n + 1 attempts. If the topic allows more, the last delay repeats. An empty table
    /// allows one attempt; further ones follow without delay.
    pub fn table(delays: impl IntoIterator<Item = Duration>) -> Self {
        Self(Kind::Table(delays.into_iter().collect()))
    }

    /// Returns the schedule of payment notifications, with 16 attempts. The delays are 15 s, 15 s, 30 s, 3 min, 10
    /// min, 20 min, 3 × 30 min, 1 h, 3 × 3 h and 2 × 6 h.
    pub fn payment_notice() -> Self {
        Self::table(PAYMENT_NOTICE.map(Duration::from_secs))
    }

    /// Waits for a random time between zero and `base` · 2ⁿ⁻¹ after the n-th attempt, at most `cap` (“full jitter”).
    /// Timers that failed at the same time retry at different times.
    pub fn exponential(base: Duration, cap: Duration) -> Self {
        Self(Kind::Exponential { base, cap })
    }

    /// Calls a function with the number of the failed attempt, counted from 1. It returns the delay.
    pub fn custom(delay: impl Fn(u32) -> Duration + Send + Sync + 'static) -> Self {
        Self(Kind::Custom(Arc::new(delay)))
    }

    /// Returns the delay after an attempt, counted from 1. Random schedules return another delay at each call.
    pub fn delay(&self, attempt: u32) -> Duration {
        let delay = match &self.0 {
            Kind::Fixed(delay) => *delay,
            Kind::Table(delays) => {
                let at = usize::try_from(attempt.saturating_sub(1)).unwrap_or(usize::MAX);
                delays.get(at).or(delays.last()).copied().unwrap_or_default()
            }
            Kind::Exponential { base, cap } => ceiling(*base, *cap, attempt).mul_f64(rand::random()),
            Kind::Custom(delay) => delay(attempt),
        };
        delay.min(MAX_DELAY)
    }

    /// Returns how many attempts a table allows, or `None` for other schedules.
    pub fn attempts(&self) -> Option<u32> {
        match &self.0 {
            Kind::Table(delays) => Some(u32::try_from(delays.len()).unwrap_or(u32::MAX).saturating_add(1)),
            _ => None,
        }
    }
}

/// Returns `base`, doubled for each attempt after the first, at most `cap`.
fn ceiling(base: Duration, cap: Duration, attempt: u32) -> Duration {
    let doublings = attempt.saturating_sub(1).min(31);
    base.checked_mul(1 << doublings).unwrap_or(cap).min(cap).min(MAX_DELAY)
}

impl Default for Backoff {
    /// Returns an exponential schedule from 1 s to 10 min.
    fn default() -> Self {
        Self::exponential(Duration::from_secs(1), Duration::from_secs(600))
    }
}

impl fmt::Debug for Backoff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Fixed(delay) => f.debug_tuple("Fixed").field(delay).finish(),
            Kind::Table(delays) => f.debug_tuple("Table").field(delays).finish(),
            Kind::Exponential { base, cap } => {
                f.debug_struct("Exponential").field("base", base).field("cap", cap).finish()
            }
            Kind::Custom(_) => f.write_str("Custom"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_payment_schedule_has_sixteen_attempts() {
        let backoff = Backoff::payment_notice();
        assert_eq!(backoff.attempts(), Some(16));
        let half_minutes =
            [0.5, 0.5, 1., 6., 20., 40., 60., 60., 60., 120., 360., 360., 360., 720., 720., 720.];
        let waits: Vec<_> = (1..=16).map(|attempt| backoff.delay(attempt).as_secs_f64() / 30.).collect();
        assert_eq!(waits, half_minutes);
        assert_eq!(backoff.delay(99), Duration::from_secs(6 * 3600));
    }

    #[test]
    fn an_empty_table_does_not_wait() {
        assert_eq!(Backoff::table([]).delay(1), Duration::ZERO);
        assert_eq!(Backoff::table([]).attempts(), Some(1));
    }

    proptest! {
        #[test]
        fn exponential_waits_stay_within_their_ceiling(
            base in 0u64..1 << 60, cap in 0u64..1 << 60, attempt in any::<u32>(),
        ) {
            let (base, cap) = (Duration::from_nanos(base), Duration::from_nanos(cap));
            let delay = Backoff::exponential(base, cap).delay(attempt);
            prop_assert!(delay <= cap);
            prop_assert!(attempt > 1 || delay <= base);
        }

        #[test]
        fn no_kind_panics_or_exceeds_a_hundred_years(attempt in any::<u32>()) {
            for backoff in [
                Backoff::fixed(Duration::MAX),
                Backoff::exponential(Duration::MAX, Duration::MAX),
                Backoff::custom(|_| Duration::MAX),
            ] {
                prop_assert!(backoff.delay(attempt) <= MAX_DELAY);
            }
        }
    }
}
