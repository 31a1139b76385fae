//! How many of the free permits one topic may take, beside all others that have due work.
//!
//! Each permit has a turn. A topic's turn moves on by its stride with each permit that it takes, and the earliest turn
//! goes first: over time, the permits of those who always have due work are as their weights (start-time fair
//! queueing). A topic that comes back begins where the others are, so it neither catches up on what it did not need
//! nor makes them wait for it.

use std::cmp::Ordering;

use crate::priority::Priority;

/// Of each priority, when strict: those of one rank take turns, and a lower rank goes first.
pub(super) const RANKS: usize = 3;

/// A topic, as far as its allotment goes by it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Topic {
    pub(super) limit: usize,
    /// Permits that it has.
    pub(super) used: usize,
    /// How many of its claimers know of due work, or wait for a permit.
    pub(super) waiting: usize,
    pub(super) rank: usize,
    pub(super) stride: u64,
    /// Whether a permit is kept for it whenever it has none: also while it waits, for its next turn.
    pub(super) keeps: bool,
    pub(super) turn: u64,
}

impl Topic {
    /// Topics that have nothing yet.
    pub(super) fn all(limit: usize, topics: &[(usize, Priority)], strict: bool) -> Vec<Self> {
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
    pub(super) fn competes(&self) -> bool {
        self.waiting > 0 && self.room() > 0
    }

    /// What nobody else may take: so whatever comes due in an idle topic can start at once.
    pub(super) fn kept(&self) -> usize {
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
pub(super) fn allotment(limit: usize, topics: &[Topic], me: usize, want: usize) -> (usize, bool) {
    let mine = &topics[me];
    let free = limit - topics.iter().map(|topic| topic.used).sum::<usize>();
    let most = want.min(free).min(mine.room());
    let others = || topics.iter().enumerate().filter(|(other, _)| *other != me);
    let idle = others().filter(|(_, other)| !other.competes()).map(|(_, other)| other.kept()).sum();
    // Whether so many are left when its turn for the last of them has come.
    let fits = |count: usize| {
        let turn = mine.turn.saturating_add((count as u64 - 1).saturating_mul(mine.stride));
        // Of two with the same turn, the one that was added first goes first.
        let before =
            |(at, other): (usize, &Topic)| other.before(mine.rank, turn.saturating_add((at < me).into()));
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
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    /// One permit after the other, each to whoever's turn is the earliest.
    fn one_by_one(free: usize, topics: &mut [Topic], me: usize) -> usize {
        let before = topics[me].used;
        for _ in 0..free {
            let next = topics.iter_mut().filter(|topic| topic.competes());
            // The first of several.
            let Some(next) = next.min_by_key(|topic| (topic.rank, topic.turn)) else { break };
            next.used += 1;
            next.turn += next.stride;
        }
        topics[me].used - before
    }

    fn topic() -> impl Strategy<Value = Topic> {
        let priority = prop_oneof![Just(Priority::High), Just(Priority::Normal), Just(Priority::Low)];
        (1usize..20, 1usize..20, any::<bool>(), priority, 0u64..40).prop_map(
            |(used, room, waits, priority, turn)| Topic {
                limit: used + room - 1,
                used,
                waiting: waits.into(),
                rank: priority as usize,
                stride: priority.stride(),
                keeps: true,
                turn,
            },
        )
    }

    proptest! {
        #[test]
        fn an_allotment_is_what_one_gets_of_the_permits_one_by_one(
            free in 0usize..60, mut topics in vec(topic(), 1..6), me in 0usize..6, want in 0usize..60, strict: bool,
        ) {
            let me = me % topics.len();
            topics[me].waiting = 1;
            if !strict {
                topics.iter_mut().for_each(|topic| topic.rank = 0);
            }
            let limit = topics.iter().map(|topic| topic.used).sum::<usize>() + free;
            let mine = allotment(limit, &topics, me, want);
            prop_assert_eq!(mine, (one_by_one(free, &mut topics, me).min(want), true));
        }
    }

    #[test]
    fn the_largest_numbers_that_there_are_do_no_harm() {
        let all = [(usize::MAX, Priority::High), (usize::MAX, Priority::Low)];
        for strict in [false, true] {
            let mut topics = Topic::all(usize::MAX, &all, strict);
            assert!(allotment(usize::MAX, &topics, 0, usize::MAX).0 >= usize::MAX - 1);
            topics[0] = Topic { waiting: 1, turn: u64::MAX, ..topics[0] };
            assert!(allotment(usize::MAX, &topics, 1, usize::MAX).0 > 0);
        }
    }
}
