//! What a listener has counted since it was built.

pub(crate) mod meter;

pub(crate) use self::meter::Meter;
use self::meter::Mirror;
#[doc(inline)]
pub use crate::figures::Distribution;
pub use crate::listener::Stats;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::lapse::LapseSource;
use crate::wire::{Ending, RecentAttempts};

/// A count that only grows.
#[derive(Debug, Default)]
pub(crate) struct Counter {
    count: AtomicU64,
    /// Where it is counted for others, too.
    pub(crate) mirror: Mirror,
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

            #[allow(dead_code)] // of those that outcomes have
            fn named(&self, name: &str) -> Option<&Counter> {
                match name {
                    $(stringify!($name) => Some(&self.$name),)*
                    _ => None,
                }
            }
        }

        impl $snapshot {
            /// Each count, by its name.
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
    /// What a listener has counted of one topic.
    TopicStats {
        /// Claims sent.
        claims,
        /// Claims that came away empty.
        empty_claims,
        /// Timers taken.
        claimed,
        /// Attempts begun because the deadline was known.
        by_timer,
        /// Attempts begun because an expired key was announced.
        by_notification,
        /// Attempts begun because a sweep found them.
        by_sweep,
        /// Attempts begun again after a lost lease.
        redelivered,
        /// Attempts that ended well.
        handled,
        /// Attempts that ended with `Drop`.
        dropped,
        /// Failed attempts, whatever followed.
        failed,
        /// Panics among them.
        panics,
        /// Timeouts among them.
        timeouts,
        /// Retries armed.
        retried,
        /// Snoozes.
        snoozed,
        /// Recurrences armed by `Again`.
        again,
        /// Timers that ended as dead letters.
        dead,
        /// Timers handed back at shut-down.
        released,
        /// Retries that gave way to a newer arming.
        superseded,
        /// Leases that could not be kept.
        lost_leases,
        /// Attempts that were not ours any more when they ended.
        fenced,
        /// Settlements that came too late.
        gone,
        /// Settlements that could not be delivered.
        unsettled,
        /// Expired keys heard.
        heard,
        /// Index entries without a record.
        orphans,
        /// Records of a newer version put off.
        parked,
        /// Dead letters trimmed.
        trimmed,
        /// Trigger names found holding somebody else's value.
        taken_triggers,
        /// Index entries that disagreed with their records, or were missing, and
        /// were put right.
        repaired,
        /// Settlements that failed at first, counted once for each reason in a row.
        settle_errors,
        /// Claims that failed, counted once for each reason in a row.
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

    /// An attempt has ended so.
    pub(crate) fn ended(&self, ending: Ending) {
        ending.row().attempt.unwrap_or_default().iter().for_each(|name| self.count(name));
    }

    /// Redis was told so.
    pub(crate) fn settled(&self, ending: Ending) {
        ending.row().settled.into_iter().for_each(|name| self.count(name));
    }

    fn count(&self, name: &str) {
        match self.named(name) {
            Some(counter) => counter.add(1),
            None => debug_assert!(false, "an outcome names {name}, which is no counter"),
        }
    }
}

counters! {
    /// The counters of what an attached topic hears and finds.
    AttachCounters,
    /// What a listener has counted of an attached topic's keys, beside what is counted of each topic.
    AttachedStats {
        /// Expiries that were noted first by this listener, and became lapses.
        noted,
        /// Expiries that another listener had noted before.
        known,
        /// Expiries that had been fired before, as recoveries.
        recovered_before,
        /// Expiries of keys whose deadline had not been read, which the topic ignores.
        ignored,
        /// Expiries that were heard too late to be told from those of others: a gap.
        stale,
        /// Expiries heard in a gap, which may have run twice.
        ambiguous,
        /// Expiries heard before the first canary, as if it had not listened yet.
        deaf,
        /// Expiries that were announced and found no room in a queue of 64 MiB: more came than could be written down. Where
        /// the key was enrolled it fires all the same, as recovered; else it is lost.
        lost_unenrolled,
        /// Expiries of keys that were written back for a retry.
        returned,
        /// Keys enrolled.
        enrolled,
        /// Keys that found no room: see [`Attached::cap`](crate::Attached::cap).
        no_room,
        /// Calls to enrol keys or to write verdicts down that failed.
        write_errors,
        /// Checks that found a later deadline.
        extended,
        /// Checks that found a key without a deadline.
        persisted,
        /// Checks that found a key gone that was heard to be deleted.
        deleted,
        /// Checks that found a key gone though it had not expired.
        vanished,
        /// Checks that found a key gone after a gap: fired as recovered.
        recovered,
        /// Checks that found a key gone after a gap, which the topic ignores.
        not_recovered,
        /// Keys written back for a retry.
        restored,
        /// Keys that the server refused to have read: a right is missing.
        refused_reads,
        /// Steps of scans that it refused.
        refused_scans,
        /// Times that it refused to tell of changes of the topic's keys: once a connection, and every ten seconds.
        refused_subscriptions,
        /// Scans finished.
        scans,
        /// Steps of scans, each of at most 500 keys.
        scan_steps,
        /// Keys of more than 4 KiB that scans have found: they are not enrolled. Counted by each scan.
        too_long,
    }
}

counters! {
    /// The counters of a listener as a whole.
    ListenerCounters,
    /// What a listener has counted of its subscription and its sweeps.
    ListenerStats {
        /// Expired keys that match no topic, and were left alone.
        unrouted,
        /// Times the subscription may have missed something.
        gaps,
        /// Times a canary proved that expired events flow, after it was not known.
        anchored,
        /// Messages that found no room between the connection and the listener.
        dropped_events,
        /// Canaries heard that could not be the server's next: forged, or its clock or data were set back.
        refused_canaries,
        /// Changes of attached keys that found no room: a scan follows.
        prompts_dropped,
        /// Sweeps made.
        sweeps,
        /// Sweeps that failed.
        sweep_errors,
    }
}

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
    use crate::figures::Times;

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

    #[test]
    fn what_outcomes_count_are_counters_of_topics() {
        let counters = TopicCounters::default();
        for row in Ending::ALL.iter().map(|ending| ending.row()) {
            for name in row.attempt.unwrap_or_default().iter().copied().chain(row.settled) {
                assert!(counters.named(name).is_some(), "{}: {name} is no counter", row.word);
            }
        }
    }
}
