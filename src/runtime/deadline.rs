//! The timer of tasks that wake for deadlines: claimers, and watchers, which check attached keys.
//!
//! It wakes at the earliest known deadline, or when another task requests it through a [`Wakeup`]. *Claim* below also
//! means the check of a watcher.

use std::sync::Mutex;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::connection::RetryDelays;
use crate::lapse::LapseSource;
use crate::lock::lock;
use crate::runtime::clock::ServerClock;
use crate::runtime::leadership::{Leadership, UNCLAIMED_AFTER};
use crate::time::{ClockReading, ServerTime};

/// The minimum pause after a claim that found nothing.
const EMPTY_PAUSE: Duration = Duration::from_millis(5);

/// A timer for the deadlines of one index, which decides when its task claims.
#[derive(Debug)]
pub(crate) struct DeadlineTimer {
    lookahead: Duration,
    leadership: Leadership,
    /// The earliest known deadline in the index.
    head: Option<EarliestDeadline>,
    /// The deadline for which the current claim is made.
    woke_for: Option<EarliestDeadline>,
    /// The next claim for another reason than `head`, and its reason.
    planned: Option<(Instant, LapseSource)>,
    /// Deadlines cause no claim before this time. Requests do.
    paused_until: Instant,
    /// True after the result of the first claim.
    has_result: bool,
    delays: RetryDelays,
}

/// The earliest known deadline.
#[derive(Clone, Copy, Debug)]
struct EarliestDeadline {
    /// The deadline, by the server's clock.
    ms: u64,
    /// The deadline by this machine's clock, or the end of a pause if that is later.
    at: Instant,
    /// The server's time in ms when this deadline was last known to exist.
    last_seen: u64,
    /// True if a claim ahead of the deadline found nothing, so the next claim is made exactly at it.
    exactly: bool,
}

/// The result of a claim or check for which a [`DeadlineTimer`] woke.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WakeResult {
    /// The server's estimated time at the answer's arrival.
    pub(crate) reading: ClockReading,
    /// The server's time of the claim.
    pub(crate) stamp: ServerTime,
    /// The earliest deadline in the index after the claim, in ms.
    pub(crate) head: Option<u64>,
    /// True if nothing was claimed.
    pub(crate) empty: bool,
    /// If nothing was claimed: when another listener last claimed something, in ms.
    pub(crate) rival: Option<u64>,
    /// True if another listener is the standby.
    pub(crate) standby: bool,
}

impl DeadlineTimer {
    /// Creates a timer that wakes up to `lookahead` before deadlines, and first when another task wakes it.
    pub(crate) fn new(lookahead: Duration) -> Self {
        Self {
            lookahead,
            leadership: Leadership::default(),
            head: None,
            woke_for: None,
            planned: None,
            paused_until: Instant::now(),
            has_result: false,
            delays: RetryDelays::default(),
        }
    }

    /// Creates a timer that wakes immediately, for timers that are already overdue.
    pub(crate) fn due_now(lookahead: Duration) -> Self {
        Self { planned: Some((Instant::now(), LapseSource::Sweep)), ..Self::new(lookahead) }
    }

    /// Waits until the next claim is due, and returns its reason. Cancel safe.
    pub(crate) async fn due(&mut self, wakeup: &Wakeup, clock: &ServerClock) -> LapseSource {
        loop {
            self.plan_pending(wakeup, clock);
            let timer = self.head.map(|head| {
                (self.leadership.wake_at(head.at, self.lookahead, head.exactly), LapseSource::Timer)
            });
            let next = [timer, self.planned].into_iter().flatten().min_by_key(|(at, _)| *at);
            match next {
                Some((at, source)) if at <= Instant::now() => return source,
                Some((at, _)) => tokio::select! {
                    () = tokio::time::sleep_until(at) => {}
                    () = wakeup.wait() => {}
                },
                None => wakeup.wait().await,
            }
        }
    }

    /// Plans a claim at this time or earlier.
    fn plan(&mut self, at: Instant, source: LapseSource) {
        if self.planned.is_none_or(|(planned, _)| at < planned) {
            self.planned = Some((at, source));
        }
    }

    /// Plans claims for the wake-ups since the last call.
    fn plan_pending(&mut self, wakeup: &Wakeup, clock: &ServerClock) {
        let pending = wakeup.take_pending();
        // All listeners receive a notification, so a follower ignores it and wakes by deadlines.
        let is_for_others = |source| source == LapseSource::Notification && self.leadership.follows();
        if let Some((at, source)) = pending.requested.filter(|(_, source)| !is_for_others(*source)) {
            self.plan(at, source);
        }
        if let (Some(ms), Some(reading), true) = (pending.unclaimed, clock.bound(), self.leadership.follows())
        {
            self.plan((reading.when(ms) + UNCLAIMED_AFTER).max(self.paused_until), LapseSource::Timer);
        }
        let Some(ms) = pending.head.filter(|ms| self.head.is_none_or(|head| *ms <= head.ms)) else { return };
        match (clock.bound(), &mut self.head) {
            (Some(reading), Some(head)) if head.ms == ms => {
                // The deadline is known already, but the server's clock may have been set forward.
                head.at = head.at.min(reading.when(ms).max(self.paused_until));
            }
            (Some(reading), _) => {
                let (at, last_seen) = (reading.when(ms), reading.at(Instant::now()).ms());
                self.head = Some(EarliestDeadline {
                    ms,
                    at: at.max(self.paused_until),
                    last_seen,
                    exactly: at < self.paused_until,
                });
            }
            // Without a reading of the server's clock, only a claim shows whether the timer is due.
            (None, _) => self.planned = Some((Instant::now(), LapseSource::Timer)),
        }
    }

    /// Returns when the earliest known timer counts as unclaimed. If none is known, one may be due now.
    pub(crate) fn unclaimed_at(&self) -> Instant {
        self.head.map_or_else(Instant::now, |head| head.at) + UNCLAIMED_AFTER
    }

    /// Returns how far ahead of now to claim, in ms. It is negative for a follower, which claims only overdue timers.
    pub(crate) fn reach(&self) -> i64 {
        self.leadership.reach(self.lookahead)
    }

    /// Records that a claim starts now. Later wake-ups cause the next claim.
    pub(crate) fn begin(&mut self) {
        self.woke_for = self.head.take();
        self.planned = None;
    }

    /// Plans the repetition of a failed claim, after a growing delay.
    pub(crate) fn plan_retry(&mut self, source: LapseSource) {
        self.paused_until = Instant::now() + self.delays.next();
        self.planned = Some((self.paused_until, source));
    }

    /// Plans the next claim from the result of this one. Returns whether another listener has taken the timer for which
    /// this claim was made.
    pub(crate) fn plan_next(&mut self, seen: WakeResult, source: LapseSource) -> bool {
        self.delays = RetryDelays::default();
        let first = !std::mem::replace(&mut self.has_result, true);
        self.head = seen.head.map(|ms| EarliestDeadline {
            ms,
            at: seen.reading.when(ms),
            last_seen: seen.stamp.ms(),
            exactly: seen.empty,
        });
        if !seen.empty {
            self.leadership.won();
            return false;
        }
        // Another listener took the timer if the timer is gone, and that listener has claimed since the timer was last
        // known to exist. If that listener last claimed before, the timer was cancelled or moved, and the listener may
        // be dead.
        let taken = |woke: EarliestDeadline| {
            seen.head.is_none_or(|ms| ms > woke.ms) && seen.rival.is_some_and(|at| at >= woke.last_seen)
        };
        let lost = source == LapseSource::Timer && self.woke_for.is_some_and(taken);
        if lost {
            self.leadership.lost();
        }
        match seen.rival {
            Some(_) => self.leadership.found_nothing(seen.standby),
            // No other listener has claimed since the previous leader left.
            None => self.leadership.won(),
        }
        // The pause limits the rate of claims if a timer stays due but cannot be claimed, or if wake-ups are forged.
        // After the first claim it would delay a timer that is armed immediately afterwards.
        if !first {
            self.paused_until = Instant::now() + EMPTY_PAUSE;
        }
        let now = seen.reading.stamp.ms();
        if let Some(head) = self.head.as_mut().filter(|head| head.ms <= now) {
            head.at = head.at.max(self.paused_until);
        }
        lost
    }
}

/// Wakes the task of a [`DeadlineTimer`]. It is cleared *before* a claim is sent, so that a wake-up during the claim is
/// not lost.
#[derive(Debug, Default)]
pub(crate) struct Wakeup {
    pending: Mutex<PendingWakeup>,
    woken: Notify,
}

/// The wake-ups since the last claim.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PendingWakeup {
    /// The earliest announced deadline, in ms. The timer may be gone since.
    pub(crate) head: Option<u64>,
    /// The deadline, in ms, from which on the leader leaves timers to followers: it is at capacity, or it stops.
    pub(crate) unclaimed: Option<u64>,
    /// A requested claim: its time and its reason.
    pub(crate) requested: Option<(Instant, LapseSource)>,
}

impl Wakeup {
    /// Announces a deadline, in ms.
    pub(crate) fn announce_deadline(&self, ms: u64) {
        let mut pending = lock(&self.pending);
        pending.head = Some(pending.head.map_or(ms, |head| head.min(ms)));
        self.woken.notify_one();
    }

    /// Announces that the leader leaves timers with deadlines from `ms` on to followers.
    pub(crate) fn announce_unclaimed(&self, ms: u64) {
        let mut pending = lock(&self.pending);
        pending.unclaimed = Some(pending.unclaimed.map_or(ms, |left| left.min(ms)));
        self.woken.notify_one();
    }

    /// Requests a claim at this time or earlier. A request by a sweep replaces one by a notification, because followers
    /// ignore notifications.
    pub(crate) fn request(&self, at: Instant, source: LapseSource) {
        let mut pending = lock(&self.pending);
        let outdoes = |reason| reason == LapseSource::Notification && source == LapseSource::Sweep;
        if pending.requested.is_none_or(|(planned, reason)| at < planned || outdoes(reason)) {
            pending.requested = Some((at, source));
            self.woken.notify_one();
        }
    }

    /// Returns the pending wake-ups, and clears them.
    pub(crate) fn take_pending(&self) -> PendingWakeup {
        std::mem::take(&mut *lock(&self.pending))
    }

    /// Waits for a wake-up.
    pub(crate) async fn wait(&self) {
        self.woken.notified().await;
    }
}

#[cfg(test)]
mod tests;
