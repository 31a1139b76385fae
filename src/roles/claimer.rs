//! The deadline timer of one partition: sleeps until something is due, claims
//! what is, and hands it on.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tracing::debug;

use crate::runtime::leadership::Leadership;
use crate::roles::claim::{Request, Taken, ClaimTrouble, take};
use crate::connection::retry::RetryDelays;
use crate::roles::attempt::Permit;
use crate::roles::starter::Starter;
use crate::id::SlotId;
use crate::lapse::Source;
use crate::runtime::partition::Partition;
use crate::roles::expirer::Touches;
use crate::runtime::stop::Stopped;
use crate::wire::types::Index;
use crate::wire::{MAX_BATCH, Store};
use crate::time::Reading;

/// After a claim of so many timers, its stamp is old when it arrives.
const MANY: usize = 8;
/// Between two questions for nothing but the time.
const ASKED_EVERY: Duration = Duration::from_millis(100);
/// The least time between looks that come away empty.
const EMPTY_PAUSE: Duration = Duration::from_millis(5);

/// Claims for one partition.
pub(crate) struct Claimer {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) partition: Arc<Partition>,
    pub(crate) starter: Starter,
    pub(crate) touches: Touches,
    slot: SlotId,
    leadership: Leadership,
    head: Option<Head>,
    planned: Option<(Instant, Source)>,
    /// Not before this does pending prompt another look.
    rested: Instant,
    /// Whether it has looked before.
    looked: bool,
    /// When it last asked for the time.
    asked: Option<Instant>,
    waits: RetryDelays,
    trouble: ClaimTrouble,
}

/// The earliest that is known to be due.
#[derive(Clone, Copy, Debug)]
struct Head {
    ms: u64,
    at: Instant,
    /// An early look has come away empty: look at the very moment.
    exactly: bool,
}

impl Claimer {
    pub(crate) fn new(store: Arc<dyn Store>, partition: Arc<Partition>, starter: Starter, touches: Touches) -> Self {
        // What became due before we were here is what a sweep would find.
        let planned = Some((Instant::now(), Source::Sweep));
        Self {
            store,
            partition,
            starter,
            touches,
            slot: SlotId::random(),
            leadership: Leadership::default(),
            head: None,
            planned,
            rested: Instant::now(),
            looked: false,
            asked: None,
            waits: RetryDelays::default(),
            trouble: ClaimTrouble::default(),
        }
    }

    pub(crate) fn slot(&self) -> SlotId {
        self.slot
    }

    /// Until it is asked to stop; a claim that is on its way is finished first,
    /// or what it takes would lie until its lease is over.
    pub(crate) async fn run(&mut self, mut stopped: Stopped) {
        let mut reading = None;
        loop {
            let (source, permits) = tokio::select! {
                biased;
                () = stopped.asked() => return,
                look = self.next_look(reading) => look,
            };
            reading = self.tick(source, permits).await.or(reading);
        }
    }

    /// RetryDelays until it is time to look and there are permits; says why it is, and
    /// how many there are.
    async fn next_look(&mut self, reading: Option<Reading>) -> (Source, FreePermits) {
        loop {
            let source = self.next_time(reading).await;
            self.partition.outbox.room().await;
            let free = FreePermits::take(&self.partition);
            if free.left > 0 {
                return (source, free);
            }
            self.partition.permits.free(self.partition.topic.index).await;
        }
    }

    /// RetryDelays until it is time to look, and says why it is.
    async fn next_time(&mut self, reading: Option<Reading>) -> Source {
        loop {
            self.read_news(reading);
            let lookahead = self.partition.topic.config.lookahead;
            let timer =
                self.head.map(|head| (self.leadership.wake(head.at, lookahead, head.exactly), Source::Timer));
            let next = [timer, self.planned].into_iter().flatten().min_by_key(|(at, _)| *at);
            match next {
                Some((at, source)) if at <= Instant::now() => return source,
                Some((at, _)) => tokio::select! {
                    () = tokio::time::sleep_until(at) => {}
                    () = self.partition.wakeup.woken() => {}
                },
                None => self.partition.wakeup.woken().await,
            }
        }
    }

    fn read_news(&mut self, reading: Option<Reading>) {
        let pending = self.partition.wakeup.take();
        if let Some((at, source)) = pending.look
            && self.planned.is_none_or(|(planned, _)| at < planned)
        {
            self.planned = Some((at, source));
        }
        if let Some(ms) = pending.head.filter(|ms| self.head.is_none_or(|head| *ms < head.ms)) {
            match reading {
                Some(reading) => {
                    let at = reading.when(ms);
                    self.head = Some(Head { ms, at: at.max(self.rested), exactly: at < self.rested });
                }
                // Without a reading of the server's clock only a look can tell.
                None => self.planned = Some((Instant::now(), Source::Timer)),
            }
        }
    }

    /// DueChecks once; the server's time, if it answered.
    async fn tick(&mut self, source: Source, free: FreePermits) -> Option<Reading> {
        let woke_for = self.head.take();
        self.planned = None;
        let ask = Request { index: Index::Due, slot: self.slot, limit: free.left };
        let Ok(taken) = take(&*self.store, &self.partition, ask, &mut self.trouble).await else {
            // Its permits go back at once: other partitions may have a use for
            // them.
            self.rested = Instant::now() + self.waits.next();
            self.planned = Some((self.rested, source));
            return None;
        };
        self.waits = RetryDelays::default();
        let reading = taken.reading;
        self.learn(&taken, woke_for, source);
        self.ask_the_time(taken.claimed.timers.len());
        self.dispatch(taken, free, source);
        Some(reading)
    }

    /// What the answer says about the next look.
    fn learn(&mut self, taken: &Taken, woke_for: Option<Head>, source: Source) {
        let (claimed, reading) = (&taken.claimed, taken.reading);
        self.partition.note_look(reading, claimed);
        let empty = claimed.timers.is_empty();
        let first = !std::mem::replace(&mut self.looked, true);
        self.head = claimed.heads.due.filter(|_| claimed.paused.is_none()).map(|ms| Head {
            ms,
            at: reading.when(ms),
            exactly: empty,
        });
        if !empty {
            self.leadership.won();
            return;
        }
        let moved = woke_for.is_some_and(|woke| claimed.heads.due.is_none_or(|ms| ms > woke.ms));
        if source == Source::Timer && moved && claimed.rival {
            self.leadership.lost();
            debug!(topic = %self.partition.topic.config.name, leadership = ?self.leadership, "another listener leads");
        }
        // Should something stay due that cannot be claimed, or somebody forge
        // wake-ups, there is another look soon, but not in a hurry. The first look was
        // prompted by nobody, and must not put off what is armed right after it.
        if !first {
            self.rested = Instant::now() + EMPTY_PAUSE;
        }
        if let Some(head) = self.head.as_mut().filter(|head| head.ms <= claimed.stamp.ms()) {
            head.at = head.at.max(self.rested);
        }
    }

    /// What takes the server long says little of the time, and a call that does nothing says it
    /// best. The answer is for the next claim.
    fn ask_the_time(&mut self, claimed: usize) {
        if claimed < MANY || self.asked.is_some_and(|asked| asked.elapsed() < ASKED_EVERY) {
            return;
        }
        let (store, partition, sent) = (self.store.clone(), self.partition.clone(), Instant::now());
        self.asked = Some(sent);
        tokio::spawn(async move {
            if let Ok(nothing) = store.peek(&[]).await {
                partition.clock.read(sent, Reading::now(nothing.stamp));
            }
        });
    }

    fn dispatch(&self, taken: Taken, mut free: FreePermits, source: Source) {
        let jobs = taken.into_jobs(&self.partition, source, || free.occupy());
        if jobs.is_empty() {
            return;
        }
        if self.partition.topic.config.triggers {
            let latest = jobs.iter().map(|(at, _)| *at).max();
            self.touches.plan(latest, jobs.iter().map(|(_, job)| job.held.key.clone()));
        }
        self.starter.hold(jobs.into_iter());
    }
}

/// Permits that were taken for a claim; those that it leaves empty go back.
struct FreePermits {
    partition: Arc<Partition>,
    left: usize,
}

impl FreePermits {
    fn take(partition: &Arc<Partition>) -> Self {
        let left = partition.permits.take(partition.topic.index, MAX_BATCH);
        Self { partition: partition.clone(), left }
    }

    fn occupy(&mut self) -> Permit {
        debug_assert!(self.left > 0, "a claim never takes more than was asked for");
        self.left = self.left.saturating_sub(1);
        Permit::Ordinary(self.partition.clone())
    }
}

impl Drop for FreePermits {
    fn drop(&mut self) {
        self.partition.permits.give_back(self.partition.topic.index, self.left);
    }
}

#[cfg(test)]
mod tests;
