//! How many attempts may run at a time, in each topic and overall; and how many of the free permits one topic may take
//! beside all others that have due work.
//!
//! Each permit has a turn. A topic's turn moves on by its stride with each permit that it takes, and the earliest turn
//! goes first: over time, the permits of those who always have due work are as their weights (start-time fair
//! queueing). A topic that comes back begins where the others are, so it neither catches up on what it did not need
//! nor makes them wait for it.

use std::cmp::Ordering;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::Notify;

use crate::lock::{lock, wait_until};
use crate::topic::Priority;

/// Free and taken permits.
///
/// Of the overall limit each topic that runs nothing keeps one permit, so that
/// slow topics cannot starve the others. What more than one topic has due work for
/// is given out by their priorities.
#[derive(Debug)]
pub(crate) struct ConcurrencyLimiter {
    limit: usize,
    state: Mutex<State>,
    freed: Vec<Notify>,
}

#[derive(Debug)]
struct State {
    topics: Vec<TopicShare>,
    /// Of all topics.
    waiting: usize,
    /// Of each rank: no turn that is still to come is earlier.
    turns: [u64; RANKS],
}

impl State {
    fn used(&self) -> usize {
        self.topics.iter().map(|topic| topic.used).sum()
    }

    /// Who had nothing to do has nothing to catch up on.
    fn catch_up(&mut self, topic: usize) {
        let topic = &mut self.topics[topic];
        if topic.waiting == 0 {
            topic.turn = topic.turn.max(self.turns[topic.rank]);
        }
    }

    /// The other topics that could take a permit now.
    fn rivals(&self, topic: usize) -> impl Iterator<Item = &TopicShare> {
        // Mostly nobody waits, which is known without a look at each.
        let topics = if self.waiting > self.topics[topic].waiting { &self.topics[..] } else { &[] };
        topics
            .iter()
            .enumerate()
            .filter(move |(at, other)| *at != topic && other.competes())
            .map(|(_, other)| other)
    }

    /// Counts the turns of permits that were taken, if anybody else could have had them. Those that were not its turn,
    /// but kept for it, count as little as the next ones: it shall not wait for ever for having had its one place.
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
    /// `topics` has the limit and the priority of each topic.
    pub(crate) fn new(limit: usize, topics: &[(usize, Priority)], strict: bool) -> Arc<Self> {
        let freed = topics.iter().map(|_| Notify::new()).collect();
        let topics = TopicShare::all(limit, topics, strict);
        let state = State { topics, waiting: 0, turns: [0; RANKS] };
        Arc::new(Self { limit, state: Mutex::new(state), freed })
    }

    /// How many are taken, of how many.
    pub(crate) fn usage(&self) -> (usize, usize) {
        (lock(&self.state).used(), self.limit)
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
    pub(crate) fn total_slots(&self) -> usize {
        lock(&self.state)
            .topics
            .iter()
            .fold(0, |all: usize, topic| all.saturating_add(topic.limit))
            .min(self.limit)
    }

    /// Takes up to `want` permits for a topic.
    pub(crate) fn take(&self, topic: usize, want: usize) -> usize {
        let state = &mut *lock(&self.state);
        state.catch_up(topic);
        let (taken, by_turns) = allotment(self.limit, &state.topics, topic, want);
        state.count(topic, taken, by_turns);
        state.topics[topic].used += taken;
        taken
    }

    /// Gives back those of attempts that have ended, and tells those who wait for one.
    pub(crate) fn release_slots(&self, topic: usize, count: usize) {
        self.put_back(topic, count, 0);
    }

    /// The same of those that a claim had no use for: they cost no turns.
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

    /// Of this topic something has changed that others may wait for.
    fn wake_waiting(&self, state: MutexGuard<'_, State>, topic: usize) {
        let (anybody, others) = (state.waiting > 0, state.rivals(topic).next().is_some());
        drop(state);
        if others {
            self.freed.iter().for_each(Notify::notify_waiters);
        } else if anybody {
            self.freed[topic].notify_waiters();
        }
    }

    /// Says that a claimer of this topic has due work, or waits for a permit to look for some.
    pub(crate) fn demand(self: &Arc<Self>, topic: usize) -> Demand {
        let mut state = lock(&self.state);
        let kept = state.topics[topic].kept();
        state.catch_up(topic);
        state.topics[topic].waiting += 1;
        state.waiting += 1;
        if state.topics[topic].kept() < kept {
            self.wake_waiting(state, topic);
        }
        Demand { permits: self.clone(), topic }
    }
}

/// That there is due work in a topic. Until it is dropped, the topic has its part of what comes free.
#[derive(Debug)]
pub(crate) struct Demand {
    permits: Arc<ConcurrencyLimiter>,
    topic: usize,
}

impl Demand {
    /// Returns once the topic may have a permit.
    pub(crate) async fn free(&self) {
        let Self { permits, topic } = self;
        let some = |state: &State| allotment(permits.limit, &state.topics, *topic, 1).0 > 0;
        wait_until(&permits.state, &permits.freed[*topic], some).await;
    }
}

impl Drop for Demand {
    fn drop(&mut self) {
        let mut state = lock(&self.permits.state);
        state.topics[self.topic].waiting -= 1;
        state.waiting -= 1;
        if state.topics[self.topic].waiting == 0 {
            self.permits.wake_waiting(state, self.topic);
        }
    }
}

/// Of each priority, when strict: those of one rank take turns, and a lower rank goes first.
const RANKS: usize = 3;

/// A topic, as far as its allotment goes by it.
#[derive(Clone, Copy, Debug)]
struct TopicShare {
    limit: usize,
    /// Permits that it has.
    used: usize,
    /// How many of its claimers know of due work, or wait for a permit.
    waiting: usize,
    rank: usize,
    stride: u64,
    /// Whether a permit is kept for it whenever it has none: also while it waits, for its next turn.
    keeps: bool,
    turn: u64,
}

impl TopicShare {
    /// Topics that have nothing yet.
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
            // Slow topics cannot starve one whose share is a permit or more. Of less than that, nothing can be kept.
            keeps: limit.saturating_mul(weight(priority)) >= weights,
            turn: 0,
        };
        topics.iter().map(topic).collect()
    }

    fn room(&self) -> usize {
        self.limit - self.used
    }

    /// Whether it could take a permit now, and has a use for it.
    fn competes(&self) -> bool {
        self.waiting > 0 && self.room() > 0
    }

    /// What nobody else may take: so whatever comes due in an idle topic can start at once.
    fn kept(&self) -> usize {
        usize::from(self.used == 0 && (self.keeps || self.waiting == 0))
    }

    /// How many permits are its own before another of this rank has this turn.
    fn before(&self, rank: usize, turn: u64) -> usize {
        let turns = match self.rank.cmp(&rank) {
            Ordering::Less => u64::MAX,
            Ordering::Equal => turn.saturating_sub(self.turn).div_ceil(self.stride),
            Ordering::Greater => 0,
        };
        usize::try_from(turns).unwrap_or(usize::MAX).max(self.kept()).min(self.room())
    }
}

/// How many permits a topic may take, and whether that is by its turns; otherwise it is what is kept for it.
fn allotment(limit: usize, topics: &[TopicShare], me: usize, want: usize) -> (usize, bool) {
    let mine = &topics[me];
    let free = limit - topics.iter().map(|topic| topic.used).sum::<usize>();
    let most = want.min(free).min(mine.room());
    let others = || topics.iter().enumerate().filter(|(other, _)| *other != me);
    let idle = others().filter(|(_, other)| !other.competes()).map(|(_, other)| other.kept()).sum();
    // Whether so many are left when its turn for the last of them has come.
    let fits = |count: usize| {
        let turn = mine.turn.saturating_add((count as u64 - 1).saturating_mul(mine.stride));
        // Of two with the same turn, the one that was added first goes first.
        let before = |(at, other): (usize, &TopicShare)| {
            other.before(mine.rank, turn.saturating_add((at < me).into()))
        };
        let competing = others().filter(|(_, other)| other.competes()).map(before);
        // With fewer permits than topics there is not one for each, and whoever comes first has it.
        let kept = if mine.used == 0 && count == 1 && limit < topics.len() { 0 } else { idle };
        competing.fold(count.saturating_add(kept), usize::saturating_add) <= free
    };
    let by_turns = if most > 0 && fits(most) { most } else { last(most, fits) };
    let kept = mine.kept().min(most);
    (by_turns.max(kept), by_turns >= kept)
}

/// The last number below this one for which that holds, as it does for all before; 0 if it holds for none.
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
