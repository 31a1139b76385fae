//! How large an answer claims ask for.

use std::time::Duration;

use tokio::time::Instant;

use crate::wire::ClaimedTimer;

/// Keys, records and states of one claim, in bytes: reading stops there.
const MOST: usize = 1 << 20;
/// So long after a change, claims may ask for more.
const KEPT: Duration = Duration::from_secs(60);

/// How much one claimer asks for. A server may close the connection rather than answer so much, at any size: so each claim
/// that repeats an unanswered one asks for half of that, down to a single timer.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AnswerSize {
    /// How often it was halved, and when it last changed.
    halved: u32,
    changed: Option<Instant>,
}

impl AnswerSize {
    /// Returns how many bytes the next claim asks for, after so many answers in a row that were lost.
    pub(super) fn after(self, lost: u32) -> usize {
        MOST.checked_shr(self.halved + lost).unwrap_or_default().max(1)
    }

    /// One has come, after so many that were lost. Where all fitted into it, size has lost none, and nobody needs more.
    pub(super) fn learn(&mut self, lost: u32, timers: &[ClaimedTimer]) {
        let bytes = |one: &ClaimedTimer| {
            one.key.len() + one.record.len() + one.state.as_ref().map_or(0, |state| state.len())
        };
        if timers.iter().map(bytes).sum::<usize>() < self.after(lost) {
            return;
        }
        let halved = match lost {
            0 if self.changed.is_none_or(|at| at.elapsed() >= KEPT) => self.halved.saturating_sub(1),
            _ => (self.halved + lost).min(MOST.ilog2()),
        };
        if halved != self.halved {
            *self = Self { halved, changed: Some(Instant::now()) };
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn timers(bytes: usize) -> Vec<ClaimedTimer> {
        vec![ClaimedTimer { key: Bytes::new(), record: vec![0; bytes].into(), state: None }]
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_smaller_answer_brought_is_asked_for_until_a_minute_has_passed() {
        let mut size = AnswerSize::default();
        assert_eq!((size.after(0), size.after(3), size.after(20), size.after(99)), (MOST, MOST >> 3, 1, 1));
        size.learn(3, &timers(MOST >> 3));
        assert_eq!(size.after(0), MOST >> 3);
        size.learn(0, &timers(MOST >> 3));
        assert_eq!(size.after(0), MOST >> 3, "it was halved just now");
        tokio::time::advance(KEPT).await;
        size.learn(0, &timers(100));
        assert_eq!(size.after(0), MOST >> 3, "nobody needs more");
        size.learn(0, &timers(MOST >> 3));
        assert_eq!(size.after(0), MOST >> 2);
        size.learn(1, &timers(MOST >> 3));
        assert_eq!(size.after(0), MOST >> 3, "that was too much");
        for _ in 0..9 {
            tokio::time::advance(KEPT).await;
            size.learn(0, &timers(MOST));
        }
        assert_eq!(size.after(0), MOST);
    }

    /// As when a connection was closed because nobody used it.
    #[tokio::test(start_paused = true)]
    async fn answers_that_are_lost_for_another_reason_make_no_claim_smaller() {
        let mut size = AnswerSize::default();
        size.learn(2, &timers(100));
        assert_eq!(size.after(0), MOST);
        size.learn(40, &timers(1));
        assert_eq!(size.after(0), 1);
    }
}
