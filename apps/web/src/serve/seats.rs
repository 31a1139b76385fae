//! The places of connections. When all are taken, the client that has been waited for longest gives way.
//!
//! A client is waited for until it has said all that it wants, and once it has its answer. So a crowd that says nothing, or
//! says it slowly, keeps nobody out: a newcomer has until as many others have come after it. Some places more are kept for
//! probes: a client that has one of these and wants something else changes it for one of the others first.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// Places that are kept for probes.
const KEPT: usize = 16;

/// All places.
#[derive(Clone)]
pub(super) struct Seats {
    free: Arc<Semaphore>,
    kept: Arc<Semaphore>,
    idle: Arc<Idle>,
}

/// The connections whose clients are waited for, since when by a count.
#[derive(Default)]
struct Idle {
    all: Mutex<Waiting>,
    /// One more is idle.
    news: Notify,
}

#[derive(Default)]
struct Waiting {
    next: u64,
    /// By when they became idle, the longest first.
    since: BTreeMap<u64, Waiter>,
}

/// The way to have an idle one go.
struct Waiter {
    gives_way: Arc<Notify>,
    is_kept: bool,
}

/// One connection's place. Clones are one.
#[derive(Clone)]
pub(crate) struct Seat(Arc<Place>);

struct Place {
    seats: Seats,
    gives_way: Arc<Notify>,
    standing: Mutex<Standing>,
}

/// The state of a connection, and its place among the idle.
struct Standing {
    permit: OwnedSemaphorePermit,
    is_kept: bool,
    /// Requests that are under way, of which there is one at a time.
    busy: u32,
    /// The one that is has to wait.
    waits: bool,
    idle: Option<u64>,
}

/// While it lives, a request of this connection is under way.
pub(super) struct Busy(Seat);

/// While it lives, a request of this connection has to wait.
pub(crate) struct Waits(Seat);

impl Seats {
    pub(super) fn new(connections: usize) -> Self {
        let places = |count| Arc::new(Semaphore::new(count));
        Self { free: places(connections), kept: places(KEPT), idle: Arc::default() }
    }

    /// A place for a newcomer: a free one, or one that is kept, or the one of the longest idle. While all are busy it waits.
    pub(super) async fn take(&self) -> Seat {
        loop {
            // Before the look, so that nobody who becomes idle meanwhile is missed.
            let news = self.idle.news.notified();
            if let Some(permit) = at_once(&self.free) {
                return self.sit(permit, false);
            }
            if let Some(permit) = at_once(&self.kept) {
                return self.sit(permit, true);
            }
            self.idle.send_away(|_| true);
            tokio::select! {
                permit = acquire(&self.kept) => return self.sit(permit, true),
                permit = acquire(&self.free) => return self.sit(permit, false),
                () = news => {}
            }
        }
    }

    /// A place that is not kept for probes.
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

    fn sit(&self, permit: OwnedSemaphorePermit, is_kept: bool) -> Seat {
        let standing = Standing { permit, is_kept, busy: 0, waits: false, idle: None };
        let seat = Seat(Arc::new(Place {
            seats: self.clone(),
            gives_way: Arc::default(),
            standing: Mutex::new(standing),
        }));
        seat.change(|_| {});
        seat
    }
}

impl Idle {
    fn all(&self) -> MutexGuard<'_, Waiting> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the longest idle of these go.
    fn send_away(&self, of: impl Fn(&Waiter) -> bool) {
        let mut all = self.all();
        let longest = all.since.iter().find(|(_, waiter)| of(waiter)).map(|(place, _)| *place);
        let longest = longest.and_then(|place| all.since.remove(&place));
        longest.into_iter().for_each(|waiter| waiter.gives_way.notify_one());
    }

    fn sit(&self, waiter: Waiter) -> u64 {
        let mut all = self.all();
        let place = all.next;
        all.next += 1;
        all.since.insert(place, waiter);
        self.news.notify_waiters();
        place
    }

    fn stand_up(&self, place: u64) {
        self.all().since.remove(&place);
    }
}

impl Standing {
    fn is_idle(&self) -> bool {
        self.busy == 0 || self.waits
    }
}

impl Seat {
    /// Completes when the place is wanted by somebody else, while the client is waited for.
    pub(super) async fn is_wanted(&self) {
        loop {
            self.0.gives_way.notified().await;
            // A request may have come in the same moment.
            if self.0.standing().is_idle() {
                return;
            }
        }
    }

    /// A request is under way, and not waited for, for as long as what this returns lives.
    pub(super) fn busy(&self) -> Busy {
        self.change(|standing| standing.busy += 1);
        Busy(self.clone())
    }

    /// The client has to wait although its request is under way, for as long as what this returns lives.
    pub(crate) fn waiting(&self) -> Waits {
        self.change(|standing| standing.waits = true);
        Waits(self.clone())
    }

    /// Changes a place that is kept for probes for one that is not. Meanwhile it is idle.
    pub(super) async fn is_no_probe(&self) {
        if self.0.standing().is_kept {
            let permit = self.0.seats.take_free().await;
            // It counts from now on as idle.
            self.change(|standing| standing.busy += 1);
            self.change(|standing| {
                (standing.permit, standing.is_kept) = (permit, false);
                standing.busy -= 1;
            });
        }
    }

    fn change(&self, change: impl FnOnce(&mut Standing)) {
        let Place { seats, gives_way, .. } = &*self.0;
        let mut standing = self.0.standing();
        change(&mut standing);
        match (standing.is_idle(), standing.idle) {
            (true, None) => {
                let waiter = Waiter { gives_way: Arc::clone(gives_way), is_kept: standing.is_kept };
                standing.idle = Some(seats.idle.sit(waiter));
            }
            (false, Some(place)) => {
                seats.idle.stand_up(place);
                standing.idle = None;
            }
            _ => {}
        }
    }
}

impl Place {
    fn standing(&self) -> MutexGuard<'_, Standing> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let idle = self.standing().idle.take();
        idle.into_iter().for_each(|place| self.seats.idle.stand_up(place));
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        self.0.change(|standing| standing.waits = false);
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.change(|standing| standing.busy -= 1);
    }
}

fn at_once(places: &Arc<Semaphore>) -> Option<OwnedSemaphorePermit> {
    Arc::clone(places).try_acquire_owned().ok()
}

async fn acquire(places: &Arc<Semaphore>) -> OwnedSemaphorePermit {
    Arc::clone(places).acquire_owned().await.expect("nobody closes it")
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    /// All places that are kept, by connections that say nothing.
    async fn silent(seats: &Seats) -> Vec<Seat> {
        let mut all = Vec::new();
        while all.len() < KEPT {
            all.push(seats.take().await);
        }
        all
    }

    #[tokio::test]
    async fn the_longest_idle_gives_way_and_the_busy_stay() {
        let seats = Seats::new(3);
        let (busy, first, second) = (seats.take().await, seats.take().await, seats.take().await);
        let request = busy.busy();
        // One who has asked for something since has been idle for less long.
        drop(first.busy());
        let newcomer = seats.take().await;
        let mut place = Box::pin(newcomer.is_no_probe());
        assert!(place.as_mut().now_or_never().is_none());
        second.is_wanted().await;
        assert!(first.is_wanted().now_or_never().is_none() && busy.is_wanted().now_or_never().is_none());
        drop(second);
        place.await;
        drop(request);
    }

    #[tokio::test]
    async fn one_that_has_to_wait_gives_way_though_its_request_is_under_way() {
        let seats = Seats::new(1);
        let seat = seats.take().await;
        let _request = seat.busy();
        let silent = silent(&seats).await;
        let _waits = seat.waiting();
        let mut newcomer = Box::pin(seats.take());
        assert!(newcomer.as_mut().now_or_never().is_none());
        assert!(silent[0].is_wanted().now_or_never().is_some(), "it has been idle for longer");
        drop(silent);
        _ = newcomer.await;
        seat.0.seats.idle.send_away(|_| true);
        assert!(seat.is_wanted().now_or_never().is_some());
    }

    #[tokio::test]
    async fn while_all_are_busy_probes_find_places_and_the_rest_waits() {
        let seats = Seats::new(1);
        let seat = seats.take().await;
        let request = seat.busy();
        let mut crowd = silent(&seats).await;
        // One that wants something else does not take the place of one that is kept, nor gives up its own.
        let asks = crowd.pop().unwrap();
        let mut place = Box::pin(asks.is_no_probe());
        assert!(place.as_mut().now_or_never().is_none());
        assert!(crowd.iter().all(|one| one.is_wanted().now_or_never().is_none()));
        assert!(asks.is_wanted().now_or_never().is_none());
        let mut probe = Box::pin(seats.take());
        assert!(probe.as_mut().now_or_never().is_none());
        crowd[0].is_wanted().await;
        drop(crowd.remove(0));
        probe.await;
        drop((request, seat));
        place.await;
    }
}
