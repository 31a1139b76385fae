//! The leases that a listener holds in a partition, from claim to settlement.

use std::collections::{HashMap, HashSet, VecDeque};
use std::mem;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::boottime::now;
use crate::lease::{HANDLER_STOP_GRACE, LeaseLossReason, LeaseNotice, LeaseState, Phase};
use crate::lock::{lock, wait_until};
use crate::wire::LeaseRef;

/// How many fences of unknown leases are remembered. The oldest are forgotten.
const MAX_FENCES: usize = 256;

/// A timer that this listener has claimed. This value owns the lease from the claim until the end of the attempt is
/// settled. If it is dropped before, the lease is given up: it is not renewed any more, and its handler receives a
/// notice.
#[derive(Debug)]
pub(crate) struct Lease {
    pub(crate) held: LeaseRef,
    pub(crate) state: Arc<LeaseState>,
    leases: Arc<Leases>,
}

impl Lease {
    /// Returns true until the lease is settled, lost or given up.
    pub(crate) fn is_held(&self) -> bool {
        !self.state.has_notice(LeaseNotice::Lost)
    }

    /// Marks the attempt as ended. From now on, no renewal counts the lease as lost.
    pub(crate) fn mark_ended(&self) {
        self.state.enter(Phase::Ended, None);
        self.leases.changed.notify_waiters();
    }

    /// Waits for the answer to a renewal that is sent from now on. Returns whether this listener still holds the lease.
    pub(crate) async fn confirm(&self) -> bool {
        let (asked, Leases { table, changed, renewal_wanted, .. }) = (now(), &*self.leases);
        lock(table).wanted.insert(self.held.clone());
        renewal_wanted.notify_one();
        let answered =
            |table: &Table| table.held.get(&self.held).is_none_or(|lease| lease.extended() >= asked);
        wait_until(table, changed, answered).await;
        self.is_held()
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if self.is_held() {
            self.leases.lose(&self.held);
        }
    }
}

/// The leases that this listener holds in a partition, by key and token. They are renewed until they are removed, and
/// then their handlers receive a notice.
#[derive(Debug)]
pub(crate) struct Leases {
    /// How long a lease is trusted after its claim or its last renewal was sent.
    trust: Duration,
    /// The timeout of attempts.
    timeout: Duration,
    table: Mutex<Table>,
    /// Notified when a lease was removed or extended, or an attempt has ended.
    changed: Notify,
    /// Notified when a task waits for a renewal.
    renewal_wanted: Notify,
}

#[derive(Debug, Default)]
struct Table {
    held: HashMap<LeaseRef, Arc<LeaseState>>,
    /// Fences of leases that this listener does not hold. Most are for other listeners, but a fence can also overtake
    /// the answer to its claim.
    fenced: VecDeque<LeaseRef>,
    /// Leases to renew immediately, because a task waits for that.
    wanted: HashSet<LeaseRef>,
    /// True after the tasks that renew and settle have ended.
    abandoned: bool,
}

/// The leases that [`give_up_failed`](Leases::give_up_failed) has given up.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct GivenUp {
    /// The number of leases that were not renewed in time.
    pub(crate) not_extended: usize,
    /// Leases whose attempts did not end in time, as the handler or its runtime is blocked.
    pub(crate) overdue: Vec<LeaseRef>,
}

impl Leases {
    pub(crate) fn new(trust: Duration, timeout: Duration) -> Self {
        let (table, changed, renewal_wanted) = Default::default();
        Self { trust, timeout, table, changed, renewal_wanted }
    }

    /// Adds the leases of a claim that was sent at `sent`. Leases that were fenced before are lost immediately.
    pub(crate) fn add(
        self: &Arc<Self>,
        claimed: impl IntoIterator<Item = LeaseRef>,
        sent: Instant,
    ) -> Vec<Lease> {
        let Table { held, fenced, abandoned, .. } = &mut *lock(&self.table);
        let own = |timer: LeaseRef| {
            let state = Arc::new(LeaseState::new(sent, self.trust));
            if *abandoned {
                state.send_notice(LeaseNotice::Gone);
            } else {
                held.insert(timer.clone(), state.clone());
            }
            Lease { held: timer, state, leases: self.clone() }
        };
        let leases = claimed.into_iter().map(own).collect();
        // No task has seen these leases yet, so only their attempts need a notice.
        fenced
            .iter()
            .filter_map(|fence| held.remove(fence))
            .for_each(|lease| lease.send_notice(LeaseNotice::Lost));
        leases
    }

    /// Returns the number of leases.
    pub(crate) fn count(&self) -> usize {
        lock(&self.table).held.len()
    }

    /// Removes a lease whose timer was cancelled, and sends a notice to its handler. If the lease is unknown, the fence
    /// is remembered, as the answer to the claim may not have arrived yet.
    pub(crate) fn fence(&self, held: LeaseRef) {
        let mut table = lock(&self.table);
        let lease = table.held.remove(&held);
        if lease.is_none() {
            table.fenced.truncate(MAX_FENCES - 1);
            table.fenced.push_front(held);
        }
        drop(table);
        self.notify_handlers(LeaseNotice::Lost, lease);
    }

    /// Removes settled leases. Attempts that wait for their settlement receive the notice [`LeaseNotice::Lost`].
    pub(crate) fn remove_settled<'a>(&self, held: impl Iterator<Item = &'a LeaseRef>) {
        let mut table = lock(&self.table);
        let settled: Vec<_> = held.filter_map(|one| table.held.remove(one)).collect();
        drop(table);
        self.notify_handlers(LeaseNotice::Lost, settled);
    }

    /// Removes a lease and sends a notice to its handler. Returns whether this listener held it.
    pub(crate) fn lose(&self, held: &LeaseRef) -> bool {
        let lease = lock(&self.table).held.remove(held);
        self.notify_handlers(LeaseNotice::Lost, lease) > 0
    }

    /// Sends a notice to attempts that have not ended, so that they end and their timers can be released. Returns their
    /// number.
    pub(crate) fn ask_to_stop(&self) -> usize {
        let table = lock(&self.table);
        let running = table.held.values().filter(|lease| lease.phase() != Phase::Ended);
        running.inspect(|lease| lease.send_notice(LeaseNotice::Stop)).count()
    }

    /// Gives up the leases of attempts that have not ended, and returns them.
    pub(crate) fn give_up_unended(&self) -> Vec<LeaseRef> {
        let unended = |_: &LeaseRef, lease: &mut Arc<LeaseState>| lease.phase() != Phase::Ended;
        let (held, given_up): (_, Vec<_>) = lock(&self.table).held.extract_if(unended).unzip();
        self.notify_handlers(LeaseNotice::Lost, given_up);
        held
    }

    /// Gives up all leases, now and of later claims, because the tasks that renew and settle have ended.
    pub(crate) fn abandon(&self) {
        let mut table = lock(&self.table);
        table.abandoned = true;
        let held = mem::take(&mut table.held);
        drop(table);
        self.notify_handlers(LeaseNotice::Gone, held.into_values());
    }

    /// Returns the leases that were last extended before `when`, and those whose renewal a task waits for.
    pub(crate) fn to_renew(&self, when: Instant) -> Vec<LeaseRef> {
        let Table { held, wanted, .. } = &mut *lock(&self.table);
        wanted.retain(|one| held.contains_key(one));
        let due =
            |(one, lease): &(&LeaseRef, &Arc<LeaseState>)| lease.extended() < when || wanted.contains(*one);
        held.iter().filter(due).map(|(one, _)| one.clone()).collect()
    }

    /// Waits until a task waits for a renewal.
    pub(crate) async fn wait_until_renewal_wanted(&self) {
        self.renewal_wanted.notified().await;
    }

    /// Applies the answer to a renewal of `batch` that was sent at `sent`: removes the `lost` leases, and extends the
    /// others. Returns how many of the lost ones this listener held.
    ///
    /// Both steps happen in this order under one lock. A task that waits for [`confirm`](Lease::confirm) must not read
    /// in between that a lost lease was extended.
    pub(crate) fn apply_renewal(&self, batch: &[LeaseRef], lost: &[&LeaseRef], sent: Instant) -> usize {
        let mut table = lock(&self.table);
        let mut given_up = Vec::new();
        for one in lost {
            // A lease whose attempt ended during the renewal is being settled, and is not lost.
            if table.held.get(*one).is_some_and(|lease| lease.phase() != Phase::Ended) {
                given_up.extend(table.held.remove(*one));
            }
        }
        for one in batch {
            if let Some(lease) = table.held.get(one) {
                lease.extend(sent);
            }
            table.wanted.remove(one);
        }
        drop(table);
        self.notify_handlers(LeaseNotice::Lost, given_up)
    }

    /// Gives up leases that were not renewed in time, and leases of attempts that did not end in time. Returns them, and
    /// when to call this again.
    pub(crate) fn give_up_failed(&self) -> (GivenUp, Instant) {
        let at_present = now();
        // Leases that are added later cannot fail before this.
        let mut next = at_present + self.trust.min(self.timeout.saturating_add(HANDLER_STOP_GRACE));
        let (mut given_up, mut leases) = (GivenUp::default(), Vec::new());
        lock(&self.table).held.retain(|held, lease| {
            let Some((at, fault)) = lease.fails_at() else { return true };
            if at > at_present {
                next = next.min(at);
                return true;
            }
            match fault {
                LeaseLossReason::NotExtended => given_up.not_extended += 1,
                LeaseLossReason::Overdue => given_up.overdue.push(held.clone()),
            }
            leases.push(lease.clone());
            false
        });
        self.notify_handlers(LeaseNotice::Lost, leases);
        (given_up, next)
    }

    /// Waits until no lease is left.
    pub(crate) async fn wait_until_empty(&self) {
        wait_until(&self.table, &self.changed, |table| table.held.is_empty()).await;
    }

    /// Waits until every attempt has ended.
    pub(crate) async fn wait_until_all_ended(&self) {
        let ended = |table: &Table| table.held.values().all(|lease| lease.phase() == Phase::Ended);
        wait_until(&self.table, &self.changed, ended).await;
    }

    /// Sends a notice to the handlers of removed leases, and wakes waiting tasks. Returns the number of leases.
    fn notify_handlers(
        &self,
        notice: LeaseNotice,
        removed: impl IntoIterator<Item = Arc<LeaseState>>,
    ) -> usize {
        let count = removed.into_iter().inspect(|lease| lease.send_notice(notice)).count();
        self.changed.notify_waiters();
        count
    }
}

#[cfg(test)]
mod renewal_tests;

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::id::Token;

    const TRUST: Duration = Duration::from_secs(1);
    const TIMEOUT: Duration = Duration::from_secs(10);

    fn leases() -> Arc<Leases> {
        Arc::new(Leases::new(TRUST, TIMEOUT))
    }

    fn held(key: &'static str) -> LeaseRef {
        LeaseRef { key: Bytes::from_static(key.as_bytes()), token: Token([1; 8]) }
    }

    fn lease(leases: &Arc<Leases>, key: &'static str) -> Lease {
        leases.add([held(key)], now()).remove(0)
    }

    fn running(leases: &Arc<Leases>, key: &'static str) -> Lease {
        let lease = lease(leases, key);
        lease.state.enter(Phase::Running, Some(TIMEOUT));
        lease
    }

    fn renew(leases: &Leases, key: &'static str) {
        assert_eq!(leases.apply_renewal(&[held(key)], &[], now()), 0);
    }

    #[tokio::test]
    async fn a_lost_lease_sends_a_notice_to_its_handler() {
        let leases = leases();
        let lease = lease(&leases, "a");
        assert!(lease.state.is_ours());
        assert!(leases.lose(&held("a")));
        assert!(!leases.lose(&held("a")));
        assert!(!lease.state.is_ours());
        lease.state.wait_for_notice(LeaseNotice::Lost).await;
        lease.state.wait_for_notice(LeaseNotice::Lost).await;
    }

    #[tokio::test]
    async fn with_its_owner_ends_a_lease_and_nobody_renews_it() {
        let leases = leases();
        let lease = lease(&leases, "a");
        let state = lease.state.clone();
        assert_eq!(leases.to_renew(now() + TRUST), [held("a")]);
        drop(lease);
        assert!(!state.is_ours());
        assert_eq!(leases.to_renew(now() + TRUST), []);
        leases.wait_until_empty().await;
    }

    #[test]
    fn a_claim_after_all_leases_were_abandoned_is_not_held() {
        let leases = leases();
        let before = lease(&leases, "before");
        leases.abandon();
        let after = lease(&leases, "after");
        assert!(!before.is_held() && !after.is_held());
        assert!(after.state.has_notice(LeaseNotice::Gone), "it must not start");
        assert_eq!(leases.to_renew(now() + TRUST), []);
    }

    #[test]
    fn a_fence_that_overtakes_the_claim_still_holds() {
        let leases = leases();
        (0..1000).for_each(|_| leases.fence(held("others")));
        leases.fence(held("a"));
        assert!(!lease(&leases, "a").is_held());
        assert!(lease(&leases, "b").is_held());
    }

    #[test]
    fn the_oldest_fence_is_forgotten() {
        let leases = leases();
        let numbered =
            |number: usize| LeaseRef { key: Bytes::from(number.to_string()), token: Token([1; 8]) };
        (0..MAX_FENCES + 10).for_each(|number| leases.fence(numbered(number)));
        let fenced = &lock(&leases.table).fenced;
        assert_eq!(fenced.len(), MAX_FENCES);
        assert!(fenced.contains(&numbered(10)) && !fenced.contains(&numbered(9)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_confirmation_waits_for_the_next_renewal_that_is_sent() {
        let leases = leases();
        for (key, ours) in [("extended", true), ("lost", false)] {
            let lease = lease(&leases, key);
            tokio::time::advance(TRUST * 2).await;
            let before = now();
            tokio::time::advance(TRUST).await;
            let known = lease.confirm();
            tokio::pin!(known);
            assert!(futures::poll!(known.as_mut()).is_pending());
            assert_eq!(leases.to_renew(before.checked_sub(TRUST * 9).unwrap()), [held(key)], "immediately");
            leases.wait_until_renewal_wanted().await;
            // A renewal that was sent before the question is no answer.
            leases.apply_renewal(&[held(key)], &[], before);
            assert!(futures::poll!(known.as_mut()).is_pending());
            let lost = held(key);
            let lost: &[&LeaseRef] = if ours { &[] } else { &[&lost] };
            leases.apply_renewal(&[held(key)], lost, now());
            assert_eq!(known.await, ours);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn trust_ends_by_itself_unless_extended() {
        let leases = leases();
        let (lost, kept) = (running(&leases, "lost"), running(&leases, "kept"));
        let waiting = lease(&leases, "waiting");
        tokio::time::advance(TRUST / 2).await;
        renew(&leases, "kept");
        let (given_up, next) = leases.give_up_failed();
        assert_eq!((given_up, next), (GivenUp::default(), now() + TRUST / 2));
        tokio::time::advance(TRUST / 2).await;
        assert!(!lost.state.is_ours() && kept.state.is_ours(), "the lease state expires before the notice");
        let (given_up, next) = leases.give_up_failed();
        assert_eq!(given_up, GivenUp { not_extended: 1, overdue: Vec::new() });
        assert_eq!(next, now() + TRUST / 2);
        assert!(lost.state.has_notice(LeaseNotice::Lost) && !kept.state.has_notice(LeaseNotice::Lost));
        assert!(
            waiting.is_held() && !waiting.state.is_ours(),
            "a waiting attempt asks the server before it starts"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn an_attempt_that_does_not_end_loses_its_lease() {
        let leases = leases();
        let (blocked, waiting, ended) =
            (running(&leases, "blocked"), lease(&leases, "waiting"), running(&leases, "ended"));
        ended.mark_ended();
        let renew_all = || ["blocked", "waiting", "ended"].into_iter().for_each(|key| renew(&leases, key));
        for _ in 0..10 {
            tokio::time::advance(TRUST).await;
            renew_all();
            assert_eq!(leases.give_up_failed().0, GivenUp::default());
        }
        tokio::time::advance(HANDLER_STOP_GRACE).await;
        renew_all();
        assert_eq!(leases.give_up_failed().0.overdue, [held("blocked")]);
        assert!(!blocked.is_held() && waiting.is_held() && ended.is_held());
    }
}
