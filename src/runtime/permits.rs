//! How many attempts may run at a time: in each topic, and overall.

use std::sync::Mutex;

use tokio::sync::Notify;

use crate::lock::{lock, until};

/// Free and taken permits.
///
/// Of the overall limit each topic that runs nothing keeps one permit, so that
/// slow topics cannot starve the others.
#[derive(Debug)]
pub(crate) struct Permits {
    limit: usize,
    state: Mutex<State>,
    freed: Vec<Notify>,
}

#[derive(Debug)]
struct State {
    used: usize,
    /// Topics that run nothing.
    idle: usize,
    topics: Vec<Topic>,
}

#[derive(Debug)]
struct Topic {
    used: usize,
    limit: usize,
}

impl Permits {
    /// `limits` has one entry for each topic.
    pub(crate) fn new(limit: usize, limits: impl IntoIterator<Item = usize>) -> Self {
        let topics: Vec<_> = limits.into_iter().map(|limit| Topic { used: 0, limit }).collect();
        Self {
            limit,
            freed: topics.iter().map(|_| Notify::new()).collect(),
            state: Mutex::new(State { used: 0, idle: topics.len(), topics }),
        }
    }

    /// How many are taken, of how many.
    pub(crate) fn usage(&self) -> (usize, usize) {
        (lock(&self.state).used, self.limit)
    }

    /// The same of a topic.
    pub(crate) fn usage_of(&self, topic: usize) -> (usize, usize) {
        let topic = &lock(&self.state).topics[topic];
        (topic.used, topic.limit)
    }

    /// What each of a topic's partitions may ask for, so that all of them can at the same time.
    pub(crate) fn share(&self, topic: usize, partitions: usize) -> usize {
        (self.limit.min(lock(&self.state).topics[topic].limit) / partitions).max(1)
    }

    /// How many attempts there can be at a time.
    pub(crate) fn places(&self) -> usize {
        lock(&self.state)
            .topics
            .iter()
            .fold(0, |all: usize, topic| all.saturating_add(topic.limit))
            .min(self.limit)
    }

    /// Takes up to `want` permits for a topic.
    pub(crate) fn take(&self, topic: usize, want: usize) -> usize {
        let mut state = lock(&self.state);
        let taken = want.min(self.free_for(topic, &state));
        if taken > 0 {
            state.idle -= usize::from(state.topics[topic].used == 0);
            state.used += taken;
            state.topics[topic].used += taken;
        }
        taken
    }

    /// How many a topic may take.
    fn free_for(&self, topic: usize, state: &State) -> usize {
        let mine = &state.topics[topic];
        let idle = usize::from(mine.used == 0);
        let free = self.limit.saturating_sub(state.used);
        // Its own reserved permit, or what is left above everybody's.
        let shared = free.saturating_sub(state.idle - idle).max(idle.min(free));
        shared.min(mine.limit - mine.used)
    }

    /// Gives permits back, and tells those who wait for one.
    pub(crate) fn give_back(&self, topic: usize, count: usize) {
        if count == 0 {
            return;
        }
        let mut state = lock(&self.state);
        let was_full = state.used + state.idle >= self.limit;
        state.used -= count;
        state.topics[topic].used -= count;
        if state.topics[topic].used == 0 {
            state.idle += 1;
        }
        drop(state);
        if was_full {
            self.freed.iter().for_each(Notify::notify_waiters);
        } else {
            self.freed[topic].notify_waiters();
        }
    }

    /// Returns once a topic may have a permit.
    pub(crate) async fn free(&self, topic: usize) {
        until(&self.state, &self.freed[topic], |state| self.free_for(topic, state) > 0).await;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_slow_topic_leaves_a_place_to_each_of_the_others() {
        let permits = Permits::new(10, [100, 100, 100]);
        assert_eq!(permits.take(0, 50), 8);
        assert_eq!(permits.take(0, 50), 0);
        assert_eq!(permits.take(1, 50), 1);
        assert_eq!(permits.take(2, 50), 1);
        permits.give_back(0, 3);
        assert_eq!(permits.take(1, 50), 3);
    }

    #[test]
    fn a_topic_keeps_to_its_own_limit() {
        let permits = Permits::new(10, [3]);
        assert_eq!(permits.take(0, 50), 3);
        assert_eq!(permits.take(0, 1), 0);
    }

    /// Whether a topic is told of a permit within a moment.
    async fn hears_of_one(permits: &Permits, topic: usize) -> bool {
        tokio::time::timeout(Duration::from_millis(1), permits.free(topic)).await.is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_waits_for_a_place_waits_until_there_is_one_and_does_not_take_it() {
        let permits = Permits::new(10, [2]);
        assert!(hears_of_one(&permits, 0).await);
        assert_eq!(permits.take(0, 2), 2);
        assert!(!hears_of_one(&permits, 0).await);
        let back = async { permits.give_back(0, 1) };
        assert!(tokio::join!(hears_of_one(&permits, 0), back).0);
        assert_eq!(permits.take(0, 2), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_place_that_comes_back_may_be_for_another_topic_if_there_was_none_left() {
        // The overall limit, what each topic has taken, and who gives one back to
        // topic 1. Those that have taken nothing keep a permit.
        for (limit, taken, giver) in
            [(4, vec![3, 1], 0), (5, vec![3, 1, 0], 0), (6, vec![3, 1, 0, 0], 0), (1, vec![1, 0], 0)]
        {
            let permits = Permits::new(limit, vec![100; taken.len()]);
            for (topic, count) in taken.iter().enumerate() {
                assert_eq!(permits.take(topic, *count), *count);
            }
            assert!(!hears_of_one(&permits, 1).await);
            let back = async { permits.give_back(giver, 1) };
            assert!(tokio::join!(hears_of_one(&permits, 1), back).0, "of {limit}: {taken:?}");
        }
    }

    proptest! {
        #[test]
        fn no_limit_is_ever_exceeded_and_nobody_starves(
            limit in 1usize..12, limits in proptest::collection::vec(1usize..8, 1..5),
            steps in proptest::collection::vec((any::<bool>(), 0usize..5, 0usize..9), 0..60),
        ) {
            let permits = Permits::new(limit, limits.clone());
            let mut used = vec![0; limits.len()];
            for (take, topic, count) in steps {
                let topic = topic % limits.len();
                if take {
                    let idle = used[topic] == 0;
                    let free = limit - used.iter().sum::<usize>();
                    let taken = permits.take(topic, count);
                    prop_assert!(taken <= count);
                    let reserved = limit >= limits.len();
                    prop_assert!(!(idle && count > 0 && taken == 0 && reserved), "starved with {free} free");
                    used[topic] += taken;
                } else {
                    let back = count.min(used[topic]);
                    permits.give_back(topic, back);
                    used[topic] -= back;
                }
                prop_assert!(used.iter().sum::<usize>() <= limit);
                prop_assert!(used.iter().zip(&limits).all(|(used, limit)| used <= limit));
            }
        }
    }
}
