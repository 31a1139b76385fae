//! Ends of attempts on their way to Redis, gathered into batches.

use std::sync::Mutex;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Notify;

use crate::lock::{lock, until};
use crate::runtime::leases::Lease;
use crate::wire::{End, MAX_BATCH};

/// How long the first end waits for company. At a high rate batches fill
/// faster; at a low one nobody waits for an ack but Redis.
pub(super) const LINGER: Duration = Duration::from_millis(20);
/// This many do not wait any longer.
const ENOUGH: usize = 64;
/// Beyond this many unsettled ends, nothing more is claimed.
const FULL: usize = 4 * MAX_BATCH;

/// One end of an attempt. It owns the lease until it is settled, or given up.
#[derive(Debug)]
pub(crate) struct Settlement {
    pub(crate) lease: Lease,
    /// None: gone, the ordinary way.
    pub(crate) end: Option<End>,
    /// The value of an attached key that is to be written back for its retry.
    pub(crate) restore: Option<Bytes>,
}

/// The ends of one partition.
#[derive(Debug)]
pub(crate) struct Outbox {
    /// How long the first end waits for company.
    linger: Duration,
    state: Mutex<State>,
    filled: Notify,
    drained: Notify,
}

#[derive(Debug, Default)]
struct State {
    waiting: Vec<Settlement>,
    /// How many are on their way.
    sent: usize,
}

impl Outbox {
    pub(crate) fn new(linger: Duration) -> Self {
        Self { linger, state: Mutex::default(), filled: Notify::new(), drained: Notify::new() }
    }

    pub(crate) fn put(&self, settlement: Settlement) {
        let mut state = lock(&self.state);
        // In one step: whoever sees that all attempts have ended must find here what is left to settle.
        settlement.lease.end();
        state.waiting.push(settlement);
        let count = state.waiting.len();
        drop(state);
        if count == 1 || count == ENOUGH {
            self.filled.notify_one();
        }
    }

    /// The next batch, once there is something.
    pub(crate) async fn next_batch(&self) -> Vec<Settlement> {
        while lock(&self.state).waiting.is_empty() {
            self.filled.notified().await;
        }
        if self.linger.is_zero() {
            return self.take();
        }
        let company = async {
            while lock(&self.state).waiting.len() < ENOUGH {
                self.filled.notified().await;
            }
        };
        let _ = tokio::time::timeout(self.linger, company).await;
        self.take()
    }

    fn take(&self) -> Vec<Settlement> {
        let mut state = lock(&self.state);
        let batch: Vec<_> = std::mem::take(&mut state.waiting);
        state.sent += batch.len();
        batch
    }

    /// So many of those on their way were settled or given up.
    pub(crate) fn settled(&self, count: usize) {
        lock(&self.state).sent -= count;
        self.drained.notify_waiters();
    }

    /// Returns once there is room for more ends.
    pub(crate) async fn room(&self) {
        self.fewer_than(FULL).await;
    }

    /// Returns once everything is settled.
    pub(crate) async fn empty(&self) {
        self.fewer_than(1).await;
    }

    async fn fewer_than(&self, count: usize) {
        until(&self.state, &self.drained, |state| state.waiting.len() + state.sent < count).await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Barrier};

    use bytes::Bytes;
    use tokio::time::Instant;

    use super::*;
    use crate::boottime::now;
    use crate::id::Token;
    use crate::lease::Phase;
    use crate::runtime::leases::Leases;
    use crate::wire::Held;

    fn ended(number: usize) -> Settlement {
        let held = Held { key: Bytes::from(number.to_string()), token: Token([1; 8]) };
        let leases = Arc::new(Leases::new(Duration::from_secs(1), Duration::from_secs(1)));
        Settlement { lease: leases.take([held], now()).remove(0), end: None, restore: None }
    }

    fn put(outbox: &Outbox, numbers: std::ops::Range<usize>) {
        numbers.for_each(|number| outbox.put(ended(number)));
    }

    /// How long the next batch lets wait, and how many are in it.
    async fn batch(outbox: &Outbox) -> (Duration, usize) {
        let asked = Instant::now();
        let batch = outbox.next_batch().await;
        (asked.elapsed(), batch.len())
    }

    #[tokio::test(start_paused = true)]
    async fn one_end_waits_for_company_and_enough_do_not() {
        let outbox = Outbox::new(LINGER);
        for (count, waits) in
            [(1, LINGER), (ENOUGH - 1, LINGER), (ENOUGH, Duration::ZERO), (200, Duration::ZERO)]
        {
            put(&outbox, 0..count);
            assert_eq!(batch(&outbox).await, (waits, count));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_waits_for_a_batch_hears_of_the_first_end_and_of_the_last_that_is_needed() {
        let outbox = Outbox::new(LINGER);
        let later = async {
            tokio::time::sleep(Duration::from_millis(100)).await;
            put(&outbox, 0..1);
            tokio::time::sleep(Duration::from_millis(1)).await;
            put(&outbox, 1..ENOUGH);
        };
        let batch = tokio::join!(batch(&outbox), later).0;
        assert_eq!(batch, (Duration::from_millis(101), ENOUGH));
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_and_the_last_that_is_needed_ring_and_no_other() {
        let outbox = Outbox::new(LINGER);
        let mut woken = Vec::new();
        for number in 0..ENOUGH + 10 {
            put(&outbox, number..number + 1);
            if tokio::time::timeout(Duration::ZERO, outbox.filled.notified()).await.is_ok() {
                woken.push(number + 1);
            }
        }
        assert_eq!(woken, [1, ENOUGH]);
    }

    #[tokio::test(start_paused = true)]
    async fn in_virtual_time_nobody_waits_for_company() {
        let outbox = Outbox::new(Duration::ZERO);
        put(&outbox, 0..1);
        assert_eq!(batch(&outbox).await, (Duration::ZERO, 1));
    }

    #[test]
    fn whoever_sees_that_an_attempt_has_ended_finds_its_end_to_settle() {
        let outbox = Outbox::new(Duration::ZERO);
        for number in 0..1000 {
            let (start, ended) = (Barrier::new(2), ended(number));
            let lease = ended.lease.state.clone();
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    start.wait();
                    outbox.put(ended);
                });
                start.wait();
                while lease.phase() != Phase::Ended {}
                assert_eq!(outbox.take().len(), 1, "in round {number}");
            });
        }
    }

    #[tokio::test(start_paused = true)]
    async fn ends_count_until_they_are_settled_and_too_many_leave_no_room() {
        let outbox = Outbox::new(Duration::ZERO);
        let soon = Duration::from_millis(1);
        let has_room = async || tokio::time::timeout(soon, outbox.room()).await.is_ok();
        let is_empty = async || tokio::time::timeout(soon, outbox.empty()).await.is_ok();
        assert!(has_room().await && is_empty().await);
        put(&outbox, 0..FULL / 2);
        let sent = outbox.next_batch().await;
        assert_eq!(sent.len(), FULL / 2);
        put(&outbox, FULL / 2..FULL - 1);
        assert!(has_room().await && !is_empty().await);
        put(&outbox, FULL - 1..FULL);
        assert!(!has_room().await, "4,000 are on their way or wait for it");
        outbox.settled(1);
        assert!(has_room().await && !is_empty().await);
        outbox.settled(sent.len() - 1);
        let rest = outbox.next_batch().await;
        let settle = async { outbox.settled(rest.len()) };
        assert!(tokio::join!(is_empty(), settle).0);
        assert_eq!(FULL, 4000);
    }
}
