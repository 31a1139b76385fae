//! How many attempts end in a second, out of numbers that listeners report every five seconds.

use std::collections::{HashMap, VecDeque};

/// Numbers of the last half minute are compared: fewer would jump with each report.
const WINDOW_MS: u64 = 30_000;
/// Listeners report so often. A number that has changed can be of all of that time.
const REPORT_MS: u64 = 5000;
/// After this long without a change nothing runs.
const STILL_MS: u64 = 2 * REPORT_MS + 1000;

/// The numbers of all topics that were looked at: tell it of a [`TopicStatus`](super::TopicStatus) now and then, and it
/// knows how many attempts end in a second.
#[derive(Debug, Default)]
pub struct Rates {
    topics: HashMap<String, Numbers>,
}

/// How often what was counted, each time that it had changed.
#[derive(Debug, Default)]
struct Numbers {
    changes: VecDeque<(u64, u64)>,
    first_ms: u64,
}

impl Rates {
    /// Takes down how many attempts have ended at this time of the server, and says how many do in a second: nothing
    /// before two reports have been seen.
    pub fn of(&mut self, topic: &str, now_ms: u64, ended: u64) -> Option<f64> {
        let numbers = self.topics.entry(topic.to_owned()).or_default();
        numbers.add(now_ms, ended);
        numbers.rate(now_ms)
    }

    /// Forgets all topics but these.
    pub fn keep(&mut self, is_kept: impl Fn(&str) -> bool) {
        self.topics.retain(|topic, _| is_kept(topic));
    }
}

impl Numbers {
    fn add(&mut self, now_ms: u64, ended: u64) {
        match self.changes.back() {
            Some((at, last)) if *last == ended => {
                let still = if self.changes.len() == 1 { REPORT_MS } else { STILL_MS };
                if now_ms.saturating_sub(*at) > still {
                    // What comes after a pause is not spread over the pause.
                    self.changes = [(now_ms - REPORT_MS, ended)].into();
                }
            }
            // Fewer than before: a listener has gone, and its numbers with it.
            Some((_, last)) if *last > ended => *self = Self::begun(now_ms, ended),
            None => *self = Self::begun(now_ms, ended),
            Some(_) => self.changes.push_back((now_ms, ended)),
        }
        while self.changes.len() > 2 && self.changes[0].0.saturating_add(WINDOW_MS) < now_ms {
            self.changes.pop_front();
        }
    }

    fn begun(now_ms: u64, ended: u64) -> Self {
        Self { changes: [(now_ms, ended)].into(), first_ms: now_ms }
    }

    #[allow(clippy::cast_precision_loss)]
    fn rate(&self, now_ms: u64) -> Option<f64> {
        let ((from, before), (to, after)) = (*self.changes.front()?, *self.changes.back()?);
        if self.changes.len() < 2 {
            return (now_ms.saturating_sub(self.first_ms) > STILL_MS).then_some(0.0);
        }
        let ms = to.saturating_sub(from).max(REPORT_MS);
        Some((after - before) as f64 * 1000.0 / ms as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks every two seconds, at numbers that change every five.
    fn looked(rates: &mut Rates, ms: std::ops::Range<u64>, ended: impl Fn(u64) -> u64) -> Option<f64> {
        ms.step_by(2000).map(|at| rates.of("a", at, ended(at / 5000 * 5))).last().flatten()
    }

    #[test]
    fn a_steady_rate_is_found_out_within_two_reports() {
        let mut rates = Rates::default();
        assert_eq!(rates.of("a", 0, 70), None, "one report says nothing");
        let rate = looked(&mut rates, 0..60_000, |second| 70 + second * 100).unwrap();
        assert!((90.0..110.0).contains(&rate), "{rate}");
    }

    #[test]
    fn nothing_is_a_rate_of_zero_and_a_pause_dilutes_nothing() {
        let mut rates = Rates::default();
        assert_eq!(looked(&mut rates, 0..14_000, |_| 70), Some(0.0));
        looked(&mut rates, 14_000..600_000, |_| 70);
        let rate = rates.of("a", 600_000, 570).unwrap();
        assert!(
            (60.0..=100.0).contains(&rate),
            "{rate}: 500 in the five seconds of one report, seen a look later"
        );
        assert_eq!(looked(&mut rates, 602_000..620_000, |_| 570), Some(0.0));
    }

    #[test]
    fn a_listener_that_goes_takes_its_numbers_along() {
        let mut rates = Rates::default();
        looked(&mut rates, 0..60_000, |second| second * 100);
        assert_eq!(rates.of("a", 60_000, 10), None);
    }
}
