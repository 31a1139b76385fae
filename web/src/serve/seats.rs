//! Who has a connection. When all places are taken, whoever has asked for nothing for longest gives way.
//!
//! So a crowd that connects and says nothing, or says it slowly, keeps nobody out: a newcomer has until as many others have
//! come after it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// All places.
#[derive(Clone)]
pub(super) struct Seats {
    free: Arc<Semaphore>,
    idle: Arc<Idle>,
}

/// The connections that have no request under way, since when by a count.
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
    since: BTreeMap<u64, Arc<Notify>>,
}

/// One connection's place.
pub(super) struct Seat {
    _free: OwnedSemaphorePermit,
    idle: Arc<Idle>,
    gives_way: Arc<Notify>,
    standing: Arc<Mutex<Standing>>,
}

/// A connection's requests that are under way, of which there is one at a time; and its place among the idle.
#[derive(Default)]
struct Standing {
    busy: u32,
    idle: Option<u64>,
    has_left: bool,
}

/// While it lives, its connection is not idle.
pub(super) struct Busy {
    idle: Arc<Idle>,
    gives_way: Arc<Notify>,
    standing: Arc<Mutex<Standing>>,
}

impl Seats {
    pub(super) fn new(connections: usize) -> Self {
        Self { free: Arc::new(Semaphore::new(connections)), idle: Arc::default() }
    }

    /// A place for a newcomer: a free one, or the one of the longest idle. While all are busy it waits.
    pub(super) async fn take(&self) -> Seat {
        let free = loop {
            // Before the look, so that nobody who becomes idle meanwhile is missed.
            let news = self.idle.news.notified();
            if let Ok(free) = Arc::clone(&self.free).try_acquire_owned() {
                break free;
            }
            self.idle.send_away();
            tokio::select! {
                free = Arc::clone(&self.free).acquire_owned() => break free.expect("nobody closes it"),
                () = news => {}
            }
        };
        let seat = Seat {
            _free: free,
            idle: Arc::clone(&self.idle),
            gives_way: Arc::default(),
            standing: Arc::default(),
        };
        seat.idle.sit(&mut lock(&seat.standing), &seat.gives_way);
        seat
    }
}

impl Idle {
    fn all(&self) -> MutexGuard<'_, Waiting> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the longest idle to go.
    fn send_away(&self) {
        let longest = self.all().since.pop_first();
        longest.into_iter().for_each(|(_, gives_way)| gives_way.notify_one());
    }

    fn sit(&self, standing: &mut Standing, gives_way: &Arc<Notify>) {
        let mut all = self.all();
        let place = all.next;
        all.next += 1;
        all.since.insert(place, Arc::clone(gives_way));
        standing.idle = Some(place);
        self.news.notify_waiters();
    }

    fn stand_up(&self, standing: &mut Standing) {
        if let Some(place) = standing.idle.take() {
            self.all().since.remove(&place);
        }
    }
}

impl Seat {
    /// Completes when the place is wanted by somebody else, while nothing is under way.
    pub(super) async fn is_wanted(&self) {
        loop {
            self.gives_way.notified().await;
            // A request may have come in the same moment.
            if lock(&self.standing).busy == 0 {
                return;
            }
        }
    }

    /// A request is under way for as long as what this returns lives.
    pub(super) fn busy(&self) -> impl Fn() -> Busy + Clone + Send + use<> {
        let (idle, gives_way) = (Arc::clone(&self.idle), Arc::clone(&self.gives_way));
        let standing = Arc::clone(&self.standing);
        move || {
            let mut now = lock(&standing);
            now.busy += 1;
            idle.stand_up(&mut now);
            drop(now);
            Busy { idle: idle.clone(), gives_way: gives_way.clone(), standing: standing.clone() }
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut standing = lock(&self.standing);
        standing.has_left = true;
        self.idle.stand_up(&mut standing);
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let mut standing = lock(&self.standing);
        standing.busy -= 1;
        if standing.busy == 0 && !standing.has_left {
            self.idle.sit(&mut standing, &self.gives_way);
        }
    }
}

fn lock(standing: &Mutex<Standing>) -> MutexGuard<'_, Standing> {
    standing.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn the_longest_idle_gives_way_and_the_busy_stay() {
        let seats = Seats::new(3);
        let (busy, first, second) = (seats.take().await, seats.take().await, seats.take().await);
        let request = busy.busy()();
        // One who has asked for something since has been idle for less long.
        drop(first.busy()());
        let newcomer = tokio::spawn({
            let seats = seats.clone();
            async move { seats.take().await }
        });
        second.is_wanted().await;
        assert!(first.is_wanted().now_or_never().is_none() && busy.is_wanted().now_or_never().is_none());
        drop(second);
        let newcomer = newcomer.await.unwrap();
        let (_, _) = (first.busy()(), newcomer.busy()());
        drop(request);
    }

    #[tokio::test]
    async fn while_all_are_busy_a_newcomer_waits_for_the_first_who_is_idle() {
        let seats = Seats::new(1);
        let seat = seats.take().await;
        let request = seat.busy()();
        let mut newcomer = Box::pin(seats.take());
        assert!(newcomer.as_mut().now_or_never().is_none());
        drop(request);
        assert!(newcomer.as_mut().now_or_never().is_none());
        seat.is_wanted().await;
        drop(seat);
        newcomer.await;
    }
}
