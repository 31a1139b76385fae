//! Limits of concurrent attempts for each topic and for the listener, and the shares of topics that compete for
//! slots.
//!
//! Each slot has a turn. A topic's turn advances by its stride with each slot that it takes, and the topic with the
//! earliest turn is next. Topics that always have due work therefore share slots in proportion to their weights
//! (start-time fair queueing). An idle topic that returns starts at the current turn, so it neither catches up on
//! unused slots nor waits for the others.

use std::cmp::Ordering;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::Notify;

use crate::lock::{lock, wait_until};
use crate::topic::Priority;

/// The concurrency slots of a listener.
///
/// Each topic that runs nothing reserves one slot of the overall limit, so slow topics cannot starve the others. If
/// several topics have due work, their priorities decide.
#[derive(Debug)]
pub(crate) struct ConcurrencyLimiter {
    limit: usize,
    state: Mutex<State>,
    freed: Vec<Notify>,
}

#[derive(Debug)]
struct State {
    topics: Vec<TopicShare>,
    /// The sum of `waiting` of all topics.
    waiting: usize,
    /// The earliest turn of each rank. All later turns are at or after it.
    turns: [u64; RANKS],
}

impl State {
    fn used(&self) -> usize {
        self.topics.iter().map(|topic| topic.used).sum()
    }

    /// Advances the turn of a topic that was idle, so that it does not catch up on unused slots.
    fn catch_up(&mut self, topic: usize) {
        let topic = &mut self.topics[topic];
        if topic.waiting == 0 {
            topic.turn = topic.turn.max(self.turns[topic.rank]);
        }
    }

    /// Returns the other topics that could take a slot now.
    fn rivals(&self, topic: usize) -> impl Iterator<Item = &TopicShare> {
        // Usually no topic waits, and then the loop over topics is skipped.
        let topics = if self.waiting > self.topics[topic].waiting { &self.topics[..] } else { &[] };
        topics
            .iter()
            .enumerate()
            .filter(move |(at, other)| *at != topic && other.competes())
            .map(|(_, other)| other)
    }

    /// Advances the turn of a topic that has taken slots, if other topics compete for them. Without `by_turns` the
    /// slots were reserved, and the topic advances from the next turn at the latest. Otherwise its reserved slot
    /// could delay it forever.
    fn count(&mut self, topic: usize, taken: usize, by_turns: bool) {
        let TopicShare { rank, turn, stride, .. } = self.topics[topic];
        if self.rivals(topic).next().is_none() {
            return;
        }
        let equals = self.rivals(topic).filter(|other| other.rank == rank).map(|other| other.turn);
        let earliest = equals.fold(turn, u64::min).max(self.turns[rank]);
        self.turns[rank] = earliest;
        let from = if by_turns { turn } else { turn.min(earliest.saturating_add(stride)) };
        self.topics[topic].turn = from.saturating_add(stride.saturating_mul(taken as u64));
    }
}

impl ConcurrencyLimiter {
    /// Creates the limiter of a listener. `topics` has the limit and the priority of each topic.
    pub(crate) fn new(limit: usize, topics: &[(usize, Priority)], strict: bool) -> Arc<Self> {
        let freed = topics.iter().map(|_| Notify::new()).collect();
        let topics = TopicShare::all(limit, topics, strict);
        let state = State { topics, waiting: 0, turns: [0; RANKS] };
        Arc::new(Self { limit, state: Mutex::new(state), freed })
    }

    /// Returns the number of used slots and the limit.
    pub(crate) fn usage(&self) -> (usize, usize) {
        (lock(&self.state).used(), self.limit)
    }

    /// Returns the number of a topic's used slots and its limit.
    pub(crate) fn usage_of(&self, topic: usize) -> (usize, usize) {
        let topic = &lock(&self.state).topics[topic];
        (topic.used, topic.limit)
    }

    /// Returns how many slots each of a topic's partitions may request, so that all of them can at the same time.
    pub(crate) fn share(&self, topic: usize, partitions: usize) -> usize {
        (self.limit.min(lock(&self.state).topics[topic].limit) / partitions).max(1)
    }

    /// Returns how many attempts can run at the same time.
    pub(crate) fn total_slots(&self) -> usize {
        lock(&self.state)
            .topics
            .iter()
            .fold(0, |all: usize, topic| all.saturating_add(topic.limit))
            .min(self.limit)
    }

    /// Takes up to `want` slots for a topic, and returns how many it took.
    pub(crate) fn take(&self, topic: usize, want: usize) -> usize {
        let state = &mut *lock(&self.state);
        state.catch_up(topic);
        let (taken, by_turns) = allotment(self.limit, &state.topics, topic, want);
        state.count(topic, taken, by_turns);
        state.topics[topic].used += taken;
        taken
    }

    /// Releases the slots of ended attempts, and wakes tasks that wait for a slot.
    pub(crate) fn release_slots(&self, topic: usize, count: usize) {
        self.put_back(topic, count, 0);
    }

    /// Releases slots that a claim did not use. They do not advance the topic's turn.
    pub(crate) fn give_back_unused(&self, topic: usize, count: usize) {
        self.put_back(topic, count, count);
    }

    fn put_back(&self, topic: usize, count: usize, turns: usize) {
        if count == 0 {
            return;
        }
        let mut state = lock(&self.state);
        let State { topics, turns: earliest, .. } = &mut *state;
        let mine = &mut topics[topic];
        mine.used -= count;
        let before = mine.turn.saturating_sub(mine.stride.saturating_mul(turns as u64));
        mine.turn = before.max(earliest[mine.rank].min(mine.turn));
        self.wake_waiting(state, topic);
    }

    /// Wakes tasks that wait for a slot after a change of this topic.
    fn wake_waiting(&self, state: MutexGuard<'_, State>, topic: usize) {
        let (any_waits, others) = (state.waiting > 0, state.rivals(topic).next().is_some());
        drop(state);
        if others {
            self.freed.iter().for_each(Notify::notify_waiters);
        } else if any_waits {
            self.freed[topic].notify_waiters();
        }
    }

    /// Registers that a claimer of this topic has due work, or waits for a slot to claim.
    pub(crate) fn demand(self: &Arc<Self>, topic: usize) -> Demand {
        let mut state = lock(&self.state);
        let kept = state.topics[topic].kept();
        state.catch_up(topic);
        state.topics[topic].waiting += 1;
        state.waiting += 1;
        if state.topics[topic].kept() < kept {
            self.wake_waiting(state, topic);
        }
        Demand { limiter: self.clone(), topic }
    }
}

/// Due work in a topic. Until it is dropped, the topic has its share of free slots.
#[derive(Debug)]
pub(crate) struct Demand {
    limiter: Arc<ConcurrencyLimiter>,
    topic: usize,
}

impl Demand {
    /// Waits until the topic may take a slot. Does not take it.
    pub(crate) async fn free(&self) {
        let Self { limiter, topic } = self;
        let some = |state: &State| allotment(limiter.limit, &state.topics, *topic, 1).0 > 0;
        wait_until(&limiter.state, &limiter.freed[*topic], some).await;
    }
}

impl Drop for Demand {
    fn drop(&mut self) {
        let mut state = lock(&self.limiter.state);
        state.topics[self.topic].waiting -= 1;
        state.waiting -= 1;
        if state.topics[self.topic].waiting == 0 {
            self.limiter.wake_waiting(state, self.topic);
        }
    }
}

/// The number of ranks. With strict priorities, each priority is a rank: a lower rank goes first, and topics of one
/// rank take turns.
const RANKS: usize = 3;

/// The state of a topic that decides how many slots it may take.
#[derive(Clone, Copy, Debug)]
struct TopicShare {
    limit: usize,
    /// Slots that the topic uses.
    used: usize,
    /// How many of its claimers have due work, or wait for a slot.
    waiting: usize,
    rank: usize,
    stride: u64,
    /// True if a slot is reserved for the topic whenever it uses none, even while it waits for its turn.
    keeps: bool,
    turn: u64,
}

impl TopicShare {
    /// Creates the initial shares of all topics.
    fn all(limit: usize, topics: &[(usize, Priority)], strict: bool) -> Vec<Self> {
        let first = topics.iter().map(|(_, priority)| *priority as usize).min();
        let is_first = |priority: Priority| first == Some(priority as usize);
        let weight = |priority: Priority| if strict { is_first(priority).into() } else { priority.weight() };
        let weights: usize = topics.iter().map(|(_, priority)| weight(*priority)).sum();
        let topic = |&(own_limit, priority): &(usize, Priority)| Self {
            limit: own_limit,
            used: 0,
            waiting: 0,
            rank: if strict { priority as usize } else { 0 },
            stride: if strict { 1 } else { priority.stride() },
            // A share of at least one slot is reserved, so that slow topics cannot starve the topic. A smaller share
            // cannot be reserved.
            keeps: limit.saturating_mul(weight(priority)) >= weights,
            turn: 0,
        };
        topics.iter().map(topic).collect()
    }

    fn room(&self) -> usize {
        self.limit - self.used
    }

    /// Returns whether the topic could use a slot now.
    fn competes(&self) -> bool {
        self.waiting > 0 && self.room() > 0
    }

    /// Returns the number of slots reserved for the topic, so that the first due timer of an idle topic starts
    /// immediately.
    fn kept(&self) -> usize {
        usize::from(self.used == 0 && (self.keeps || self.waiting == 0))
    }

    /// Returns how many slots this topic gets before another topic of `rank` has its turn.
    fn before(&self, rank: usize, turn: u64) -> usize {
        let turns = match self.rank.cmp(&rank) {
            Ordering::Less => u64::MAX,
            Ordering::Equal => turn.saturating_sub(self.turn).div_ceil(self.stride),
            Ordering::Greater => 0,
        };
        usize::try_from(turns).unwrap_or(usize::MAX).max(self.kept()).min(self.room())
    }
}

/// Returns how many slots a topic may take, and whether it takes them by turn. Otherwise they are its reserved slots.
fn allotment(limit: usize, topics: &[TopicShare], me: usize, want: usize) -> (usize, bool) {
    let mine = &topics[me];
    let free = limit - topics.iter().map(|topic| topic.used).sum::<usize>();
    let most = want.min(free).min(mine.room());
    let others = || topics.iter().enumerate().filter(|(other, _)| *other != me);
    let idle = others().filter(|(_, other)| !other.competes()).map(|(_, other)| other.kept()).sum();
    // Returns whether `count` slots are free when the topic has its turn for the last of them.
    let fits = |count: usize| {
        let turn = mine.turn.saturating_add((count as u64 - 1).saturating_mul(mine.stride));
        // If two topics have the same turn, the one that was added first goes first.
        let before = |(at, other): (usize, &TopicShare)| {
            other.before(mine.rank, turn.saturating_add((at < me).into()))
        };
        let competing = others().filter(|(_, other)| other.competes()).map(before);
        // With fewer slots than topics, not every topic has a reserved slot, and the first to ask takes it.
        let kept = if mine.used == 0 && count == 1 && limit < topics.len() { 0 } else { idle };
        competing.fold(count.saturating_add(kept), usize::saturating_add) <= free
    };
    let by_turns = if most > 0 && fits(most) { most } else { last(most, fits) };
    let kept = mine.kept().min(most);
    (by_turns.max(kept), by_turns >= kept)
}

/// Returns the largest number below `end` for which `holds` is true, or 0. It must be true for all smaller numbers.
fn last(mut end: usize, holds: impl Fn(usize) -> bool) -> usize {
    let mut last = 0;
    while last + 1 < end {
        let middle = last.midpoint(end);
        if holds(middle) {
            last = middle;
        } else {
            end = middle;
        }
    }
    last
}

#[cfg(test)]
mod tests;
