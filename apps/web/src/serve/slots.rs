//! Bounds the number of connections. When all slots are taken, a new connection replaces the longest idle one.
//!
//! A connection is idle until its request has arrived completely, and again after the answer. A crowd of silent or slow
//! clients therefore keeps nobody out: a new connection stays until as many others have followed it.
//!
//! Some more slots are reserved for probes. A client in a reserved slot that requests anything else first moves to a
//! general slot.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// Slots that are reserved for probes.
const KEPT: usize = 16;

/// The slots of all connections.
#[derive(Clone)]
pub(super) struct ConnectionSlots {
    free: Arc<Semaphore>,
    kept: Arc<Semaphore>,
    idle: Arc<Idle>,
}

/// The idle connections, in the order in which they became idle.
#[derive(Default)]
struct Idle {
    all: Mutex<IdleQueue>,
    /// Notifies when a connection becomes idle.
    news: Notify,
}

#[derive(Default)]
struct IdleQueue {
    next: u64,
    /// By a counter, so that the longest idle one is the first.
    since: BTreeMap<u64, Waiter>,
}

/// Evicts an idle connection.
struct Waiter {
    gives_way: Arc<Notify>,
    is_kept: bool,
}

/// The slot of one connection, which clones share.
#[derive(Clone)]
pub(crate) struct ConnectionSlot(Arc<SlotShared>);

struct SlotShared {
    slots: ConnectionSlots,
    gives_way: Arc<Notify>,
    state: Mutex<SlotState>,
}

/// The state of a connection, and its position among the idle ones.
struct SlotState {
    permit: OwnedSemaphorePermit,
    is_kept: bool,
    /// Requests in progress, of which a connection has one at a time.
    busy: u32,
    /// The request in progress waits on purpose, after a wrong token.
    waits: bool,
    idle: Option<u64>,
}

/// Marks a request of the connection as in progress, while it lives.
pub(super) struct ActiveRequestGuard(ConnectionSlot);

/// Marks the request in progress as waiting, while it lives.
pub(crate) struct WaitingRequestGuard(ConnectionSlot);

impl ConnectionSlots {
    pub(super) fn new(connections: usize) -> Self {
        let places = |count| Arc::new(Semaphore::new(count));
        Self { free: places(connections), kept: places(KEPT), idle: Arc::default() }
    }

    /// Takes a slot for a new connection: a free one, else a reserved one, else that of the longest idle connection. Waits
    /// while all connections are busy.
    pub(super) async fn take(&self) -> ConnectionSlot {
        loop {
            // Registered before the checks, so that no connection that becomes idle during them is missed.
            let news = self.idle.news.notified();
            if let Some(permit) = at_once(&self.free) {
                return self.occupy(permit, false);
            }
            if let Some(permit) = at_once(&self.kept) {
                return self.occupy(permit, true);
            }
            self.idle.send_away(|_| true);
            tokio::select! {
                permit = acquire(&self.kept) => return self.occupy(permit, true),
                permit = acquire(&self.free) => return self.occupy(permit, false),
                () = news => {}
            }
        }
    }

    /// Takes a slot that is not reserved for probes.
    async fn take_free(&self) -> OwnedSemaphorePermit {
        loop {
            let news = self.idle.news.notified();
            if let Some(permit) = at_once(&self.free) {
                return permit;
            }
            self.idle.send_away(|waiter| !waiter.is_kept);
            tokio::select! {
                permit = acquire(&self.free) => return permit,
                () = news => {}
            }
        }
    }

    fn occupy(&self, permit: OwnedSemaphorePermit, is_kept: bool) -> ConnectionSlot {
        let state = SlotState { permit, is_kept, busy: 0, waits: false, idle: None };
        let slot = ConnectionSlot(Arc::new(SlotShared {
            slots: self.clone(),
            gives_way: Arc::default(),
            state: Mutex::new(state),
        }));
        slot.change(|_| {});
        slot
    }
}

impl Idle {
    fn all(&self) -> MutexGuard<'_, IdleQueue> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Evicts the longest idle connection that matches.
    fn send_away(&self, of: impl Fn(&Waiter) -> bool) {
        let mut all = self.all();
        let longest = all.since.iter().find(|(_, waiter)| of(waiter)).map(|(place, _)| *place);
        let longest = longest.and_then(|place| all.since.remove(&place));
        longest.into_iter().for_each(|waiter| waiter.gives_way.notify_one());
    }

    fn push(&self, waiter: Waiter) -> u64 {
        let mut all = self.all();
        let place = all.next;
        all.next += 1;
        all.since.insert(place, waiter);
        self.news.notify_waiters();
        place
    }

    fn remove(&self, place: u64) {
        self.all().since.remove(&place);
    }
}

impl SlotState {
    fn is_idle(&self) -> bool {
        self.busy == 0 || self.waits
    }
}

impl ConnectionSlot {
    /// Completes when another connection needs the slot while this one is idle.
    pub(super) async fn wait_for_eviction(&self) {
        loop {
            self.0.gives_way.notified().await;
            // A request may have arrived at the same moment. The connection then stays.
            if self.0.state().is_idle() {
                return;
            }
        }
    }

    /// Marks a request as in progress, while the returned guard lives.
    pub(super) fn busy(&self) -> ActiveRequestGuard {
        self.change(|state| state.busy += 1);
        ActiveRequestGuard(self.clone())
    }

    /// Marks the request in progress as waiting, while the returned guard lives. The connection counts as idle.
    pub(crate) fn waiting(&self) -> WaitingRequestGuard {
        self.change(|state| state.waits = true);
        WaitingRequestGuard(self.clone())
    }

    /// Moves the connection from a reserved slot to a general one, and counts it as idle until it has one.
    pub(super) async fn leave_probe_slot(&self) {
        if self.0.state().is_kept {
            let permit = self.0.slots.take_free().await;
            // Leaves the idle connections and joins them again, so that it becomes the last one, with a general slot.
            self.change(|state| state.busy += 1);
            self.change(|state| {
                (state.permit, state.is_kept) = (permit, false);
                state.busy -= 1;
            });
        }
    }

    fn change(&self, change: impl FnOnce(&mut SlotState)) {
        let SlotShared { slots, gives_way, .. } = &*self.0;
        let mut state = self.0.state();
        change(&mut state);
        match (state.is_idle(), state.idle) {
            (true, None) => {
                let waiter = Waiter { gives_way: Arc::clone(gives_way), is_kept: state.is_kept };
                state.idle = Some(slots.idle.push(waiter));
            }
            (false, Some(place)) => {
                slots.idle.remove(place);
                state.idle = None;
            }
            _ => {}
        }
    }
}

impl SlotShared {
    fn state(&self) -> MutexGuard<'_, SlotState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for SlotShared {
    fn drop(&mut self) {
        let idle = self.state().idle.take();
        idle.into_iter().for_each(|place| self.slots.idle.remove(place));
    }
}

impl Drop for WaitingRequestGuard {
    fn drop(&mut self) {
        self.0.change(|state| state.waits = false);
    }
}

impl Drop for ActiveRequestGuard {
    fn drop(&mut self) {
        self.0.change(|state| state.busy -= 1);
    }
}

fn at_once(places: &Arc<Semaphore>) -> Option<OwnedSemaphorePermit> {
    Arc::clone(places).try_acquire_owned().ok()
}

async fn acquire(places: &Arc<Semaphore>) -> OwnedSemaphorePermit {
    Arc::clone(places).acquire_owned().await.expect("the semaphore is never closed")
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    /// Fills all reserved slots with connections that send nothing.
    async fn silent(slots: &ConnectionSlots) -> Vec<ConnectionSlot> {
        let mut all = Vec::new();
        while all.len() < KEPT {
            all.push(slots.take().await);
        }
        all
    }

    #[tokio::test]
    async fn the_longest_idle_gives_way_and_the_busy_stay() {
        let slots = ConnectionSlots::new(3);
        let (busy, first, second) = (slots.take().await, slots.take().await, slots.take().await);
        let request = busy.busy();
        // After a request the connection has been idle for less time.
        drop(first.busy());
        let newcomer = slots.take().await;
        let mut place = Box::pin(newcomer.leave_probe_slot());
        assert!(place.as_mut().now_or_never().is_none());
        second.wait_for_eviction().await;
        assert!(
            first.wait_for_eviction().now_or_never().is_none()
                && busy.wait_for_eviction().now_or_never().is_none()
        );
        drop(second);
        place.await;
        drop(request);
    }

    #[tokio::test]
    async fn one_that_has_to_wait_gives_way_though_its_request_is_under_way() {
        let slots = ConnectionSlots::new(1);
        let slot = slots.take().await;
        let _request = slot.busy();
        let silent = silent(&slots).await;
        let _waits = slot.waiting();
        let mut newcomer = Box::pin(slots.take());
        assert!(newcomer.as_mut().now_or_never().is_none());
        assert!(silent[0].wait_for_eviction().now_or_never().is_some(), "it has been idle for longer");
        drop(silent);
        _ = newcomer.await;
        slot.0.slots.idle.send_away(|_| true);
        assert!(slot.wait_for_eviction().now_or_never().is_some());
    }

    #[tokio::test]
    async fn while_all_are_busy_probes_find_places_and_the_rest_waits() {
        let slots = ConnectionSlots::new(1);
        let slot = slots.take().await;
        let request = slot.busy();
        let mut crowd = silent(&slots).await;
        // A client that moves to a general slot evicts no reserved one, and keeps its own until then.
        let asks = crowd.pop().unwrap();
        let mut place = Box::pin(asks.leave_probe_slot());
        assert!(place.as_mut().now_or_never().is_none());
        assert!(crowd.iter().all(|one| one.wait_for_eviction().now_or_never().is_none()));
        assert!(asks.wait_for_eviction().now_or_never().is_none());
        let mut probe = Box::pin(slots.take());
        assert!(probe.as_mut().now_or_never().is_none());
        crowd[0].wait_for_eviction().await;
        drop(crowd.remove(0));
        probe.await;
        drop((request, slot));
        place.await;
    }
}
