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

    /// The last reading, if there was one.
    pub(crate) fn known(&self) -> Option<Reading> {
        *lock(&self.0)
    }
}

/// What the server's clock shows at the least at a later moment.
fn at_least(known: &Reading, later: Instant) -> ServerTime {
    let elapsed = later.saturating_duration_since(known.arrived);
    known.at(known.arrived + elapsed.saturating_sub(DRIFT_PER_S.mul_f64(elapsed.as_secs_f64())))
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
        /// Whatever the calls' ways take, and however the server's clock is slewed.
        #[test]
        fn it_never_runs_ahead(
            calls in prop::collection::vec((0..200_000_u64, 0..20_000_u64, 0..20_000_u64, -1000..=1000_i64), 1..50),
        ) {
            let (clock, start) = (Clock::default(), Instant::now());
            // The local moment, and the server's, in µs.
            let (mut local, mut server) = (0_u64, 0_f64);
            for (pause, there, back, ppm) in calls {
                let leadership = 1.0 + ppm as f64 / 1e6;
                let sent = local + pause;
                let stamped = (server + (pause + there) as f64 * leadership) as u64;
                local = sent + there + back;
                server += (pause + there + back) as f64 * leadership;
                let reading = call(&clock, start, [sent, stamped, local]);
                // Both count whole microseconds.
                prop_assert!(reading.stamp.0 <= ORIGIN + server as u64 + 1);
            }
        }
    }
}
