//! The server's clock, as well as its answers show it.
//!
//! A stamp is older than it looks by the time that the rest of its script and
//! the way back took, which is most of what a timer would be late by
//! (`make bench`: a quarter of a millisecond). The answers of the last moments
//! were not all equally slow: the quickest of them says best what time it is.

use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

use crate::lock::lock;
use crate::time::{Reading, ServerTime};

/// What two clocks may drift apart in a second: each may be slewed by 500 ppm
/// (`adjtimex(2)`), and in opposite directions.
const DRIFT_PER_S: Duration = Duration::from_millis(1);

/// A lower bound of the server's now.
#[derive(Debug, Default)]
pub(crate) struct Clock(Mutex<Option<Reading>>);

impl Clock {
    /// The best that is known when this answer arrives, to a call that was sent
    /// then.
    ///
    /// A stamp from before the call was sent, by the bound, shows that the clock was set
    /// back: what was known is forgotten. What goes unnoticed is a step back
    /// that is shorter than the call took.
    pub(crate) fn read(&self, sent: Instant, answer: Reading) -> Reading {
        let mut known = lock(&self.0);
        let earlier = known
            .filter(|known| at_least(known, sent) <= answer.stamp)
            .map(|known| at_least(&known, answer.arrived));
        let stamp = earlier.map_or(answer.stamp, |stamp| stamp.max(answer.stamp));
        *known.insert(Reading { stamp, ..answer })
    }

    /// What it showed at that moment at the least; the beginning of time where nothing is known.
    pub(crate) fn at_least(&self, moment: Instant) -> ServerTime {
        self.known().map_or(ServerTime::default(), |known| at_least(&known, moment))
    }

    /// The last reading, if there was one.
    pub(crate) fn known(&self) -> Option<Reading> {
        *lock(&self.0)
    }
}

/// What the server's clock shows at the least at another moment. That may be an earlier one: of calls that
/// overlap, one was sent before the answer to the other arrived.
fn at_least(known: &Reading, moment: Instant) -> ServerTime {
    let later = moment.saturating_duration_since(known.arrived);
    let earlier = known.arrived.saturating_duration_since(moment);
    let drift = DRIFT_PER_S.mul_f64((later + earlier).as_secs_f64());
    let ahead = signed_nanos(later) - signed_nanos(earlier) - signed_nanos(drift);
    ServerTime(known.stamp.0.saturating_add_signed(ahead.div_euclid(1000)))
}

fn signed_nanos(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX / 4)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The server's clock at the moment that the tests count from.
    const ORIGIN: u64 = 1_000_000_000;

    const fn us(us: u64) -> Duration {
        Duration::from_micros(us)
    }

    /// A call that was sent, stamped and answered at these moments, in µs.
    fn call(clock: &Clock, start: Instant, [sent, stamped, arrived]: [u64; 3]) -> Reading {
        let answer = Reading { stamp: ServerTime(ORIGIN + stamped), arrived: start + us(arrived) };
        clock.read(start + us(sent), answer)
    }

    #[test]
    fn a_slow_answer_is_read_by_a_quick_one() {
        let (clock, start) = (Clock::default(), Instant::now());
        assert_eq!(call(&clock, start, [0, 400, 500]).stamp, ServerTime(ORIGIN + 400));
        // After 10 ms, less what the clocks may have drifted.
        assert_eq!(call(&clock, start, [10_000, 10_100, 10_500]).stamp, ServerTime(ORIGIN + 10_390));
        // A quicker one is better still.
        assert_eq!(call(&clock, start, [20_000, 20_040, 20_050]).stamp, ServerTime(ORIGIN + 20_040));
    }

    #[test]
    fn a_clock_that_was_set_back_is_believed() {
        let (clock, start) = (Clock::default(), Instant::now());
        call(&clock, start, [0, 5_000_000, 500]);
        assert_eq!(call(&clock, start, [10_000, 10_100, 10_500]).stamp, ServerTime(ORIGIN + 10_100));
    }

    #[test]
    fn what_is_known_wears_out() {
        let (clock, start) = (Clock::default(), Instant::now());
        call(&clock, start, [0, 500, 500]);
        let hour = 3_600_000_000;
        let late = [hour, hour + 100, hour + 900_000];
        assert_eq!(call(&clock, start, late).stamp, ServerTime(ORIGIN + hour + 100));
    }

    proptest! {
        /// Whatever the calls' ways take, however they overlap and the server's clock is slewed: it never runs ahead,
        /// and nothing that a quick answer has shown is forgotten. Once it was with each answer to a call that had
        /// been sent before another was answered, as claims and acks are: at 10,000 timers a second their starts were
        /// 0.3 ms late for it.
        #[test]
        fn it_never_runs_ahead_and_forgets_nothing(
            calls in prop::collection::vec((0..20_000_u64, 0..20_000_u64, 0..20_000_u64), 1..50),
            swaps in prop::collection::vec(any::<prop::sample::Index>(), 0..10),
            ppm in -500..=500_i64,
        ) {
            let (clock, start) = (Clock::default(), Instant::now());
            let server = |local: u64| local as f64 * (1.0 + ppm as f64 / 1e6);
            let mut sent = 0;
            let mut moments: Vec<[u64; 3]> = calls.iter().map(|(pause, there, back)| {
                sent += pause;
                [sent, sent + there, sent + there + back]
            }).collect();
            moments.sort_by_key(|moments| moments[2]);
            // Answers may be read in another order than that in which they came.
            let pairs = moments.len() - 1;
            for at in swaps.iter().filter(|_| pairs > 0) {
                let at = at.index(pairs);
                moments.swap(at, at + 1);
            }
            let mut quickest = f64::MAX;
            for [sent, stamped, arrived] in moments {
                let stamped = server(stamped) as u64;
                let reading = call(&clock, start, [sent, stamped, arrived]);
                let behind = server(arrived) - (reading.stamp.0 as f64 - ORIGIN as f64);
                // Both count whole microseconds.
                prop_assert!(behind > -2.0, "{behind} µs");
                quickest = f64::min(quickest, server(arrived) - stamped as f64);
                // It wears out by what the clocks may drift apart, and by parts of a microsecond.
                prop_assert!(behind <= quickest + 2e-3 * arrived as f64 + 200.0, "{behind} µs, {quickest}");
            }
        }
    }
}
