//! What was counted in the last five minutes and in the last hour.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use crate::wire::RecentAttempts;

/// What a topic's attempts came to since the listener was started.
pub(crate) type Totals = RecentAttempts;

/// A span of time that ends now, by totals of its beginning. It is longer than it says by up to a tenth.
#[derive(Debug)]
pub(crate) struct Recent {
    span: Duration,
    marks: VecDeque<(Instant, Totals)>,
}

impl Recent {
    /// Begins now, with nothing.
    pub(crate) fn new(span: Duration) -> Self {
        Self { span, marks: [(Instant::now(), Totals::default())].into() }
    }

    /// Returns what these totals have more than those of the span's beginning.
    pub(crate) fn of(&mut self, totals: &Totals) -> RecentAttempts {
        let now = Instant::now();
        if self.marks.back().is_some_and(|(at, _)| now - *at >= self.span / 10) {
            self.marks.push_back((now, totals.clone()));
        }
        while self.marks.get(1).is_some_and(|(at, _)| now - *at >= self.span) {
            self.marks.pop_front();
        }
        let before = self.marks.front().map(|(_, totals)| totals.clone()).unwrap_or_default();
        let mut recent = RecentAttempts::default();
        recent.handled = totals.handled.saturating_sub(before.handled);
        recent.failed = totals.failed.saturating_sub(before.failed);
        recent.lateness = totals.lateness.since(&before.lateness);
        recent
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;
    use crate::distribution::Times;

    const SPAN: Duration = Duration::from_secs(300);

    #[tokio::test(start_paused = true)]
    async fn what_is_older_than_the_span_does_not_count() {
        let (mut recent, times) = (Recent::new(SPAN), Times::default());
        let mut totals = Totals::default();
        for second in 0..1200_u64 {
            totals.handled += 1;
            totals.failed += u64::from(second < 600);
            times.add(Duration::from_millis(if second < 600 { 90 } else { 1 }));
            totals.lateness = times.snapshot();
            advance(Duration::from_secs(1)).await;
            let seen = recent.of(&totals);
            let handled = (second + 1).min(330);
            assert!((second + 1).min(300) <= seen.handled && seen.handled <= handled, "{second}: {seen:?}");
            if second >= 935 {
                assert_eq!((seen.failed, seen.lateness.quantile(1.0)), (0, Some(Duration::from_millis(1))));
            }
        }
        assert!(recent.marks.len() <= 12, "{}", recent.marks.len());
    }
}
