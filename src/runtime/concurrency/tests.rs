use std::time::Duration;

use super::*;
use crate::topic::Priority::{self, High, Low, Normal};
use proptest::collection::vec;
use proptest::prelude::*;

const ALL: [Priority; 3] = [High, Normal, Low];
const PRIORITIES: [Priority; 5] = [High, Normal, Low, Normal, High];

/// Permits of topics with the same limit.
fn permits(limit: usize, priorities: &[Priority], strict: bool) -> Arc<ConcurrencyLimiter> {
    let topics: Vec<_> = priorities.iter().map(|priority| (100_000, *priority)).collect();
    ConcurrencyLimiter::new(limit, &topics, strict)
}

fn normal(limit: usize, limits: &[usize]) -> Arc<ConcurrencyLimiter> {
    let topics: Vec<_> = limits.iter().map(|limit| (*limit, Normal)).collect();
    ConcurrencyLimiter::new(limit, &topics, false)
}

/// Attempts that come and go.
struct World {
    permits: Arc<ConcurrencyLimiter>,
    demands: Vec<Option<Demand>>,
    /// The topics of those that run, in the order in which they began.
    running: Vec<usize>,
    /// How many have begun in each topic.
    begun: Vec<usize>,
}

impl World {
    /// Topics that always have due work.
    fn of(permits: Arc<ConcurrencyLimiter>, topics: usize) -> Self {
        let demands = (0..topics).map(|topic| Some(permits.demand(topic))).collect();
        Self { permits, demands, running: Vec::new(), begun: vec![0; topics] }
    }

    fn used(&self, topic: usize) -> usize {
        self.permits.usage_of(topic).0
    }

    fn is_full(&self) -> bool {
        self.permits.usage().0 == self.permits.limit
    }

    fn begin(&mut self, topic: usize, want: usize) -> usize {
        let taken = self.permits.take(topic, want);
        self.running.extend(std::iter::repeat_n(topic, taken));
        self.begun[topic] += taken;
        taken
    }

    /// All who wait take what they may, one after the other from this one on.
    fn fill(&mut self, first: usize) {
        let count = self.begun.len();
        for topic in (first..first + count).map(|topic| topic % count) {
            if self.demands[topic].is_some() {
                self.begin(topic, usize::MAX);
            }
        }
    }

    /// One of those that run ends.
    fn end(&mut self, number: usize) {
        let topic = self.running.remove(number % self.running.len());
        self.permits.release_slots(topic, 1);
    }

    /// Lets one after the other end and begin.
    fn play(&mut self, moves: impl IntoIterator<Item = (usize, usize)>) {
        self.fill(0);
        for (ends, first) in moves {
            self.end(ends);
            self.fill(first);
        }
    }
}

#[test]
fn a_slow_topic_leaves_a_place_to_each_of_the_others() {
    let permits = normal(10, &[100, 100, 100]);
    assert_eq!(permits.take(0, 50), 8);
    assert_eq!(permits.take(0, 50), 0);
    assert_eq!(permits.take(1, 50), 1);
    assert_eq!(permits.take(2, 50), 1);
    permits.release_slots(0, 3);
    assert_eq!(permits.take(1, 50), 3);
}

#[test]
fn a_topic_that_waits_for_its_turn_keeps_its_place_where_its_share_is_one() {
    // A slow topic has all but one of them, and more to do.
    let slow = |limit, priorities: &[Priority], strict| {
        let mut world = World::of(permits(limit, priorities, strict), 2);
        world.demands[1] = None;
        world.begin(0, 100);
        let mut began = world.begin(1, 1);
        world.demands[1] = Some(world.permits.demand(1));
        // The other's end, one after the other.
        for _ in 1..100 {
            if world.running.last() == Some(&1) {
                world.end(world.running.len() - 1);
            }
            world.begin(0, 100);
            began += world.begin(1, 1);
        }
        began
    };
    assert_eq!(slow(2, &[Normal, Normal], false), 100);
    assert_eq!(slow(7, &[High, Low], false), 100);
    assert_eq!(slow(100, &[Normal, Normal], true), 100);
    // Of less than a place nothing can be kept; and a strict priority is strict.
    assert_eq!(slow(6, &[High, Low], false), 1);
    assert_eq!(slow(100, &[High, Low], true), 1);
}

#[test]
fn a_topic_keeps_to_its_own_limit() {
    let permits = normal(10, &[3]);
    assert_eq!(permits.take(0, 50), 3);
    assert_eq!(permits.take(0, 1), 0);
}

#[test]
fn while_all_have_work_places_are_given_out_by_weight() {
    let mut world = World::of(permits(4, &ALL, false), 3);
    world.play((0..996).map(|number| (0, number)));
    assert_eq!(world.begun, [600, 300, 100]);
}

#[test]
fn what_is_strict_serves_the_highest_that_has_work_and_then_the_next() {
    let mut world = World::of(permits(4, &ALL, true), 3);
    world.play((0..96).map(|number| (number, number)));
    assert_eq!(world.begun, [100, 0, 0]);
    // Each that is idle then keeps a place.
    for (topic, begun) in [(0, [100, 99, 0]), (1, [100, 99, 99])] {
        world.demands[topic] = None;
        world.play((0..100).map(|number| (0, number)));
        assert_eq!(world.begun, begun);
    }
}

#[test]
fn who_had_nothing_to_do_neither_catches_up_nor_waits() {
    let mut world = World::of(permits(4, &[Normal, Normal], false), 2);
    for busy in [1, 0] {
        world.demands[busy] = None;
        world.play((0..1000).map(|number| (0, number)));
        world.demands[busy] = Some(world.permits.demand(busy));
        world.begun = vec![0, 0];
        world.play((0..100).map(|number| (0, number)));
        assert!(world.begun.iter().all(|begun| (48..=54).contains(begun)), "{:?}", world.begun);
    }
}

#[test]
fn what_a_claim_has_no_use_for_costs_no_turns() {
    let mut world = World::of(permits(60, &[Normal, Normal], false), 2);
    world.play((0..600).map(|number| (0, number)));
    (0..10).for_each(|_| world.end(0));
    assert_eq!(world.permits.take(1, usize::MAX), 5);
    world.permits.give_back_unused(1, 4);
    assert_eq!(world.permits.take(0, usize::MAX), 5, "of nine, as if the other had asked for one");
}

/// Whether a topic is told of a permit within a moment.
async fn hears_of_one(demand: &Demand) -> bool {
    tokio::time::timeout(Duration::from_millis(1), demand.free()).await.is_ok()
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_for_a_place_waits_until_there_is_one_and_does_not_take_it() {
    let permits = normal(10, &[2]);
    let demand = permits.demand(0);
    assert!(hears_of_one(&demand).await);
    assert_eq!(permits.take(0, 2), 2);
    assert!(!hears_of_one(&demand).await);
    let back = async { permits.release_slots(0, 1) };
    assert!(tokio::join!(hears_of_one(&demand), back).0);
    assert_eq!(permits.take(0, 2), 1);
}

#[tokio::test(start_paused = true)]
async fn a_place_that_comes_back_may_be_for_another_topic_if_there_was_none_left() {
    // The overall limit, what each topic has taken, and who gives one back to
    // topic 1. Those that have taken nothing keep a permit.
    for (limit, taken, giver) in
        [(4, vec![3, 1], 0), (5, vec![3, 1, 0], 0), (6, vec![3, 1, 0, 0], 0), (1, vec![1, 0], 0)]
    {
        let permits = normal(limit, &vec![100; taken.len()]);
        for (topic, count) in taken.iter().enumerate() {
            assert_eq!(permits.take(topic, *count), *count);
        }
        let demand = permits.demand(1);
        assert!(!hears_of_one(&demand).await);
        let back = async { permits.release_slots(giver, 1) };
        assert!(tokio::join!(hears_of_one(&demand), back).0, "of {limit}: {taken:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_place_that_is_anothers_is_free_once_that_has_no_use_for_it() {
    for strict in [false, true] {
        let permits = permits(1, &[High, Low], strict);
        assert_eq!(permits.take(1, 1), 1);
        let (high, low) = (permits.demand(0), permits.demand(1));
        permits.release_slots(1, 1);
        assert!(!hears_of_one(&low).await && hears_of_one(&high).await);
        assert_eq!(permits.take(1, 1), 0);
        let gone = async { drop(high) };
        assert!(tokio::join!(hears_of_one(&low), gone).0);
        assert_eq!(permits.take(1, 1), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_place_that_was_kept_is_free_once_its_topic_waits_for_its_turn() {
    let permits = permits(2, &[High, Low], true);
    let high = permits.demand(0);
    assert_eq!(permits.take(0, 2), 1);
    assert!(!hears_of_one(&high).await);
    let (hears, low) = tokio::join!(hears_of_one(&high), async { permits.demand(1) });
    assert!(hears);
    drop(low);
    assert!(!hears_of_one(&high).await);
}

proptest! {
    #[test]
    fn no_limit_is_ever_exceeded_and_nobody_starves(
        limit in 1usize..12, limits in vec(1usize..8, 1..5),
        steps in vec((0usize..4, 0usize..5, 0usize..9), 0..60),
    ) {
        let permits = normal(limit, &limits);
        let mut used = vec![0; limits.len()];
        let mut demands: Vec<_> = limits.iter().map(|_| None).collect();
        for (step, topic, count) in steps {
            let topic = topic % limits.len();
            let back = count.min(used[topic]);
            match step {
                0 => {
                    let idle = used[topic] == 0;
                    let free = limit - used.iter().sum::<usize>();
                    let taken = permits.take(topic, count);
                    prop_assert!(taken <= count);
                    let kept = limit >= limits.len();
                    prop_assert!(!(idle && count > 0 && taken == 0 && kept), "starved with {free} free");
                    used[topic] += taken;
                }
                1 => permits.release_slots(topic, back),
                2 => permits.give_back_unused(topic, back),
                _ => demands[topic] = demands[topic].take().xor(Some(permits.demand(topic))),
            }
            used[topic] -= if matches!(step, 1 | 2) { back } else { 0 };
            prop_assert!(used.iter().sum::<usize>() <= limit);
            prop_assert!(used.iter().zip(&limits).all(|(used, limit)| used <= limit));
            prop_assert_eq!(permits.usage(), (used.iter().sum(), limit));
        }
    }

    #[test]
    fn nobody_waits_for_more_than_its_turn(
        limit in 1usize..30, count in 1usize..=5, firsts in vec(0usize..5, 300),
    ) {
        let mut world = World::of(permits(limit, &PRIORITIES[..count], false), count);
        world.fill(0);
        let mut since = vec![0; count];
        for first in firsts {
            let before = world.begun.clone();
            world.end(0);
            world.fill(first);
            for (topic, since) in since.iter_mut().enumerate() {
                let waits = world.begun[topic] == before[topic] && world.used(topic) == 0;
                *since = if waits { *since + 1 } else { 0 };
                // While its turn moves on by one stride, the others move on by as much, and each by one more.
                let others = PRIORITIES[..count].iter().map(|other| 6 / other.stride() as usize + 2).sum::<usize>();
                prop_assert!(*since <= others, "{topic} waits for {since}");
            }
        }
    }

    /// Of attempts that take equally long; of others, too, where so many run that the places that are kept make no
    /// difference. Whoever comes first.
    #[test]
    fn after_a_thousand_places_shares_are_within_a_twentieth_of_the_weights(
        limit in 3usize..150, moves in vec((any::<usize>(), 0usize..5), 1000), count in 1usize..=5,
    ) {
        let priorities = &PRIORITIES[..count];
        let mut world = World::of(permits(limit, priorities, false), count);
        world.play(moves.into_iter().map(|(ends, first)| (if limit < 100 { 0 } else { ends }, first)));
        let all = world.begun.iter().sum::<usize>() as f64;
        let weights = priorities.iter().map(|priority| priority.weight()).sum::<usize>() as f64;
        for (begun, priority) in world.begun.iter().zip(priorities) {
            let share = *begun as f64 / (all * priority.weight() as f64 / weights);
            prop_assert!((0.95..=1.05).contains(&share), "{priority:?}: {share} of its share of {limit}");
        }
    }

    #[test]
    fn nothing_is_free_while_somebody_could_use_it_but_what_is_kept_for_idle_topics(
        limit in 1usize..30, limits in vec(1usize..12, 1..=5), strict: bool,
        moves in vec((0usize..3, any::<usize>(), 0usize..5), 0..100),
    ) {
        let topics: Vec<_> = limits.iter().copied().zip(PRIORITIES).collect();
        let mut world = World::of(ConcurrencyLimiter::new(limit, &topics, strict), topics.len());
        for (step, number, topic) in moves {
            let topic = topic % topics.len();
            match step {
                0 => world.demands[topic] = None,
                1 => world.demands[topic] = Some(world.permits.demand(topic)),
                _ if world.running.is_empty() => {}
                _ => world.end(number),
            }
            world.fill(topic);
            let idle = |topic: &usize| world.demands[*topic].is_none() && world.used(*topic) == 0;
            let kept = (0..topics.len()).filter(idle).count();
            let free = world.permits.limit - world.permits.usage().0;
            let could = |topic: &usize| world.demands[*topic].is_some() && world.used(*topic) < topics[*topic].0;
            prop_assert!(free <= kept || !(0..topics.len()).any(|topic| could(&topic)), "{free} free, {kept} kept");
        }
    }

    /// What comes back goes to nobody while one of a higher priority could use it.
    #[test]
    fn what_is_strict_never_serves_a_lower_one_while_a_higher_one_waits(
        limit in 1usize..30, moves in vec((any::<usize>(), 0usize..5), 0..100),
    ) {
        let mut world = World::of(permits(limit, &PRIORITIES, true), 5);
        world.play(moves);
        prop_assert!(world.is_full());
        prop_assert!(world.begun.iter().zip(PRIORITIES).all(|(begun, priority)| priority == High || *begun == 0));
        prop_assert!(limit == 1 || world.begun[0] > 0 && world.begun[4] > 0, "those of one priority take turns");
    }
}

/// One permit after the other, each to whoever's turn is the earliest.
fn one_by_one(free: usize, topics: &mut [TopicShare], me: usize) -> usize {
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

fn topic() -> impl Strategy<Value = TopicShare> {
    let priority = prop_oneof![Just(Priority::High), Just(Priority::Normal), Just(Priority::Low)];
    (1usize..20, 1usize..20, any::<bool>(), priority, 0u64..40).prop_map(
        |(used, room, waits, priority, turn)| TopicShare {
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
        let mut topics = TopicShare::all(usize::MAX, &all, strict);
        assert!(allotment(usize::MAX, &topics, 0, usize::MAX).0 >= usize::MAX - 1);
        topics[0] = TopicShare { waiting: 1, turn: u64::MAX, ..topics[0] };
        assert!(allotment(usize::MAX, &topics, 1, usize::MAX).0 > 0);
    }
}
