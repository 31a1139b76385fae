//! What this listener holds of one partition, from claim to settlement.

use std::collections::{HashMap, VecDeque};
use std::mem;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{Notify, SetOnce};
use tokio::time::Instant;

use crate::lock::{lock, until};
use crate::wire::Held;

/// How many fences are remembered.
const FENCES: usize = 256;

/// The timers that this listener holds, by key and token.
#[derive(Debug, Default)]
pub(crate) struct Leases {
    state: Mutex<State>,
    /// Something is held no longer, or for longer.
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    held: HashMap<Held, Lease>,
    /// Fences for what we do not hold: mostly other listeners', but a fence can
    /// also overtake the answer to the claim that it is for.
    fenced: VecDeque<Held>,
}

#[derive(Debug)]
struct Lease {
    /// Set when it is: the attempt and its handler are waiting.
    lost: Arc<SetOnce<()>>,
    /// When the request that last extended the lease was sent. Counting from
    /// its start, a slow answer cannot stretch our trust.
    extended: Instant,
}

impl Leases {
    /// Takes claimed timers in.
    pub(crate) fn hold(
        &self,
        claimed: impl IntoIterator<Item = (Held, Arc<SetOnce<()>>)>,
        extended: Instant,
    ) {
        let State { held, fenced } = &mut *lock(&self.state);
        held.extend(claimed.into_iter().map(|(held, lost)| (held, Lease { lost, extended })));
        // Nobody has seen these yet: only their attempts need to be told.
        fenced.iter().filter_map(|fence| held.remove(fence)).for_each(|lease| drop(lease.lost.set(())));
    }

    /// A cancel has fenced this timer, which may be about to be ours.
    pub(crate) fn fence(&self, held: Held) {
        let mut state = lock(&self.state);
        let lease = state.held.remove(&held);
        if lease.is_none() {
            state.fenced.truncate(FENCES - 1);
            state.fenced.push_front(held);
        }
        drop(state);
        self.tell(lease);
    }

    /// Whether the timer is still ours to settle.
    pub(crate) fn holds(&self, held: &Held) -> bool {
        lock(&self.state).held.contains_key(held)
    }

    /// Forgets what is settled.
    pub(crate) fn settled<'a>(&self, held: impl Iterator<Item = &'a Held>) {
        let mut state = lock(&self.state);
        held.for_each(|one| {
            state.held.remove(one);
        });
        drop(state);
        self.changed.notify_waiters();
    }

    /// Gives a timer up and tells its handler; whether it was ours.
    pub(crate) fn lose(&self, held: &Held) -> bool {
        let lease = lock(&self.state).held.remove(held);
        self.tell(lease) > 0
    }

    /// Gives everything up, to be handed back.
    pub(crate) fn surrender(&self) -> Vec<Held> {
        let held = mem::take(&mut lock(&self.state).held);
        let (held, leases): (_, Vec<_>) = held.into_iter().unzip();
        self.tell(leases);
        held
    }

    /// What was last extended before `when`.
    pub(crate) fn extended_before(&self, when: Instant) -> Vec<Held> {
        let held = &lock(&self.state).held;
        held.iter().filter(|(_, lease)| lease.extended < when).map(|(held, _)| held.clone()).collect()
    }

    /// The answer to a renewal of `batch`: gives up what is `lost`, and notes that the others are
    /// extended; how many of the lost were ours. In this order and in one step: whoever waits to be
    /// [`trusted`](Self::trusted) must not be told in between that what is lost was extended.
    pub(crate) fn renewed(&self, batch: &[Held], lost: &[&Held], since: Instant) -> usize {
        let mut state = lock(&self.state);
        let given_up: Vec<_> = lost.iter().filter_map(|held| state.held.remove(*held)).collect();
        for one in batch {
            if let Some(lease) = state.held.get_mut(one) {
                lease.extended = since;
            }
        }
        drop(state);
        self.tell(given_up)
    }

    /// Whether this timer is ours, once that is known: one that was not extended for `trust` may be
    /// somebody else's, until the lease keeper has extended it or given it up.
    pub(crate) async fn trusted(&self, held: &Held, trust: Duration) -> bool {
        let known = |lease: &Lease| lease.extended.elapsed() < trust;
        until(&self.state, &self.changed, |state| state.held.get(held).is_none_or(known)).await;
        self.holds(held)
    }

    /// Gives up what has not been extended for `trust`; how many that were.
    pub(crate) fn distrust(&self, trust: Duration) -> usize {
        let Some(when) = Instant::now().checked_sub(trust) else { return 0 };
        self.extended_before(when).iter().filter(|held| self.lose(held)).count()
    }

    /// Returns once nothing is held.
    pub(crate) async fn emptied(&self) {
        until(&self.state, &self.changed, |state| state.held.is_empty()).await;
    }

    /// Returns once this timer is settled or given up.
    pub(crate) async fn released(&self, held: &Held) {
        until(&self.state, &self.changed, |state| !state.held.contains_key(held)).await;
    }

    /// Tells the handlers of what was given up, and whoever waits for that; how many those were.
    fn tell(&self, given_up: impl IntoIterator<Item = Lease>) -> usize {
        let told = given_up.into_iter().inspect(|lease| drop(lease.lost.set(()))).count();
        self.changed.notify_waiters();
        told
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

    fn held_of(leases: &Leases, key: &'static str) -> Arc<SetOnce<()>> {
        let watch = Arc::new(SetOnce::new());
        leases.hold([(held(key), watch.clone())], Instant::now());
        watch
    }

    #[tokio::test]
    async fn a_lost_flight_tells_its_handler_once_and_for_all() {
        let leases = Leases::default();
        let watch = held_of(&leases, "a");
        assert!(!watch.initialized());
        assert!(leases.lose(&held("a")));
        assert!(!leases.lose(&held("a")));
        watch.wait().await;
        watch.wait().await;
    }

    #[test]
    fn a_fence_that_overtakes_the_claim_still_holds() {
        let leases = Leases::default();
        (0..1000).for_each(|_| leases.fence(held("others")));
        leases.fence(held("a"));
        assert!(held_of(&leases, "a").initialized());
        assert!(!held_of(&leases, "b").initialized());
    }

    #[test]
    fn so_many_fences_are_remembered_and_the_oldest_is_forgotten() {
        let leases = Leases::default();
        let numbered = |number: usize| Held { key: Bytes::from(number.to_string()), token: Token([1; 8]) };
        (0..FENCES + 10).for_each(|number| leases.fence(numbered(number)));
        let fenced = &lock(&leases.state).fenced;
        assert_eq!(fenced.len(), FENCES);
        assert!(fenced.contains(&numbered(10)) && !fenced.contains(&numbered(9)));
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_not_extended_in_time_is_ours_only_once_that_is_known() {
        let leases = Leases::default();
        let trust = Duration::from_secs(1);
        for (key, ours) in [("extended", true), ("lost", false)] {
            let _watch = held_of(&leases, key);
            assert!(leases.trusted(&held(key), trust).await);
            tokio::time::advance(trust * 2).await;
            let held = held(key);
            let known = leases.trusted(&held, trust);
            tokio::pin!(known);
            assert!(futures::poll!(known.as_mut()).is_pending());
            if ours {
                leases.renewed(std::slice::from_ref(&held), &[], Instant::now());
            } else {
                leases.lose(&held);
            }
            assert_eq!(known.await, ours);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn trust_ends_by_itself_unless_extended() {
        let leases = Leases::default();
        let (lost, kept) = (held_of(&leases, "lost"), held_of(&leases, "kept"));
        tokio::time::advance(Duration::from_secs(2)).await;
        leases.renewed(&[held("kept")], &[], Instant::now());
        assert_eq!(leases.distrust(Duration::from_secs(1)), 1);
        assert!(lost.initialized() && !kept.initialized());
        assert!(leases.holds(&held("kept")));
    }
}
