//! When a topic is scanned for.

use std::time::Duration;

use tokio::time::Instant;

use crate::connection::RetryDelays;
use crate::runtime::{EventMode, Known};
use crate::stats::AttachCounters;

/// So many scans in a row are left out at most, where all that is written is heard.
const LEFT_OUT: u32 = 15;

/// The turn of one topic.
#[derive(Debug)]
pub(super) struct Turn {
    every: Duration,
    /// When a scan may begin; none: while others scan for the topic.
    next: Option<Instant>,
    /// Gaps that were over when the last scan began.
    gaps: u64,
    /// Scans that were left out since the last one, and how many may be.
    left_out: u32,
    may_be: u32,
    /// What the last scan has ended with.
    signs: Signs,
    retries: RetryDelays,
}

/// What tells whether a scan has found anything, or would.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Signs {
    enrolled: u64,
    /// Keys that were heard or found, and could not be enrolled.
    failed: u64,
}

impl Signs {
    pub(super) fn of(counters: &AttachCounters) -> Self {
        Self {
            enrolled: counters.enrolled.get(),
            failed: counters.no_room.get() + counters.write_errors.get(),
        }
    }
}

impl Turn {
    pub(super) fn new(every: Duration) -> Self {
        Self {
            every,
            next: None,
            gaps: 0,
            left_out: 0,
            may_be: 0,
            signs: Signs::default(),
            retries: RetryDelays::default(),
        }
    }

    /// Whether it is this listener that scans for it.
    pub(super) fn is_ours(&mut self, ours: bool) {
        match (ours, self.next) {
            (true, Some(_)) => {}
            (true, None) => (self.next, self.may_be) = (Some(Instant::now()), 0),
            (false, _) => self.next = None,
        }
    }

    /// When to ask again whether it is due; none: when something changes.
    pub(super) fn next(&self) -> Option<Instant> {
        self.next
    }

    /// Whether it is due: always after a gap. A scan is left out where the last ones have found nothing new, all that
    /// is written was heard since, and all that was heard could be enrolled.
    pub(super) fn is_due(&mut self, known: Known, signs: Signs) -> bool {
        let Some(next) = self.next else { return false };
        if known.gaps != self.gaps {
            return true;
        }
        if Instant::now() < next {
            return false;
        }
        let calm = known.mode == EventMode::Changes && signs.failed == self.signs.failed;
        let leaves_out = calm && self.left_out < self.may_be;
        if leaves_out {
            self.left_out += 1;
            self.next = Some(Instant::now() + self.every);
        }
        !leaves_out
    }

    /// Whether it is served by a scan that begins for another: when half of its own pause is over.
    pub(super) fn joins(&self) -> bool {
        let near = |next| Instant::now() + self.every / 2 >= next;
        self.next.is_some_and(near) && self.left_out >= self.may_be
    }

    /// A scan begins.
    pub(super) fn begins(&mut self, known: Known, signs: Signs) {
        (self.gaps, self.signs, self.left_out) = (known.gaps, signs, 0);
    }

    /// It was served, to the end.
    pub(super) fn ends(&mut self, known: Known, signs: Signs) {
        let fruitless = known.mode == EventMode::Changes && signs == self.signs;
        self.may_be = if fruitless { (2 * self.may_be + 1).min(LEFT_OUT) } else { 0 };
        self.signs = signs;
        self.retries = RetryDelays::default();
        self.wait(self.every);
    }

    /// The scan could not go on.
    pub(super) fn breaks_off(&mut self) {
        let wait = self.retries.next();
        self.wait(wait);
        self.may_be = 0;
    }

    /// Its keys could not be written down for too long.
    pub(super) fn is_stuck(&mut self) {
        self.wait(self.every);
        self.may_be = 0;
    }

    fn wait(&mut self, pause: Duration) {
        self.next = self.next.and(Some(Instant::now() + pause));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERY: Duration = Duration::from_secs(10);

    fn known(mode: EventMode) -> Known {
        Known { anchored: true, mode, gaps: 1, can_enrol: true }
    }

    fn turn() -> Turn {
        let mut turn = Turn::new(EVERY);
        turn.is_ours(true);
        turn
    }

    /// A scan that ends with these signs, and the time until the next is due.
    async fn scan(turn: &mut Turn, mode: EventMode, ends_with: Signs) -> Duration {
        turn.begins(known(mode), Signs::default());
        turn.ends(known(mode), ends_with);
        let began = Instant::now();
        while !turn.is_due(known(mode), ends_with) {
            tokio::time::sleep_until(turn.next().expect("it is ours")).await;
        }
        began.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn where_all_is_heard_the_pause_doubles_while_nothing_new_is_found_up_to_sixteen_times() {
        let (mut turn, nothing) = (turn(), Signs::default());
        for times in [2, 4, 8, 16, 16] {
            assert_eq!(scan(&mut turn, EventMode::Changes, nothing).await, EVERY * times);
        }
        let found = Signs { enrolled: 1, failed: 0 };
        assert_eq!(scan(&mut turn, EventMode::Changes, found).await, EVERY);
        assert_eq!(scan(&mut turn, EventMode::Changes, nothing).await, EVERY * 2);
    }

    #[tokio::test(start_paused = true)]
    async fn where_scans_are_needed_none_is_left_out() {
        for mode in [EventMode::Blind, EventMode::Expired, EventMode::SomeChanges] {
            let mut turn = turn();
            for _ in 0..3 {
                assert_eq!(scan(&mut turn, mode, Signs::default()).await, EVERY, "{mode}");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_long_pause_ends_with_a_gap_with_what_could_not_be_enrolled_and_with_the_flags() {
        let calm = known(EventMode::Changes);
        for (known, signs, ends) in [
            (calm, Signs::default(), false),
            (calm, Signs { enrolled: 5, failed: 0 }, false),
            (Known { gaps: 2, ..calm }, Signs::default(), true),
            (calm, Signs { enrolled: 0, failed: 1 }, true),
            (known(EventMode::Expired), Signs::default(), true),
        ] {
            let mut turn = turn();
            for _ in 0..4 {
                scan(&mut turn, EventMode::Changes, Signs::default()).await;
            }
            turn.begins(calm, Signs::default());
            turn.ends(calm, Signs::default());
            tokio::time::sleep(EVERY).await;
            assert_eq!(turn.is_due(known, signs), ends, "{known:?} {signs:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn no_scan_is_left_out_after_one_that_was_not_finished_or_was_anothers() {
        for (ends, pause) in [
            ((|turn: &mut Turn| turn.breaks_off()) as fn(&mut Turn), Duration::from_millis(20)),
            (Turn::is_stuck, EVERY),
            (|turn| turn.is_ours(false), Duration::ZERO),
        ] {
            let (mut turn, calm) = (turn(), known(EventMode::Changes));
            scan(&mut turn, EventMode::Changes, Signs::default()).await;
            turn.begins(calm, Signs::default());
            ends(&mut turn);
            turn.is_ours(true);
            tokio::time::sleep(pause).await;
            assert!(turn.is_due(calm, Signs::default()));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_scan_for_another_serves_a_topic_when_half_of_its_pause_is_over() {
        let (mut turn, found) = (turn(), Signs { enrolled: 1, failed: 0 });
        turn.begins(known(EventMode::Expired), Signs::default());
        turn.ends(known(EventMode::Expired), found);
        tokio::time::sleep(EVERY / 2 - Duration::from_millis(1)).await;
        assert!(!turn.joins());
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert!(turn.joins());
        turn.is_ours(false);
        assert!(!turn.joins() && !turn.is_due(known(EventMode::Expired), found));
    }
}
