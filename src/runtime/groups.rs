//! The group of timers in quarantine that run together in a listener.
//!
//! If a listener crashes, each timer that it ran loses a lease, and one of them may be the cause. Timers that have lost
//! two leases therefore run in groups of limited size. The limit is lower after each further lost lease, until a timer
//! runs alone.
//! `tests/protocol/src/simulation/groups.rs` compares schemes.
//!
//! A new listener waits before it runs timers in quarantine, as an ordinary timer that brought down its predecessor may
//! return first. Timers in quarantine that ran next to it would lose further leases, and finally become dead letters.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::lock::{lock, wait_until};
use crate::wire::{QUARANTINE_AT, QuarantineGroup};

/// How long a listener must have run before it runs timers that have lost two, three, and four leases.
const QUARANTINE_START_DELAYS: [Duration; 3] =
    [Duration::from_secs(2), Duration::from_secs(2), Duration::from_secs(10)];

/// Limits which timers in quarantine run at the same time in a listener, over all partitions.
#[derive(Debug)]
pub(crate) struct QuarantineGroups {
    /// By level: the maximum size of a group with a timer of this level.
    sizes: [usize; 3],
    started: Instant,
    state: Mutex<State>,
    /// Notified when a member leaves.
    departure: Notify,
    /// A slot in addition to those for ordinary work, so that a busy listener can run one timer in quarantine.
    spare: Arc<Semaphore>,
    /// Held by the claimer that claims from the quarantine. The claimer keeps it while its due timer does not fit into the
    /// group, so that no other claimer fills the group first.
    turn: Arc<Semaphore>,
}

#[derive(Debug, Default)]
struct State {
    /// By level: the number of members.
    members: [usize; 3],
    /// The number of members that have left so far.
    departed: u64,
}

/// Returns the level of a timer with this number of lost leases: 0 for two, 1 for three, and 2 for more.
fn level(lost: u8) -> usize {
    usize::from(lost.saturating_sub(QUARANTINE_AT)).min(2)
}

impl QuarantineGroups {
    /// Creates the limits of a listener with this number of slots. The maximum sizes are half of the slots, the square
    /// root of that, and one.
    pub(crate) fn new(slots: usize) -> Arc<Self> {
        let half = (slots / 2).max(1);
        Arc::new(Self {
            sizes: [half, half.isqrt(), 1],
            started: Instant::now(),
            state: Mutex::default(),
            departure: Notify::new(),
            spare: Arc::new(Semaphore::new(1)),
            turn: Arc::new(Semaphore::new(1)),
        })
    }

    /// Waits until no other claimer has the turn.
    pub(crate) async fn wait_for_turn(&self) -> Option<OwnedSemaphorePermit> {
        self.turn.clone().acquire_owned().await.ok()
    }

    pub(crate) fn take_spare_slot(&self) -> Option<OwnedSemaphorePermit> {
        self.spare.clone().try_acquire_owned().ok()
    }

    /// Returns how many more members fit into the group of the current ones.
    pub(crate) fn room(&self) -> usize {
        let members = lock(&self.state).members;
        let worst = members.iter().rposition(|count| *count > 0).unwrap_or_default();
        self.sizes[worst].saturating_sub(members.iter().sum())
    }

    /// Returns the current limits for a claim. A size is 0 until its start delay has ended.
    pub(crate) fn limits(&self) -> QuarantineGroup {
        let running = lock(&self.state).members.iter().sum();
        let mut sizes = self.sizes;
        for (size, delay) in sizes.iter_mut().zip(QUARANTINE_START_DELAYS) {
            *size *= usize::from(self.started.elapsed() >= delay);
        }
        QuarantineGroup { running, sizes }
    }

    /// Returns whether a later claim may take more: after members have left, or after a start delay.
    pub(crate) fn is_limited(&self) -> bool {
        lock(&self.state).members.iter().any(|count| *count > 0) || self.start_delay_ends().is_some()
    }

    /// Returns when the next start delay ends.
    fn start_delay_ends(&self) -> Option<Instant> {
        QUARANTINE_START_DELAYS
            .map(|delay| self.started + delay)
            .into_iter()
            .find(|end| *end > Instant::now())
    }

    /// Returns how many members have left so far.
    pub(crate) fn departed(&self) -> u64 {
        lock(&self.state).departed
    }

    /// Waits until more timers may fit: more than `departed` members have left so far, or a start delay has ended.
    pub(crate) async fn wait_for_room(&self, departed: u64) {
        let departure = wait_until(&self.state, &self.departure, |state| state.departed > departed);
        match self.start_delay_ends() {
            Some(end) => drop(tokio::time::timeout_at(end, departure).await),
            None => departure.await,
        }
    }

    /// Adds a member: a timer with this number of lost leases.
    pub(crate) fn join(self: &Arc<Self>, lost: u8) -> QuarantineMember {
        lock(&self.state).members[level(lost)] += 1;
        QuarantineMember { groups: self.clone(), level: level(lost) }
    }
}

/// The membership of a timer in the group, which ends when this is dropped.
#[derive(Debug)]
pub(crate) struct QuarantineMember {
    groups: Arc<QuarantineGroups>,
    level: usize,
}

impl Drop for QuarantineMember {
    fn drop(&mut self) {
        let mut state = lock(&self.groups.state);
        state.members[self.level] -= 1;
        state.departed += 1;
        drop(state);
        self.groups.departure.notify_waiters();
    }
}
