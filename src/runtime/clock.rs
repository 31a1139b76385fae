//! An estimate of the server's clock from the time stamps in its answers.
//!
//! When an answer arrives, its stamp is outdated by the time that the rest of the script and the way back took. This
//! causes most of a timer's lateness (`make bench`: 0.25 ms). Some answers are faster than others, so the fastest
//! recent answer gives the best estimate.

use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

use crate::lock::lock;
use crate::time::{ClockReading, ServerTime};

/// The most that two clocks drift apart in a second. Each may be slewed by 500 ppm (`adjtimex(2)`), in opposite
/// directions.
const DRIFT_PER_S: Duration = Duration::from_millis(1);

/// A lower bound of the server's current time.
#[derive(Debug, Default)]
pub(crate) struct ServerClock(Mutex<Option<ClockReading>>);

impl ServerClock {
    /// Improves the bound with an answer to a call that was sent at `sent`. Returns the bound at the answer's arrival.
    ///
    /// A stamp below the bound at the time of sending shows that the server's clock was set back, and the old bound
    /// is discarded. A step back that is shorter than the call is not detected.
    pub(crate) fn update(&self, sent: Instant, answer: ClockReading) -> ClockReading {
        let mut known = lock(&self.0);
        let earlier = known
            .filter(|known| at_least(known, sent) <= answer.stamp)
            .map(|known| at_least(&known, answer.arrived));
        let stamp = earlier.map_or(answer.stamp, |stamp| stamp.max(answer.stamp));
        *known.insert(ClockReading { stamp, ..answer })
    }

    /// Returns the earliest time that the server's clock can have shown at a moment. Before the first answer it
    /// returns zero.
    pub(crate) fn at_least(&self, moment: Instant) -> ServerTime {
        self.bound().map_or(ServerTime::default(), |known| at_least(&known, moment))
    }

    /// Returns the bound at the arrival of the last answer, or `None` before the first answer.
    pub(crate) fn bound(&self) -> Option<ClockReading> {
        *lock(&self.0)
    }
}

/// Returns the lower bound at another moment. The moment may precede the bound's: if calls overlap, one was sent before
/// the answer to the other arrived.
fn at_least(known: &ClockReading, moment: Instant) -> ServerTime {
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

    /// The server's time at the start of a test.
    const ORIGIN: u64 = 1_000_000_000;

    const fn us(us: u64) -> Duration {
        Duration::from_micros(us)
    }

    /// Reads the answer to a call that was sent, stamped and answered at these times, in µs.
    fn call(clock: &ServerClock, start: Instant, [sent, stamped, arrived]: [u64; 3]) -> ClockReading {
        let answer = ClockReading { stamp: ServerTime(ORIGIN + stamped), arrived: start + us(arrived) };
        clock.update(start + us(sent), answer)
    }

    #[test]
    fn a_fast_answer_improves_a_slow_one() {
        let (clock, start) = (ServerClock::default(), Instant::now());
        assert_eq!(call(&clock, start, [0, 400, 500]).stamp, ServerTime(ORIGIN + 400));
        // 10 ms later, minus the maximum drift.
        assert_eq!(call(&clock, start, [10_000, 10_100, 10_500]).stamp, ServerTime(ORIGIN + 10_390));
        // A faster answer improves the bound.
        assert_eq!(call(&clock, start, [20_000, 20_040, 20_050]).stamp, ServerTime(ORIGIN + 20_040));
    }

    #[test]
    fn a_clock_that_was_set_back_resets_the_bound() {
        let (clock, start) = (ServerClock::default(), Instant::now());
        call(&clock, start, [0, 5_000_000, 500]);
        assert_eq!(call(&clock, start, [10_000, 10_100, 10_500]).stamp, ServerTime(ORIGIN + 10_100));
    }

    #[test]
    fn an_old_bound_gives_way_to_a_slow_answer() {
        let (clock, start) = (ServerClock::default(), Instant::now());
        call(&clock, start, [0, 500, 500]);
        let hour = 3_600_000_000;
        let late = [hour, hour + 100, hour + 900_000];
        assert_eq!(call(&clock, start, late).stamp, ServerTime(ORIGIN + hour + 100));
    }

    proptest! {
        /// The bound never runs ahead of the server's clock, and keeps the result of a fast answer, with any delays,
        /// overlaps and drift.
        ///
        /// Regression: calls that overlapped, as claims and acks do, discarded the bound with each answer. At 10,000
        /// timers a second, starts were 0.3 ms late.
        #[test]
        fn the_bound_never_runs_ahead_and_keeps_the_fastest_answer(
            calls in prop::collection::vec((0..20_000_u64, 0..20_000_u64, 0..20_000_u64), 1..50),
            swaps in prop::collection::vec(any::<prop::sample::Index>(), 0..10),
            ppm in -500..=500_i64,
        ) {
            let (clock, start) = (ServerClock::default(), Instant::now());
            let server = |local: u64| local as f64 * (1.0 + ppm as f64 / 1e6);
            let mut sent = 0;
            let mut moments: Vec<[u64; 3]> = calls.iter().map(|(pause, there, back)| {
                sent += pause;
                [sent, sent + there, sent + there + back]
            }).collect();
            moments.sort_by_key(|moments| moments[2]);
            // Answers may be read in another order than that of their arrival.
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
                // Both clocks have a resolution of 1 µs.
                prop_assert!(behind > -2.0, "{behind} µs");
                quickest = f64::min(quickest, server(arrived) - stamped as f64);
                // The bound falls behind by the maximum drift and by rounding.
                prop_assert!(behind <= quickest + 2e-3 * arrived as f64 + 200.0, "{behind} µs, {quickest}");
            }
        }
    }
}
