//! Claims what comes due in one index of a partition, and hands it on.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tracing::debug;

use crate::id::SlotId;
use crate::lapse::LapseSource;
use crate::roles::attempt::Permit;
use crate::roles::claim::{ClaimTrouble, Request, Taken, take};
use crate::roles::expirer::Touches;
use crate::roles::starter::Starter;
use crate::runtime::{DeadlineTimer, Partition, Seen, Stopped, Wakeup};
use crate::time::Reading;
use crate::wire::{Index, MAX_BATCH};

/// After a claim of so many timers, its stamp is old when it arrives.
const MANY: usize = 8;
/// Between two questions for nothing but the time.
const ASKED_EVERY: Duration = Duration::from_millis(100);

/// Claims from one index.
pub(crate) struct Claimer {
    partition: Arc<Partition>,
    starter: Starter,
    touches: Touches,
    slot: SlotId,
    /// Of the quarantine: one of its timers runs at a time in a listener, so that it can take nothing along.
    alone: Option<Arc<Semaphore>>,
    timer: DeadlineTimer,
    /// When it last asked for the time.
    asked: Option<Instant>,
    trouble: ClaimTrouble,
}

impl Claimer {
    /// Claims from the ordinary index.
    pub(crate) fn new(partition: Arc<Partition>, starter: Starter, touches: Touches) -> Self {
        let timer = DeadlineTimer::looking_now(partition.topic.config.lookahead);
        Self {
            partition,
            starter,
            touches,
            slot: SlotId::random(),
            alone: None,
            timer,
            asked: None,
            trouble: ClaimTrouble::default(),
        }
    }

    /// Claims from the quarantine, once somebody says that there is something in it.
    pub(crate) fn of_quarantine(self, alone: Arc<Semaphore>) -> Self {
        let timer = DeadlineTimer::new(Duration::ZERO);
        Self { alone: Some(alone), slot: SlotId::random(), timer, ..self }
    }

    pub(crate) fn slot(&self) -> SlotId {
        self.slot
    }

    /// Until it is asked to stop; a claim that is on its way is finished first,
    /// or what it takes would lie until its lease is over.
    pub(crate) async fn run(&mut self, mut stopped: Stopped) {
        loop {
            let (source, permits) = tokio::select! {
                biased;
                () = stopped.asked() => return,
                look = self.next_look() => look,
            };
            self.tick(source, permits).await;
        }
    }

    /// Waits until it is time to look and there are permits.
    async fn next_look(&mut self) -> (LapseSource, FreePermits) {
        loop {
            let source =
                self.timer.due(wakeup(&self.partition, self.alone.as_ref()), &self.partition.clock).await;
            self.partition.outbox.room().await;
            if let Some(alone) = &self.alone {
                let one = alone.clone().acquire_owned().await.ok();
                return (source, FreePermits { partition: self.partition.clone(), left: 0, one });
            }
            let free = FreePermits::take(&self.partition);
            if free.left > 0 {
                return (source, free);
            }
            self.partition.permits.free(self.partition.topic.index).await;
        }
    }

    /// Looks once.
    async fn tick(&mut self, source: LapseSource, permits: FreePermits) {
        self.timer.begin();
        let request = Request { index: permits.index(), slot: self.slot, limit: permits.count() };
        let Ok(taken) = take(&self.partition, request, &mut self.trouble).await else {
            // Its permits go back at once: other partitions may have a use for
            // them.
            return self.timer.failed(source);
        };
        self.learn(&taken, source);
        self.ask_the_time(taken.claimed.timers.len());
        self.dispatch(taken, permits, source);
    }

    /// What the answer says about the next look, here and in the other index.
    fn learn(&mut self, taken: &Taken, source: LapseSource) {
        let (heads, reading) = (taken.claimed.heads, taken.reading);
        let (own, other, of_other) = if self.alone.is_some() {
            (heads.quarantine, heads.due, &self.partition.wakeup)
        } else {
            self.partition.note_look(reading);
            (heads.due, heads.quarantine, &self.partition.quarantine)
        };
        if let Some(ms) = other {
            of_other.head(ms);
        }
        let seen = Seen {
            reading,
            head: own.filter(|_| taken.claimed.paused.is_none()),
            empty: taken.claimed.timers.is_empty(),
            rival: taken.claimed.rival && self.alone.is_none(),
        };
        if self.timer.learn(seen, source) {
            debug!(topic = %self.partition.topic.config.name, "another listener leads");
        }
    }

    /// What takes the server long says little of the time, and a call that does nothing says it
    /// best. The answer is for the next claim.
    fn ask_the_time(&mut self, claimed: usize) {
        if claimed < MANY || self.asked.is_some_and(|asked| asked.elapsed() < ASKED_EVERY) {
            return;
        }
        let (partition, sent) = (self.partition.clone(), Instant::now());
        self.asked = Some(sent);
        tokio::spawn(async move {
            if let Ok((stamp, _)) = partition.store.peek(&[]).await {
                partition.clock.read(sent, Reading::now(stamp));
            }
        });
    }

    fn dispatch(&self, taken: Taken, mut permits: FreePermits, source: LapseSource) {
        let jobs = taken.into_jobs(&self.partition, source, || permits.occupy());
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

fn wakeup<'a>(partition: &'a Partition, alone: Option<&Arc<Semaphore>>) -> &'a Wakeup {
    if alone.is_some() { &partition.quarantine } else { &partition.wakeup }
}

/// Permits that were taken for a claim; those that it does not use go back.
struct FreePermits {
    partition: Arc<Partition>,
    left: usize,
    /// The only one of the quarantine.
    one: Option<OwnedSemaphorePermit>,
}

impl FreePermits {
    fn take(partition: &Arc<Partition>) -> Self {
        let left = partition.permits.take(partition.topic.index, MAX_BATCH);
        Self { partition: partition.clone(), left, one: None }
    }

    fn index(&self) -> Index {
        if self.one.is_some() { Index::Quarantine } else { Index::Due }
    }

    fn count(&self) -> usize {
        self.left + usize::from(self.one.is_some())
    }

    fn occupy(&mut self) -> Permit {
        if let Some(one) = self.one.take() {
            return Permit::Alone(one);
        }
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
