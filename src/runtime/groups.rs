//! Who of the quarantine runs beside whom in a listener.
//!
//! Whatever takes a listener down is among what it ran. So timers that have lost two leases run in groups, which are
//! smaller after each further lost lease, and the last is run alone; `tests/protocol/src/simulation/groups.rs` compares
//! schemes. A listener that has just been started waits before it takes any: whatever took its predecessor down may come
//! back with the ordinary timers, and would take along, and in the end bury, those that have nothing to do with it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::lock::{lock, wait_until};
use crate::wire::{QUARANTINE_AT, QuarantineGroup};

/// How long a listener has to have lived before it runs those that have lost two leases, three, and four.
const QUARANTINE_START_DELAYS: [Duration; 3] =
    [Duration::from_secs(2), Duration::from_secs(2), Duration::from_secs(10)];

/// The members of a listener's group, over all partitions.
#[derive(Debug)]
pub(crate) struct Groups {
    sizes: [usize; 3],
    started: Instant,
    state: Mutex<State>,
    left: Notify,
    /// A place beside those of ordinary work, so that a full listener runs one of the quarantine all the same.
    spare: Arc<Semaphore>,
    /// Held by whoever claims, and while what is due waits for a smaller group: no others go first.
    turn: Arc<Semaphore>,
}

#[derive(Debug, Default)]
struct State {
    /// How many there are, by lost leases.
    members: [usize; 3],
    /// How many have left so far.
    left: u64,
}

/// Which size holds for a timer that has lost so many leases.
fn level(lost: u8) -> usize {
    usize::from(lost.saturating_sub(QUARANTINE_AT)).min(2)
}

impl Groups {
    /// Of a listener that runs so many attempts at a time: half of them, the root of that, one.
    pub(crate) fn new(places: usize) -> Arc<Self> {
        let half = (places / 2).max(1);
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

    /// How many more the members of now let in.
    pub(crate) fn room(&self) -> usize {
        let members = lock(&self.state).members;
        let worst = members.iter().rposition(|count| *count > 0).unwrap_or_default();
        self.sizes[worst].saturating_sub(members.iter().sum())
    }

    /// What a claim is to keep to.
    pub(crate) fn group(&self) -> QuarantineGroup {
        let running = lock(&self.state).members.iter().sum();
        let mut sizes = self.sizes;
        for (size, calm) in sizes.iter_mut().zip(QUARANTINE_START_DELAYS) {
            *size *= usize::from(self.started.elapsed() >= calm);
        }
        QuarantineGroup { running, sizes }
    }

    /// Whether somebody may not fit in who does later: beside nobody, or once it is calm.
    pub(crate) fn is_limited(&self) -> bool {
        lock(&self.state).members.iter().any(|count| *count > 0) || self.calm_from().is_some()
    }

    /// When it is next calm for long enough.
    fn calm_from(&self) -> Option<Instant> {
        QUARANTINE_START_DELAYS
            .map(|calm| self.started + calm)
            .into_iter()
            .find(|calm| *calm > Instant::now())
    }

    /// How many have left so far.
    pub(crate) fn left(&self) -> u64 {
        lock(&self.state).left
    }

    /// Returns once there may be room for what did not fit: more have left than these, or it is calm for longer.
    pub(crate) async fn more_room(&self, left: u64) {
        let left = wait_until(&self.state, &self.left, |state| state.left > left);
        match self.calm_from() {
            Some(calm) => drop(tokio::time::timeout_at(calm, left).await),
            None => left.await,
        }
    }

    /// Takes a timer in that has lost so many leases.
    pub(crate) fn join(self: &Arc<Self>, lost: u8) -> QuarantineMember {
        lock(&self.state).members[level(lost)] += 1;
        QuarantineMember { groups: self.clone(), level: level(lost) }
    }
}

/// A member of the group, until it is dropped.
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
