//! Shares the concurrency slots of a topic between its hosts. Hosts that answer late, or never, leave slots to the others.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

/// A host is quick while none of its running calls takes longer than this, and its last call did not.
const QUICK: Duration = Duration::from_secs(1);

/// The longest time between two retries at a host that is not known to be slow.
const SHORT: Duration = Duration::from_millis(10);

/// The running calls of a host.
#[derive(Debug)]
pub(super) struct HostCalls {
    /// When each of them began.
    began: BTreeMap<u64, Instant>,
    next: u64,
    /// The last call that ended was quick. `None` before the first call has ended.
    was_quick: Option<bool>,
    /// When a concurrency slot last became free.
    freed: Instant,
}

/// The number of running calls of a topic.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Load {
    all: usize,
    /// Calls to hosts that are not quick, or were never called before.
    doubtful: usize,
}

impl HostCalls {
    pub(super) fn new() -> Self {
        Self { began: BTreeMap::new(), next: 0, was_quick: None, freed: Instant::now() }
    }

    /// Counts the calls of all hosts of a topic.
    pub(super) fn load<'a>(all: impl Iterator<Item = &'a Self>, now: Instant) -> Load {
        all.fold(Load::default(), |load, calls| {
            let held = calls.held();
            let doubtful = if calls.is_quick(now) == Some(true) { 0 } else { held };
            Load { all: load.all + held, doubtful: load.doubtful + doubtful }
        })
    }

    pub(super) fn held(&self) -> usize {
        self.began.len()
    }

    /// Returns whether this host may have one more of the shared slots. Quick hosts may have all of them, slow hosts half.
    pub(super) fn may_have_more(&self, places: usize, load: Load, now: Instant) -> bool {
        let (held, half) = (self.held(), places.div_ceil(2));
        has_room(held, load.all, places)
            && match self.is_quick(now) {
                Some(true) => true,
                Some(false) => has_room(held, load.doubtful, half),
                // One call shows whether a new host is quick. Slow hosts leave a tenth of the slots to new ones.
                None => held == 0 && load.doubtful < half + (places / 10).max(1),
            }
    }

    /// Records the start of a call, and returns its number.
    pub(super) fn begin(&mut self, now: Instant) -> u64 {
        self.next += 1;
        self.began.insert(self.next, now);
        self.next
    }

    pub(super) fn end(&mut self, call: u64, now: Instant) {
        if let Some(began) = self.began.remove(&call) {
            self.was_quick = Some(now - began < QUICK);
            self.freed = now;
        }
    }

    /// Returns about how long it takes until the next slot of this host is free.
    pub(super) fn pace(&self, now: Instant) -> Duration {
        let pace = (now - self.freed) / u32::try_from(self.held().max(1)).unwrap_or(u32::MAX);
        // A new host has not had the time to free a slot, and an idle host had none to free.
        if self.is_quick(now) == Some(false) { pace } else { pace.min(SHORT) }
    }

    fn is_quick(&self, now: Instant) -> Option<bool> {
        let oldest = self.began.first_key_value().map_or(now, |(_, began)| *began);
        if now - oldest < QUICK { self.was_quick } else { Some(false) }
    }
}

/// Returns whether a slot is free for a host. The last fifth is for hosts that hold none.
fn has_room(held: usize, used: usize, places: usize) -> bool {
    used < if held == 0 { places } else { places - places / 5 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACES: usize = 100;
    const MOST: usize = 20;

    /// Takes slots while the host may have more, and returns how many it holds.
    fn fill(hosts: &mut [HostCalls], at: usize, now: Instant) -> usize {
        while hosts[at].held() < MOST
            && hosts[at].may_have_more(PLACES, HostCalls::load(hosts.iter(), now), now)
        {
            hosts[at].begin(now);
        }
        hosts[at].held()
    }

    fn hosts(count: usize) -> Vec<HostCalls> {
        (0..count).map(|_| HostCalls::new()).collect()
    }

    fn quick(now: Instant) -> HostCalls {
        let mut calls = HostCalls::new();
        let call = calls.begin(now);
        calls.end(call, now);
        calls
    }

    #[tokio::test(start_paused = true)]
    async fn a_host_that_was_never_called_gets_one_place_until_it_has_answered() {
        let (mut hosts, now) = (hosts(1), Instant::now());
        assert_eq!(fill(&mut hosts, 0, now), 1);
        hosts[0].end(1, now + QUICK / 2);
        assert_eq!(fill(&mut hosts, 0, now + QUICK / 2), MOST);
    }

    #[tokio::test(start_paused = true)]
    async fn any_number_of_slow_hosts_leave_places_to_new_and_to_quick_ones() {
        for count in [1, 20, 1000] {
            let (mut hosts, mut now) = (hosts(count), Instant::now());
            for _ in 0..10 {
                let _: usize = (0..count).map(|at| fill(&mut hosts, at, now)).sum();
                now += QUICK * 10;
                for calls in &mut hosts[..count.min(50)] {
                    let ended: Vec<_> = calls.began.keys().copied().collect();
                    ended.into_iter().for_each(|call| calls.end(call, now));
                }
            }
            let _: usize = (0..count).map(|at| fill(&mut hosts, at, now)).sum();
            hosts.push(quick(now));
            assert_eq!(fill(&mut hosts, count, now), MOST, "with {count} slow hosts");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn slow_hosts_share_half_of_the_places() {
        let (mut hosts, now) = (hosts(30), Instant::now());
        for calls in &mut hosts {
            let call = calls.begin(now);
            calls.end(call, now + QUICK);
        }
        let now = now + QUICK;
        let held: Vec<_> = (0..30).map(|at| fill(&mut hosts, at, now)).collect();
        assert_eq!(held.iter().sum::<usize>(), 50, "{held:?}");
        assert_eq!(held.iter().filter(|held| **held > 0).count(), 12, "{held:?}");
        hosts.push(HostCalls::new());
        assert_eq!(fill(&mut hosts, 30, now), 1, "a new host");
    }

    #[tokio::test(start_paused = true)]
    async fn quick_hosts_that_stop_answering_leave_a_place_to_each_of_the_others() {
        let now = Instant::now();
        let mut hosts: Vec<_> = (0..20).map(|_| quick(now)).collect();
        let held: Vec<_> = (0..20).map(|at| fill(&mut hosts, at, now)).collect();
        assert_eq!((held.iter().sum::<usize>(), held.iter().min()), (80 + 16, Some(&1)), "{held:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn one_whose_call_is_still_not_answered_is_no_longer_quick() {
        let now = Instant::now();
        let mut calls = quick(now);
        let call = calls.begin(now);
        assert_eq!(calls.is_quick(now + QUICK / 2), Some(true));
        assert_eq!(calls.is_quick(now + QUICK), Some(false));
        calls.end(call, now + QUICK);
        assert_eq!(calls.is_quick(now + QUICK), Some(false), "its last call was not");
    }

    #[tokio::test(start_paused = true)]
    async fn timers_of_a_host_that_is_not_slow_come_back_soon() {
        let mut calls = HostCalls::new();
        let now = Instant::now() + QUICK / 2;
        let call = calls.begin(now - QUICK / 4);
        assert_eq!(calls.pace(now), SHORT, "it is new");
        calls.end(call, now);
        assert_eq!(calls.pace(now + QUICK * 100), SHORT, "it was idle");
        calls.begin(now);
        calls.begin(now);
        assert_eq!(calls.pace(now + QUICK * 4), QUICK * 2, "two calls, and none has ended for four seconds");
    }

    #[tokio::test(start_paused = true)]
    async fn few_places_are_shared_too() {
        for places in 1..=4 {
            let (mut slow, now) = (HostCalls::new(), Instant::now());
            slow.begin(now);
            let later = now + QUICK;
            let load = HostCalls::load([&slow].into_iter(), later);
            assert_eq!(quick(later).may_have_more(places, load, later), places > 1, "{places}");
        }
    }
}
