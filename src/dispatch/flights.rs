//! What this listener holds of one partition, from claim to settlement.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::store::Held;

/// Tells a handler that its timer is no longer ours.
#[derive(Debug, Default)]
pub(crate) struct LeaseWatch {
    lost: AtomicBool,
    gone: Notify,
}

impl LeaseWatch {
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    pub(crate) async fn lost(&self) {
        // Created before the check: it then sees every later notification.
        let gone = self.gone.notified();
        if !self.is_lost() {
            gone.await;
        }
    }

    fn lose(&self) {
        self.lost.store(true, Ordering::Release);
        self.gone.notify_waiters();
    }
}

/// The timers that this listener holds, by key and token.
#[derive(Debug, Default)]
pub(crate) struct Flights {
    held: Mutex<HashMap<Held, Flight>>,
    /// Fences for what we do not hold: mostly other listeners', but a fence can
    /// also overtake the answer to the claim that it is for.
    fenced: Mutex<VecDeque<Held>>,
    /// Something is held no longer, or for longer.
    changed: Notify,
}

/// How many fences are remembered.
const FENCES: usize = 256;

#[derive(Debug)]
struct Flight {
    watch: Arc<LeaseWatch>,
    /// When the request that last extended the lease was sent. Counting from
    /// its start, a slow answer cannot stretch our trust.
    extended: Instant,
}

impl Flights {
    /// Takes claimed timers in.
    pub(crate) fn board(&self, claimed: impl Iterator<Item = (Held, Arc<LeaseWatch>)>, since: Instant) {
        let boarded = claimed.map(|(held, watch)| (held, Flight { watch, extended: since }));
        self.lock().extend(boarded);
        let fenced: Vec<_> = self.fences().iter().filter(|held| self.holds(held)).cloned().collect();
        fenced.iter().for_each(|held| {
            self.lose(held);
        });
    }

    /// A cancel has fenced this timer, which may be about to be ours.
    pub(crate) fn fence(&self, held: Held) {
        if self.lose(&held) {
            return;
        }
        let mut fences = self.fences();
        fences.truncate(FENCES - 1);
        fences.push_front(held);
    }

    /// Whether the timer is still ours to settle.
    pub(crate) fn holds(&self, held: &Held) -> bool {
        self.lock().contains_key(held)
    }

    /// Forgets what is settled.
    pub(crate) fn settled<'a>(&self, held: impl Iterator<Item = &'a Held>) {
        let mut flights = self.lock();
        held.for_each(|one| {
            flights.remove(one);
        });
        drop(flights);
        self.changed.notify_waiters();
    }

    /// Gives a timer up and tells its handler; whether it was ours.
    pub(crate) fn lose(&self, held: &Held) -> bool {
        let flight = self.lock().remove(held);
        self.changed.notify_waiters();
        flight.map(|flight| flight.watch.lose()).is_some()
    }

    /// Gives everything up, to be handed back.
    pub(crate) fn surrender(&self) -> Vec<Held> {
        let flights = std::mem::take(&mut *self.lock());
        self.changed.notify_waiters();
        flights
            .into_iter()
            .map(|(held, flight)| {
                flight.watch.lose();
                held
            })
            .collect()
    }

    /// What was last extended before `when`.
    pub(crate) fn extended_before(&self, when: Instant) -> Vec<Held> {
        let flights = self.lock();
        flights.iter().filter(|(_, flight)| flight.extended < when).map(|(held, _)| held.clone()).collect()
    }

    /// The answer to a renewal of `batch`: gives up what is `lost`, and notes that the others are
    /// extended; how many of the lost were ours. In this order and in one step: whoever waits to be
    /// [`trusted`](Self::trusted) must not be told in between that what is lost was extended.
    pub(crate) fn renewed(&self, batch: &[Held], lost: &[&Held], since: Instant) -> usize {
        let mut flights = self.lock();
        let given_up: Vec<_> = lost.iter().filter_map(|held| flights.remove(*held)).collect();
        for one in batch {
            if let Some(flight) = flights.get_mut(one) {
                flight.extended = since;
            }
        }
        drop(flights);
        given_up.iter().for_each(|flight| flight.watch.lose());
        self.changed.notify_waiters();
        given_up.len()
    }

    /// Whether this timer is ours, once that is known: one that was not extended for `trust` may be
    /// somebody else's, until the keeper of the leases has extended it or given it up.
    pub(crate) async fn trusted(&self, held: &Held, trust: Duration) -> bool {
        let known = |flight: &Flight| flight.extended.elapsed() < trust;
        self.until(|flights| flights.get(held).is_none_or(known)).await;
        self.holds(held)
    }

    /// Gives up what has not been extended for `trust`; how many that were.
    pub(crate) fn distrust(&self, trust: Duration) -> usize {
        let Some(when) = Instant::now().checked_sub(trust) else { return 0 };
        self.extended_before(when).iter().filter(|held| self.lose(held)).count()
    }

    /// Returns once nothing is held.
    pub(crate) async fn emptied(&self) {
        self.until(HashMap::is_empty).await;
    }

    /// Returns once this timer is settled or given up.
    pub(crate) async fn landed(&self, held: &Held) {
        self.until(|flights| !flights.contains_key(held)).await;
    }

    async fn until(&self, done: impl Fn(&HashMap<Held, Flight>) -> bool) {
        loop {
            let changed = self.changed.notified();
            if done(&self.lock()) {
                return;
            }
            changed.await;
        }
    }

    fn fences(&self) -> MutexGuard<'_, VecDeque<Held>> {
        self.fenced.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Held, Flight>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod renewal_tests;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::Token;
    use bytes::Bytes;

    fn held(key: &'static str) -> Held {
        Held { key: Bytes::from_static(key.as_bytes()), token: Token([1; 8]) }
    }

    fn boarded(flights: &Flights, key: &'static str) -> Arc<LeaseWatch> {
        let watch = Arc::new(LeaseWatch::default());
        flights.board([(held(key), watch.clone())].into_iter(), Instant::now());
        watch
    }

    #[tokio::test]
    async fn a_lost_flight_tells_its_handler_once_and_for_all() {
        let flights = Flights::default();
        let watch = boarded(&flights, "a");
        assert!(!watch.is_lost());
        assert!(flights.lose(&held("a")));
        assert!(!flights.lose(&held("a")));
        watch.lost().await;
        watch.lost().await;
    }

    #[test]
    fn a_fence_that_overtakes_the_claim_still_holds() {
        let flights = Flights::default();
        (0..1000).for_each(|_| flights.fence(held("others")));
        flights.fence(held("a"));
        assert!(boarded(&flights, "a").is_lost());
        assert!(!boarded(&flights, "b").is_lost());
    }

    #[test]
    fn so_many_fences_are_remembered_and_the_oldest_is_forgotten() {
        let flights = Flights::default();
        let numbered = |number: usize| Held { key: Bytes::from(number.to_string()), token: Token([1; 8]) };
        (0..FENCES + 10).for_each(|number| flights.fence(numbered(number)));
        assert_eq!(flights.fences().len(), FENCES);
        assert!(flights.fences().contains(&numbered(10)) && !flights.fences().contains(&numbered(9)));
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_not_extended_in_time_is_ours_only_once_that_is_known() {
        let flights = Flights::default();
        let trust = Duration::from_secs(1);
        for (key, ours) in [("extended", true), ("lost", false)] {
            let _watch = boarded(&flights, key);
            assert!(flights.trusted(&held(key), trust).await);
            tokio::time::advance(trust * 2).await;
            let held = held(key);
            let known = flights.trusted(&held, trust);
            tokio::pin!(known);
            assert!(futures::poll!(known.as_mut()).is_pending());
            if ours {
                flights.renewed(std::slice::from_ref(&held), &[], Instant::now());
            } else {
                flights.lose(&held);
            }
            assert_eq!(known.await, ours);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn trust_ends_by_itself_unless_extended() {
        let flights = Flights::default();
        let (lost, kept) = (boarded(&flights, "lost"), boarded(&flights, "kept"));
        tokio::time::advance(Duration::from_secs(2)).await;
        flights.renewed(&[held("kept")], &[], Instant::now());
        assert_eq!(flights.distrust(Duration::from_secs(1)), 1);
        assert!(lost.is_lost() && !kept.is_lost());
        assert!(flights.holds(&held("kept")));
    }
}
