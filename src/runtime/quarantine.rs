//! Runs quarantine: one at a time in each listener, beside its ordinary work.
//!
//! A timer that lost two leases may be what takes its listeners down. Alone, it
//! can take nothing along but itself; after two more lost leases it is buried.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{Notify, Semaphore};
use tokio::time::Instant;

use crate::roles::claim::{Request, ClaimTrouble, take};
use crate::connection::retry::RetryDelays;
use crate::roles::attempt::Permit;
use crate::roles::starter::Starter;
use crate::id::SlotId;
use crate::lapse::Source;
use crate::runtime::Runtime;
use crate::runtime::stop::Stopped;
use crate::wire::types::Index;

/// What is known of the quarantine, by partition.
#[derive(Debug)]
pub(crate) struct Quarantine {
    heads: Mutex<Vec<Option<Instant>>>,
    changed: Notify,
}

impl Quarantine {
    pub(crate) fn new(partitions: usize) -> Self {
        Self { heads: Mutex::new(vec![None; partitions]), changed: Notify::new() }
    }

    /// A partition's first suspect is due then.
    pub(crate) fn note(&self, partition: usize, head: Option<Instant>) {
        let mut heads = self.heads.lock().unwrap_or_else(PoisonError::into_inner);
        let pending = heads[partition] != head;
        heads[partition] = head;
        if pending && head.is_some() {
            self.changed.notify_one();
        }
    }

    fn first(&self) -> Option<(Instant, usize)> {
        let heads = self.heads.lock().unwrap_or_else(PoisonError::into_inner);
        let due = |(index, head): (usize, &Option<Instant>)| head.map(|at| (at, index));
        heads.iter().enumerate().filter_map(due).min()
    }

    /// Until it is asked to stop; a claim on its way is finished first.
    pub(crate) async fn run(&self, runtime: &Runtime, slots: &[SlotId], starter: &Starter, mut stopped: Stopped) {
        let one = Arc::new(Semaphore::new(1));
        let next = async || (one.clone().acquire_owned().await.ok(), self.next().await);
        let (mut waits, mut trouble) = (RetryDelays::default(), ClaimTrouble::default());
        loop {
            let (alone, partition) = tokio::select! {
                biased;
                () = stopped.asked() => return,
                next = next() => next,
            };
            let partition = &runtime.partitions[partition];
            let ask = Request { index: Index::Solo, slot: slots[partition], limit: 1 };
            let Ok(taken) = take(&*runtime.store, partition, ask, &mut trouble).await else {
                self.note(partition, Some(Instant::now() + waits.next()));
                continue;
            };
            waits = RetryDelays::default();
            let reading = taken.reading;
            let next = taken.claimed.heads.solo.map(|ms| reading.when(ms));
            self.note(partition, next.filter(|_| taken.claimed.paused.is_none()));
            if let Some(ms) = taken.claimed.heads.due {
                partition.wakeup.head(ms);
            }
            let mut alone = alone;
            // At most one timer was asked for, so there is a place for each.
            let jobs = taken.into_jobs(partition, Source::Sweep, || Permit::Alone(alone.take()));
            starter.hold(jobs.into_iter());
        }
    }

    /// The partition whose first suspect is due.
    async fn next(&self) -> usize {
        loop {
            match self.first() {
                Some((at, partition)) if at <= Instant::now() => return partition,
                Some((at, _)) => tokio::select! {
                    () = tokio::time::sleep_until(at) => {}
                    () = self.changed.notified() => {}
                },
                None => self.changed.notified().await,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    async fn next_within(quarantine: &Quarantine, limit: u64) -> Option<usize> {
        tokio::time::timeout(Duration::from_millis(limit), quarantine.next()).await.ok()
    }

    #[tokio::test(start_paused = true)]
    async fn the_partition_whose_suspect_is_due_first_has_its_turn_when_it_is() {
        let quarantine = Quarantine::new(4);
        assert_eq!(next_within(&quarantine, 1000).await, None);
        let now = Instant::now();
        for (partition, ms) in [(1, 30), (3, 10), (2, 20)] {
            quarantine.note(partition, Some(now + Duration::from_millis(ms)));
        }
        assert_eq!(next_within(&quarantine, 9).await, None);
        assert_eq!(next_within(&quarantine, 1).await, Some(3));
        quarantine.note(3, None);
        assert_eq!(next_within(&quarantine, 1000).await, Some(2));
        assert_eq!(now.elapsed(), Duration::from_millis(20));
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_waits_hears_of_a_suspect_that_is_earlier() {
        let quarantine = Quarantine::new(2);
        let in_an_hour = Instant::now() + Duration::from_secs(3600);
        quarantine.note(0, Some(in_an_hour));
        let earlier = async {
            tokio::task::yield_now().await;
            quarantine.note(1, Some(Instant::now()));
        };
        assert_eq!(tokio::join!(next_within(&quarantine, 1), earlier).0, Some(1));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_known_or_gone_wakes_nobody() {
        let quarantine = Quarantine::new(1);
        let at = Instant::now() + Duration::from_secs(3600);
        let wakes = async |head| {
            quarantine.note(0, head);
            tokio::time::timeout(Duration::from_millis(1), quarantine.changed.notified()).await.is_ok()
        };
        assert!(wakes(Some(at)).await);
        assert!(!wakes(Some(at)).await);
        assert!(!wakes(None).await);
        assert!(!wakes(None).await);
    }
}
