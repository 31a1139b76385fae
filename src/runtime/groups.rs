//! Groups of timers in quarantine, which run together in a listener.
//!
//! A timer that brings down a listener is one of those that it ran. Timers that have lost two leases therefore run in
//! groups. A group is smaller after each further lost lease, until a timer runs alone.
//! `tests/protocol/src/simulation/groups.rs` compares schemes.
//!
//! A new listener waits before it runs timers in quarantine. An ordinary timer that brought down its predecessor may
//! return first. It would take unrelated timers in quarantine with it, which would finally become dead letters.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::lock::{lock, wait_until};
use crate::wire::{QUARANTINE_AT, QuarantineGroup};

/// How long a listener must have run before it runs timers that have lost two, three, and four leases.
const QUARANTINE_START_DELAYS: [Duration; 3] =
    [Duration::from_secs(2), Duration::from_secs(2), Duration::from_secs(10)];

/// The group of timers in quarantine that run in a listener, over all partitions.
#[derive(Debug)]
pub(crate) struct Groups {
    sizes: [usize; 3],
    started: Instant,
    state: Mutex<State>,
    left: Notify,
    /// A slot in addition to those for ordinary work, so that a busy listener can run one timer in quarantine.
    spare: Arc<Semaphore>,
    /// Held by the claimer that claims, and while a due timer waits for a smaller group, so that no other claimer
    /// goes first.
    turn: Arc<Semaphore>,
}

#[derive(Debug, Default)]
struct State {
    /// The number of members by level.
    members: [usize; 3],
    /// The number of members that have left so far.
    left: u64,
}

/// Returns the index in `sizes` for a timer with this number of lost leases.
fn level(lost: u8) -> usize {
    usize::from(lost.saturating_sub(QUARANTINE_AT)).min(2)
}

impl Groups {
    /// Creates the groups of a listener with this number of slots. The sizes are half of the slots, the square root
    /// of that, and one.
    pub(crate) fn new(slots: usize) -> Arc<Self> {
        let half = (slots / 2).max(1);
        Arc::new(Self {
            sizes: [half, half.isqrt(), 1],
            started: Instant::now(),
            state: Mutex::default(),
            left: Notify::new(),
            spare: Arc::new(Semaphore::new(1)),
            turn: Arc::new(Semaphore::new(1)),
        })
    }

    pub(crate) async fn turn(&self) -> Option<OwnedSemaphorePermit> {
        self.turn.clone().acquire_owned().await.ok()
    }

    pub(crate) fn spare(&self) -> Option<OwnedSemaphorePermit> {
        self.spare.clone().try_acquire_owned().ok()
    }

    /// Returns how many more members the current ones admit.
    pub(crate) fn room(&self) -> usize {
        let members = lock(&self.state).members;
        let worst = members.iter().rposition(|count| *count > 0).unwrap_or_default();
        self.sizes[worst].saturating_sub(members.iter().sum())
    }

    /// Returns the limits for a claim.
    pub(crate) fn group(&self) -> QuarantineGroup {
        let running = lock(&self.state).members.iter().sum();
        let mut sizes = self.sizes;
        for (size, delay) in sizes.iter_mut().zip(QUARANTINE_START_DELAYS) {
            *size *= usize::from(self.started.elapsed() >= delay);
        }
        QuarantineGroup { running, sizes }
    }

    /// Returns whether the limits may be higher later: without the current members, or after a start delay.
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
    pub(crate) fn left(&self) -> u64 {
        lock(&self.state).left
    }

    /// Waits until more timers may fit: more members have left than `left`, or a start delay has ended.
    pub(crate) async fn more_room(&self, left: u64) {
        let left = wait_until(&self.state, &self.left, |state| state.left > left);
        match self.start_delay_ends() {
            Some(end) => drop(tokio::time::timeout_at(end, left).await),
            None => left.await,
        }
    }

    /// Adds a timer with this number of lost leases.
    pub(crate) fn join(self: &Arc<Self>, lost: u8) -> QuarantineMember {
        lock(&self.state).members[level(lost)] += 1;
        QuarantineMember { groups: self.clone(), level: level(lost) }
    }
}

/// The membership of a timer, which ends when this is dropped.
#[derive(Debug)]
pub(crate) struct QuarantineMember {
    groups: Arc<Groups>,
    level: usize,
}

impl Drop for QuarantineMember {
    fn drop(&mut self) {
        let mut state = lock(&self.groups.state);
        state.members[self.level] -= 1;
        state.left += 1;
        drop(state);
        self.groups.left.notify_waiters();
    }
}
