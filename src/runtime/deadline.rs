//! When to look next: at the earliest deadline that is known, or as soon as somebody asks.
//!
//! Shared by whoever wakes for deadlines: claimers, and the watchers of attached keys.
//! The wake-up has what others know of a partition, left for whoever claims from it.

use std::sync::Mutex;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::connection::RetryDelays;
use crate::lapse::LapseSource;
use crate::lock::lock;
use crate::runtime::clock::Clock;
use crate::runtime::leadership::{LEFT_LYING, Leadership};
use crate::time::{Reading, ServerTime};

/// The least time between looks that come away empty.
const EMPTY_PAUSE: Duration = Duration::from_millis(5);

/// A timer for the deadlines of one index.
#[derive(Debug)]
pub(crate) struct DeadlineTimer {
    lookahead: Duration,
    leadership: Leadership,
    head: Option<Head>,
    /// What the present look is for.
    woke_for: Option<Head>,
    planned: Option<(Instant, LapseSource)>,
    /// Not before this does a wake-up prompt another look.
    rested: Instant,
    /// Whether it has looked before.
    looked: bool,
    delays: RetryDelays,
}

/// The earliest that is known to be due.
#[derive(Clone, Copy, Debug)]
struct Head {
    ms: u64,
    at: Instant,
    /// When it was known to be there, in ms.
    known: u64,
    /// An early look has come away empty: look at the very moment.
    exactly: bool,
}

/// What a look has shown.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    pub(crate) reading: Reading,
    /// When the server looked.
    pub(crate) stamp: ServerTime,
    /// What is due next, in ms.
    pub(crate) head: Option<u64>,
    /// Nothing was taken.
    pub(crate) empty: bool,
    /// When another listener last took something, in ms, where nothing was taken.
    pub(crate) rival: Option<u64>,
    /// Whether another listener is the standby.
    pub(crate) standby: bool,
}

impl DeadlineTimer {
    /// One that looks this far ahead of deadlines, and for the first time when it is woken.
    pub(crate) fn new(lookahead: Duration) -> Self {
        Self {
            lookahead,
            leadership: Leadership::default(),
            head: None,
            woke_for: None,
            planned: None,
            rested: Instant::now(),
            looked: false,
            delays: RetryDelays::default(),
        }
    }

    /// One that first looks for what became due before it was here, as a sweep does.
    pub(crate) fn looking_now(lookahead: Duration) -> Self {
        Self { planned: Some((Instant::now(), LapseSource::Sweep)), ..Self::new(lookahead) }
    }

    /// Waits until it is time to look, and says why it is. Nothing is lost if this is dropped.
    pub(crate) async fn due(&mut self, wakeup: &Wakeup, clock: &Clock) -> LapseSource {
        loop {
            self.read_pending(wakeup, clock);
            let timer = self.head.map(|head| {
                (self.leadership.wake(head.at, self.lookahead, head.exactly), LapseSource::Timer)
            });
            let next = [timer, self.planned].into_iter().flatten().min_by_key(|(at, _)| *at);
            match next {
                Some((at, source)) if at <= Instant::now() => return source,
                Some((at, _)) => tokio::select! {
                    () = tokio::time::sleep_until(at) => {}
                    () = wakeup.woken() => {}
                },
                None => wakeup.woken().await,
            }
        }
    }

    /// A look at this moment, or earlier.
    fn plan(&mut self, at: Instant, source: LapseSource) {
        if self.planned.is_none_or(|(planned, _)| at < planned) {
            self.planned = Some((at, source));
        }
    }

    fn read_pending(&mut self, wakeup: &Wakeup, clock: &Clock) {
        let pending = wakeup.take();
        // Of what is announced more than one hears, and who follows looks by deadlines.
        let is_for_others = |source| source == LapseSource::Notification && self.leadership.follows();
        if let Some((at, source)) = pending.look.filter(|(_, source)| !is_for_others(*source)) {
            self.plan(at, source);
        }
        if let (Some(ms), Some(reading), true) = (pending.left, clock.known(), self.leadership.follows()) {
            self.plan((reading.when(ms) + LEFT_LYING).max(self.rested), LapseSource::Timer);
        }
        let Some(ms) = pending.head.filter(|ms| self.head.is_none_or(|head| *ms <= head.ms)) else { return };
        match (clock.known(), &mut self.head) {
            (Some(reading), Some(head)) if head.ms == ms => {
                // Known already, unless the server's clock was set forward meanwhile.
                head.at = head.at.min(reading.when(ms).max(self.rested));
            }
            (Some(reading), _) => {
                let (at, known) = (reading.when(ms), reading.at(Instant::now()).ms());
                self.head = Some(Head { ms, at: at.max(self.rested), known, exactly: at < self.rested });
            }
            // Without a reading of the server's clock only a look can tell.
            (None, _) => self.planned = Some((Instant::now(), LapseSource::Timer)),
        }
    }

    /// When what is known to be due has been left lying.
    pub(crate) fn left_lying(&self) -> Instant {
        self.head.map_or_else(Instant::now, |head| head.at) + LEFT_LYING
    }

    /// How far ahead of now to claim, in ms; negative where only what was left lying is to be taken.
    pub(crate) fn reach(&self) -> i64 {
        self.leadership.reach(self.lookahead)
    }

    /// A look begins: what arrives from now on is for the next.
    pub(crate) fn begin(&mut self) {
        self.woke_for = self.head.take();
        self.planned = None;
    }

    /// The look has failed, and is made again.
    pub(crate) fn failed(&mut self, source: LapseSource) {
        self.rested = Instant::now() + self.delays.next();
        self.planned = Some((self.rested, source));
    }

    /// What an answer says about the next look; whether another listener leads now.
    pub(crate) fn learn(&mut self, seen: Seen, source: LapseSource) -> bool {
        self.delays = RetryDelays::default();
        let first = !std::mem::replace(&mut self.looked, true);
        self.head = seen.head.map(|ms| Head {
            ms,
            at: seen.reading.when(ms),
            known: seen.stamp.ms(),
            exactly: seen.empty,
        });
        if !seen.empty {
            self.leadership.won();
            return false;
        }
        // Gone, and somebody took something since it was known to be there. Whoever took something before that
        // has not taken this, and may be dead: it was cancelled, or moved.
        let taken = |woke: Head| {
            seen.head.is_none_or(|ms| ms > woke.ms) && seen.rival.is_some_and(|at| at >= woke.known)
        };
        let lost = source == LapseSource::Timer && self.woke_for.is_some_and(taken);
        if lost {
            self.leadership.lost();
        }
        match seen.rival {
            Some(_) => self.leadership.found_nothing(seen.standby),
            // Nobody else has taken anything since whoever led has left.
            None => self.leadership.won(),
        }
        // Should something stay due that cannot be taken, or somebody forge wake-ups, there is another look
        // soon, but not in a hurry. The first look was prompted by nobody, and must not put off what is armed
        // right after it.
        if !first {
            self.rested = Instant::now() + EMPTY_PAUSE;
        }
        let now = seen.reading.stamp.ms();
        if let Some(head) = self.head.as_mut().filter(|head| head.ms <= now) {
            head.at = head.at.max(self.rested);
        }
        lost
    }
}

/// What a claimer is woken by. Cleared *before* a claim is sent, so that nothing
/// that arrives meanwhile is lost.
#[derive(Debug, Default)]
pub(crate) struct Wakeup {
    pending: Mutex<Pending>,
    woken: Notify,
}

/// What is known since the last look.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pending {
    /// The head may be this early, in ms.
    pub(crate) head: Option<u64>,
    /// What is due from this ms on is left to others by whoever leads, or led.
    pub(crate) left: Option<u64>,
    /// Look, not before this.
    pub(crate) look: Option<(Instant, LapseSource)>,
}

impl Wakeup {
    /// Something is due at this ms.
    pub(crate) fn head(&self, ms: u64) {
        let mut pending = lock(&self.pending);
        pending.head = Some(pending.head.map_or(ms, |head| head.min(ms)));
        self.woken.notify_one();
    }

    /// What is due from this ms on is left to others by whoever leads, or led.
    pub(crate) fn left(&self, ms: u64) {
        let mut pending = lock(&self.pending);
        pending.left = Some(pending.left.map_or(ms, |left| left.min(ms)));
        self.woken.notify_one();
    }

    /// Look, at this moment or earlier. A sweep outdoes a notification, which is not for everybody.
    pub(crate) fn look(&self, at: Instant, source: LapseSource) {
        let mut pending = lock(&self.pending);
        let outdoes = |reason| reason == LapseSource::Notification && source == LapseSource::Sweep;
        if pending.look.is_none_or(|(planned, reason)| at < planned || outdoes(reason)) {
            pending.look = Some((at, source));
            self.woken.notify_one();
        }
    }

    pub(crate) fn take(&self) -> Pending {
        std::mem::take(&mut *lock(&self.pending))
    }

    pub(crate) async fn woken(&self) {
        self.woken.notified().await;
    }
}

#[cfg(test)]
mod tests;
