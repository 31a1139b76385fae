//! Statistics of a listener, counted since it was built.

pub(crate) mod meter;

use self::meter::ExportedCounter;
pub(crate) use self::meter::Meter;
#[doc(inline)]
pub use crate::figures::Distribution;
pub use crate::listener::Stats;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::lapse::LapseSource;
use crate::wire::{Ending, RecentAttempts};

/// A counter.
#[derive(Debug, Default)]
pub(crate) struct Counter {
    count: AtomicU64,
    /// The exported metric with the same count, if any.
    pub(crate) mirror: ExportedCounter,
}

impl Counter {
    pub(crate) fn add(&self, count: usize) {
        self.add_u64(count as u64);
    }

    pub(crate) fn add_u64(&self, count: u64) {
        self.count.fetch_add(count, Ordering::Relaxed);
        self.mirror.add(count);
    }

    pub(crate) fn get(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }
}

macro_rules! counters {
    (
        $(#[$counters_doc:meta])* $counters:ident,
        $(#[$snapshot_doc:meta])* $snapshot:ident
        { $($(#[$doc:meta])* $name:ident,)* }
    ) => {
        $(#[$counters_doc])*
        #[derive(Debug, Default)]
        pub(crate) struct $counters {
            $(pub(crate) $name: Counter,)*
        }

        $(#[$snapshot_doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct $snapshot {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl $counters {
            pub(crate) fn snapshot(&self) -> $snapshot {
                $snapshot { $($name: self.$name.get(),)* }
            }

            #[allow(dead_code)] // used only for the counters of topics
            fn named(&self, name: &str) -> Option<&Counter> {
                match name {
                    $(stringify!($name) => Some(&self.$name),)*
                    _ => None,
                }
            }
        }

        impl $snapshot {
            /// Iterates over the names and values of all counts.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
                [$((stringify!($name), self.$name)),*].into_iter()
            }
        }

        impl std::ops::AddAssign for $snapshot {
            fn add_assign(&mut self, other: Self) {
                $(self.$name += other.$name;)*
            }
        }
    };
}

counters! {
    /// The counters of one topic.
    TopicCounters,
    /// Statistics of one topic.
    TopicStats {
        /// Claims that were sent.
        claims,
        /// Claims that found no due timer.
        empty_claims,
        /// Timers that were claimed.
        claimed,
        /// Attempts whose timer was found by its deadline.
        by_timer,
        /// Attempts whose timer was found by an expiry notification.
        by_notification,
        /// Attempts whose timer was found by a sweep.
        by_sweep,
        /// Attempts that ran again after a lost lease.
        redelivered,
        /// Attempts that succeeded.
        handled,
        /// Attempts that ended with [`Outcome::Drop`](crate::Outcome::Drop).
        dropped,
        /// Attempts that failed, including panics and timeouts.
        failed,
        /// Attempts that panicked.
        panics,
        /// Attempts that exceeded the topic's timeout.
        timeouts,
        /// Retries that were armed.
        retried,
        /// Timers that were snoozed.
        snoozed,
        /// Recurrences that were armed by [`Outcome::Again`](crate::Outcome::Again).
        again,
        /// Timers that became dead letters.
        dead,
        /// Timers that were released at shutdown.
        released,
        /// Retries that were replaced by a newer arming.
        superseded,
        /// Leases that were lost while this listener held them.
        lost_leases,
        /// Attempts that no longer held their lease when they ended.
        fenced,
        /// Settlements that came after the lease had ended.
        gone,
        /// Settlements that Redis did not accept in time. These timers run again.
        unsettled,
        /// Expiry notifications that were received.
        announced,
        /// Index entries without a record, which were removed.
        orphans,
        /// Records of a newer version that were put off.
        parked,
        /// Dead letters that were removed to make room.
        trimmed,
        /// Marker keys whose name already had the value of another program.
        taken_markers,
        /// Index entries that were missing or wrong, and were repaired.
        repaired,
        /// Settlements that failed at first. Consecutive failures with the same error count once.
        settle_errors,
        /// Claims that failed. Consecutive failures with the same error count once.
        claim_errors,
    }
}

impl TopicCounters {
    pub(crate) fn started(&self, source: LapseSource, redelivered: bool) {
        let counter = match source {
            LapseSource::Timer => &self.by_timer,
            LapseSource::Notification => &self.by_notification,
            LapseSource::Sweep => &self.by_sweep,
        };
        counter.add(1);
        self.redelivered.add(usize::from(redelivered));
    }

    /// Counts the end of an attempt.
    pub(crate) fn ended(&self, ending: Ending) {
        ending.row().attempt.unwrap_or_default().iter().for_each(|name| self.count(name));
    }

    /// Counts a settled attempt.
    pub(crate) fn settled(&self, ending: Ending) {
        ending.row().settled.into_iter().for_each(|name| self.count(name));
    }

    fn count(&self, name: &str) {
        match self.named(name) {
            Some(counter) => counter.add(1),
            None => debug_assert!(false, "an outcome names {name}, which is not a counter"),
        }
    }
}

counters! {
    /// The counters of an attached topic.
    AttachCounters,
    /// Statistics of the keys of an attached topic, in addition to [`TopicStats`].
    AttachedStats {
        /// Expiries that this listener recorded first, which became lapses.
        recorded,
        /// Expiries that another listener had already recorded.
        known,
        /// Expiries that had already run as recovered.
        recovered_before,
        /// Expiries of untracked keys, which the topic's policy ignores.
        ignored,
        /// Expiries that arrived too late to detect repeats. They are treated as in a gap.
        stale,
        /// Expiries that were received in a gap, which may run twice.
        ambiguous,
        /// Expiries that were received before the first heartbeat key, and ignored.
        before_heartbeat,
        /// Expiries that were dropped because a queue of 64 MiB was full. A tracked key runs later as recovered. The expiry
        /// of an untracked key is lost.
        lost_untracked,
        /// Expiries of keys that were written back for a retry.
        returned,
        /// Keys that were tracked.
        tracked,
        /// Keys that were not tracked because [`Attached::cap`](crate::Attached::cap) was reached.
        over_limit,
        /// Calls that failed to track keys or to write results of checks.
        write_errors,
        /// Checks that found a later deadline.
        extended,
        /// Checks that found a key without a deadline.
        persisted,
        /// Checks that found a deleted key, whose deletion was announced.
        deleted,
        /// Checks that found a missing key, which had not expired.
        vanished,
        /// Checks that found a missing key after a gap. Its timer ran as recovered.
        recovered,
        /// Checks that found a missing key after a gap, which the topic's policy ignores.
        not_recovered,
        /// Keys that were written back for a retry.
        restored,
        /// Keys that the server refused to read because the user lacks a permission.
        refused_reads,
        /// Steps of scans that the server refused.
        refused_scans,
        /// Refused subscriptions to changes of the topic's keys. They are tried once for each connection, and every 10 s.
        refused_subscriptions,
        /// Scans that were completed.
        scans,
        /// Steps of scans, each of at most 500 keys.
        scan_steps,
        /// Key names of more than 4 KiB, which are not tracked. Each scan counts them.
        too_long,
    }
}

counters! {
    /// The counters of a listener as a whole.
    ListenerCounters,
    /// Statistics of a listener's subscription and its sweeps.
    ListenerStats {
        /// Expired keys that match no topic, which were ignored.
        unrouted,
        /// Gaps: periods in which the subscription may have missed events.
        gaps,
        /// Times that a heartbeat key proved after a gap that events arrive.
        anchored,
        /// Messages that were dropped because the queue of the connection was full.
        dropped_events,
        /// Events of heartbeat keys with an impossible number: forged, or the server's clock or data were set back.
        refused_heartbeats,
        /// Changes of attached keys that were dropped because a queue was full. A scan follows.
        prompts_dropped,
        /// Sweeps that were made.
        sweeps,
        /// Sweeps that failed.
        sweep_errors,
    }
}

/// The results of a topic's attempts since the listener was started.
pub(crate) type Totals = RecentAttempts;

/// A sliding window over totals. It may be up to a tenth longer than `span`.
#[derive(Debug)]
pub(crate) struct RecentWindow {
    span: Duration,
    marks: VecDeque<(Instant, Totals)>,
}

impl RecentWindow {
    /// Starts an empty window now.
    pub(crate) fn new(span: Duration) -> Self {
        Self { span, marks: [(Instant::now(), Totals::default())].into() }
    }

    /// Returns the difference between `totals` and the totals at the start of the window.
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
    use crate::figures::DurationHistogram;

    const SPAN: Duration = Duration::from_secs(300);

    #[tokio::test(start_paused = true)]
    async fn results_older_than_the_span_do_not_count() {
        let (mut recent, times) = (RecentWindow::new(SPAN), DurationHistogram::default());
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

    #[test]
    fn outcomes_count_in_counters_of_topics() {
        let counters = TopicCounters::default();
        for row in Ending::ALL.iter().map(|ending| ending.row()) {
            for name in row.attempt.unwrap_or_default().iter().copied().chain(row.settled) {
                assert!(counters.named(name).is_some(), "{}: {name} is not a counter", row.word);
            }
        }
    }
}
