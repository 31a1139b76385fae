//! Limits of concurrent attempts for each topic and for the listener, and the shares of topics that compete for
//! slots.
//!
//! A topic's turn is a number that orders the topics: the one with the lowest turn takes the next slot, and its turn
//! then advances by its stride. A higher priority has a smaller stride. Topics that always have due work therefore
//! share slots in proportion to their weights (start-time fair queueing). An idle topic that returns starts at the
//! current turn, so it neither catches up on unused slots nor waits for the others.

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
    /// By topic: wakes its claimers when a slot may be free.
    freed: Vec<Notify>,
}

#[derive(Debug)]
struct State {
    topics: Vec<TopicShare>,
    /// The sum of `demands` of all topics.
    demands: usize,
    /// By rank: the current turn, at which an idle topic starts.
    turns: [u64; RANKS],
}

impl State {
    fn used(&self) -> usize {
        self.topics.iter().map(|topic| topic.used).sum()
    }

    /// Advances the turn of a topic that was idle, so that it does not catch up on unused slots.
    fn catch_up(&mut self, topic: usize) {
        let topic = &mut self.topics[topic];
        if topic.demands == 0 {
            topic.turn = topic.turn.max(self.turns[topic.rank]);
        }
    }

    /// Returns the other topics that could take a slot now.
    fn rivals(&self, topic: usize) -> impl Iterator<Item = &TopicShare> {
        // Usually no topic waits, and then the loop over topics is skipped.
        let topics = if self.demands > self.topics[topic].demands { &self.topics[..] } else { &[] };
        topics
            .iter()
            .enumerate()
            .filter(move |(at, other)| *at != topic && other.competes())
            .map(|(_, other)| other)
    }

    /// Advances the turn of a topic that has taken slots, if other topics compete for them. A reserved slot
    /// (without `by_turns`) may be taken ahead of the topic's turn. The turn then advances from at most one stride after
    /// the current turn. Otherwise, reserved slots could put off the topic's turn forever.
    fn advance_turn(&mut self, topic: usize, taken: usize, by_turns: bool) {
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
        let state = State { topics, demands: 0, turns: [0; RANKS] };
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

    /// Returns how many slots each of a topic's partitions may take, so that all of them have slots at the same time.
    pub(crate) fn slots_per_partition(&self, topic: usize, partitions: usize) -> usize {
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
    pub(crate) fn take_slots(&self, topic: usize, want: usize) -> usize {
        let state = &mut *lock(&self.state);
        state.catch_up(topic);
        let (taken, by_turns) = allotment(self.limit, &state.topics, topic, want);
        state.advance_turn(topic, taken, by_turns);
        state.topics[topic].used += taken;
        taken
    }

    /// Releases the slots of ended attempts, and wakes tasks that wait for a slot.
    pub(crate) fn release_slots(&self, topic: usize, count: usize) {
        self.release(topic, count, 0);
    }

    /// Releases slots that a claim did not use. The topic's turn returns to its value before them.
    pub(crate) fn release_unused_slots(&self, topic: usize, count: usize) {
        self.release(topic, count, count);
    }

    /// Releases slots, and takes back `turns` strides of the topic's turn.
    fn release(&self, topic: usize, count: usize, turns: usize) {
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

    /// Wakes claimers that wait for a slot, after a change of this topic. If other topics compete, claimers of all
    /// topics are woken, as the change may be the turn of any.
    fn wake_waiting(&self, state: MutexGuard<'_, State>, topic: usize) {
        let (any_waits, others) = (state.demands > 0, state.rivals(topic).next().is_some());
        drop(state);
        if others {
            self.freed.iter().for_each(Notify::notify_waiters);
        } else if any_waits {
            self.freed[topic].notify_waiters();
        }
    }

    /// Registers that a claimer of this topic has due work, or waits for a slot for its next claim.
    pub(crate) fn demand(self: &Arc<Self>, topic: usize) -> Demand {
        let mut state = lock(&self.state);
        let reserved = state.topics[topic].reserved();
        state.catch_up(topic);
        state.topics[topic].demands += 1;
        state.demands += 1;
        if state.topics[topic].reserved() < reserved {
            self.wake_waiting(state, topic);
        }
        Demand { limiter: self.clone(), topic }
    }
}

/// A claimer's demand for slots. Until it is dropped, other topics leave free slots to this topic in its turn.
#[derive(Debug)]
pub(crate) struct Demand {
    limiter: Arc<ConcurrencyLimiter>,
    topic: usize,
}

impl Demand {
    /// Waits until the topic may take a slot, but does not take it.
    pub(crate) async fn wait_for_slot(&self) {
        let Self { limiter, topic } = self;
        let some = |state: &State| allotment(limiter.limit, &state.topics, *topic, 1).0 > 0;
        wait_until(&limiter.state, &limiter.freed[*topic], some).await;
    }
}

impl Drop for Demand {
    fn drop(&mut self) {
        let mut state = lock(&self.limiter.state);
        state.topics[self.topic].demands -= 1;
        state.demands -= 1;
        if state.topics[self.topic].demands == 0 {
            self.limiter.wake_waiting(state, self.topic);
        }
    }
}

/// The number of ranks. With strict priorities, each priority is a rank: a lower rank goes first, and topics of one
/// rank take turns. Otherwise, all topics have rank 0.
const RANKS: usize = 3;

/// The state of a topic that decides how many slots it may take.
#[derive(Clone, Copy, Debug)]
struct TopicShare {
    limit: usize,
    /// Slots that the topic uses.
    used: usize,
    /// The number of its [`Demand`]s.
    demands: usize,
    rank: usize,
    stride: u64,
    /// True if the topic's reserved slot stays reserved once it has due work. An idle topic always has a reserved slot.
    reserves: bool,
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
            demands: 0,
            rank: if strict { priority as usize } else { 0 },
            stride: if strict { 1 } else { priority.stride() },
            // If the topic's share is at least one slot, one is reserved, so that slow topics cannot starve the topic.
            reserves: limit.saturating_mul(weight(priority)) >= weights,
            turn: 0,
        };
        topics.iter().map(topic).collect()
    }

    /// Returns how many more slots the topic's own limit allows.
    fn room(&self) -> usize {
        self.limit - self.used
    }

    /// Returns whether the topic could use a slot now.
    fn competes(&self) -> bool {
        self.demands > 0 && self.room() > 0
    }

    /// Returns the number of slots reserved for the topic, so that the first due timer of an idle topic starts
    /// immediately.
    fn reserved(&self) -> usize {
        usize::from(self.used == 0 && (self.reserves || self.demands == 0))
    }

    /// Returns how many slots this topic gets before another topic of `rank` has the turn `turn`.
    fn slots_before(&self, rank: usize, turn: u64) -> usize {
        let turns = match self.rank.cmp(&rank) {
            Ordering::Less => u64::MAX,
            Ordering::Equal => turn.saturating_sub(self.turn).div_ceil(self.stride),
            Ordering::Greater => 0,
        };
        usize::try_from(turns).unwrap_or(usize::MAX).max(self.reserved()).min(self.room())
    }
}

/// Returns how many slots a topic may take, and whether it takes them by turn. Otherwise they are its reserved slots.
fn allotment(limit: usize, topics: &[TopicShare], me: usize, want: usize) -> (usize, bool) {
    let mine = &topics[me];
    let free = limit - topics.iter().map(|topic| topic.used).sum::<usize>();
    let most = want.min(free).min(mine.room());
    let others = || topics.iter().enumerate().filter(|(other, _)| *other != me);
    let of_idle = others().filter(|(_, other)| !other.competes()).map(|(_, other)| other.reserved()).sum();
    // Returns whether `count` slots are free when the topic has its turn for the last of them.
    let fits = |count: usize| {
        let turn = mine.turn.saturating_add((count as u64 - 1).saturating_mul(mine.stride));
        // If two topics have the same turn, the one that was added first goes first.
        let before = |(at, other): (usize, &TopicShare)| {
            other.slots_before(mine.rank, turn.saturating_add((at < me).into()))
        };
        let competing = others().filter(|(_, other)| other.competes()).map(before);
        // With fewer slots than topics, not every topic has a reserved slot, and the first to ask takes it.
        let reserved = if mine.used == 0 && count == 1 && limit < topics.len() { 0 } else { of_idle };
        competing.fold(count.saturating_add(reserved), usize::saturating_add) <= free
    };
    let by_turns = if most > 0 && fits(most) { most } else { largest_below(most, fits) };
    let reserved = mine.reserved().min(most);
    (by_turns.max(reserved), by_turns >= reserved)
}

/// Returns the largest number below `end` for which `holds` is true, or 0. `holds` must be true for all smaller numbers,
/// and false for all larger ones.
fn largest_below(mut end: usize, holds: impl Fn(usize) -> bool) -> usize {
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
