use std::time::Duration;

use super::*;
use crate::topic::Priority::{self, High, Low, Normal};
use proptest::collection::vec;
use proptest::prelude::*;

const ALL: [Priority; 3] = [High, Normal, Low];
const PRIORITIES: [Priority; 5] = [High, Normal, Low, Normal, High];

/// Creates a limiter of topics with the same limit.
fn limiter(limit: usize, priorities: &[Priority], strict: bool) -> Arc<ConcurrencyLimiter> {
    let topics: Vec<_> = priorities.iter().map(|priority| (100_000, *priority)).collect();
    ConcurrencyLimiter::new(limit, &topics, strict)
}

fn normal(limit: usize, limits: &[usize]) -> Arc<ConcurrencyLimiter> {
    let topics: Vec<_> = limits.iter().map(|limit| (*limit, Normal)).collect();
    ConcurrencyLimiter::new(limit, &topics, false)
}

/// Running attempts in several topics.
struct World {
    limiter: Arc<ConcurrencyLimiter>,
    demands: Vec<Option<Demand>>,
    /// The topics of running attempts, in the order of their start.
    running: Vec<usize>,
    /// The number of started attempts of each topic.
    begun: Vec<usize>,
}

impl World {
    /// Creates topics that always have due work.
    fn of(limiter: Arc<ConcurrencyLimiter>, topics: usize) -> Self {
        let demands = (0..topics).map(|topic| Some(limiter.demand(topic))).collect();
        Self { limiter, demands, running: Vec::new(), begun: vec![0; topics] }
    }

    fn used(&self, topic: usize) -> usize {
        self.limiter.usage_of(topic).0
    }

    fn is_full(&self) -> bool {
        self.limiter.usage().0 == self.limiter.limit
    }

    fn begin(&mut self, topic: usize, want: usize) -> usize {
        let taken = self.limiter.take_slots(topic, want);
        self.running.extend(std::iter::repeat_n(topic, taken));
        self.begun[topic] += taken;
        taken
    }

    /// Each topic with due work takes as many slots as it may, starting with `first`.
    fn fill(&mut self, first: usize) {
        let count = self.begun.len();
        for topic in (first..first + count).map(|topic| topic % count) {
            if self.demands[topic].is_some() {
                self.begin(topic, usize::MAX);
            }
        }
    }

    /// Ends a running attempt.
    fn end(&mut self, number: usize) {
        let topic = self.running.remove(number % self.running.len());
        self.limiter.release_slots(topic, 1);
    }

    /// Ends attempts one by one, and starts new ones after each.
    fn play(&mut self, moves: impl IntoIterator<Item = (usize, usize)>) {
        self.fill(0);
        for (ends, first) in moves {
            self.end(ends);
            self.fill(first);
        }
    }
}

#[test]
fn a_slow_topic_leaves_a_slot_to_each_other_topic() {
    let limiter = normal(10, &[100, 100, 100]);
    assert_eq!(limiter.take_slots(0, 50), 8);
    assert_eq!(limiter.take_slots(0, 50), 0);
    assert_eq!(limiter.take_slots(1, 50), 1);
    assert_eq!(limiter.take_slots(2, 50), 1);
    limiter.release_slots(0, 3);
    assert_eq!(limiter.take_slots(1, 50), 3);
}

#[test]
fn a_topic_whose_share_is_a_slot_keeps_it_while_it_waits_for_its_turn() {
    // A slow topic has all slots but one, and more due work.
    let slow = |limit, priorities: &[Priority], strict| {
        let mut world = World::of(limiter(limit, priorities, strict), 2);
        world.demands[1] = None;
        world.begin(0, 100);
        let mut began = world.begin(1, 1);
        world.demands[1] = Some(world.limiter.demand(1));
        // Only attempts of the other topic end, one after the other.
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
    // A share of less than a slot cannot be reserved, and strict priorities reserve no share.
    assert_eq!(slow(6, &[High, Low], false), 1);
    assert_eq!(slow(100, &[High, Low], true), 1);
}

#[test]
fn a_topic_keeps_to_its_own_limit() {
    let limiter = normal(10, &[3]);
    assert_eq!(limiter.take_slots(0, 50), 3);
    assert_eq!(limiter.take_slots(0, 1), 0);
}

#[test]
fn slots_are_shared_by_weight_while_all_have_work() {
    let mut world = World::of(limiter(4, &ALL, false), 3);
    world.play((0..996).map(|number| (0, number)));
    assert_eq!(world.begun, [600, 300, 100]);
}

#[test]
fn strict_priorities_serve_the_highest_with_work_first() {
    let mut world = World::of(limiter(4, &ALL, true), 3);
    world.play((0..96).map(|number| (number, number)));
    assert_eq!(world.begun, [100, 0, 0]);
    // Each idle topic then reserves a slot.
    for (topic, begun) in [(0, [100, 99, 0]), (1, [100, 99, 99])] {
        world.demands[topic] = None;
        world.play((0..100).map(|number| (0, number)));
        assert_eq!(world.begun, begun);
    }
}

#[test]
fn an_idle_topic_neither_catches_up_nor_waits() {
    let mut world = World::of(limiter(4, &[Normal, Normal], false), 2);
    for busy in [1, 0] {
        world.demands[busy] = None;
        world.play((0..1000).map(|number| (0, number)));
        world.demands[busy] = Some(world.limiter.demand(busy));
        world.begun = vec![0, 0];
        world.play((0..100).map(|number| (0, number)));
        assert!(world.begun.iter().all(|begun| (48..=54).contains(begun)), "{:?}", world.begun);
    }
}

#[test]
fn unused_slots_cost_no_turns() {
    let mut world = World::of(limiter(60, &[Normal, Normal], false), 2);
    world.play((0..600).map(|number| (0, number)));
    (0..10).for_each(|_| world.end(0));
    assert_eq!(world.limiter.take_slots(1, usize::MAX), 5);
    world.limiter.release_unused_slots(1, 4);
    assert_eq!(
        world.limiter.take_slots(0, usize::MAX),
        5,
        "of nine, as if the other topic had requested one"
    );
}

/// Returns whether a topic is woken for a slot within 1 ms.
async fn is_woken_for_one(demand: &Demand) -> bool {
    tokio::time::timeout(Duration::from_millis(1), demand.wait_for_slot()).await.is_ok()
}

#[tokio::test(start_paused = true)]
async fn waiting_for_a_slot_does_not_take_it() {
    let limiter = normal(10, &[2]);
    let demand = limiter.demand(0);
    assert!(is_woken_for_one(&demand).await);
    assert_eq!(limiter.take_slots(0, 2), 2);
    assert!(!is_woken_for_one(&demand).await);
    let back = async { limiter.release_slots(0, 1) };
    assert!(tokio::join!(is_woken_for_one(&demand), back).0);
    assert_eq!(limiter.take_slots(0, 2), 1);
}

#[tokio::test(start_paused = true)]
async fn a_released_slot_may_go_to_another_topic() {
    // The overall limit, the slots that each topic has taken, and the topic that releases one for topic 1. A topic
    // without slots has one reserved.
    for (limit, taken, giver) in
        [(4, vec![3, 1], 0), (5, vec![3, 1, 0], 0), (6, vec![3, 1, 0, 0], 0), (1, vec![1, 0], 0)]
    {
        let limiter = normal(limit, &vec![100; taken.len()]);
        for (topic, count) in taken.iter().enumerate() {
            assert_eq!(limiter.take_slots(topic, *count), *count);
        }
        let demand = limiter.demand(1);
        assert!(!is_woken_for_one(&demand).await);
        let back = async { limiter.release_slots(giver, 1) };
        assert!(tokio::join!(is_woken_for_one(&demand), back).0, "of {limit}: {taken:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_slot_of_another_topic_is_free_once_that_topic_is_idle() {
    for strict in [false, true] {
        let limiter = limiter(1, &[High, Low], strict);
        assert_eq!(limiter.take_slots(1, 1), 1);
        let (high, low) = (limiter.demand(0), limiter.demand(1));
        limiter.release_slots(1, 1);
        assert!(!is_woken_for_one(&low).await && is_woken_for_one(&high).await);
        assert_eq!(limiter.take_slots(1, 1), 0);
        let gone = async { drop(high) };
        assert!(tokio::join!(is_woken_for_one(&low), gone).0);
        assert_eq!(limiter.take_slots(1, 1), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_reserved_slot_is_free_once_its_topic_waits_for_its_turn() {
    let limiter = limiter(2, &[High, Low], true);
    let high = limiter.demand(0);
    assert_eq!(limiter.take_slots(0, 2), 1);
    assert!(!is_woken_for_one(&high).await);
    let (woken, low) = tokio::join!(is_woken_for_one(&high), async { limiter.demand(1) });
    assert!(woken);
    drop(low);
    assert!(!is_woken_for_one(&high).await);
}

proptest! {
    #[test]
    fn no_limit_is_exceeded_and_no_topic_starves(
        limit in 1usize..12, limits in vec(1usize..8, 1..5),
        steps in vec((0usize..4, 0usize..5, 0usize..9), 0..60),
    ) {
        let limiter = normal(limit, &limits);
        let mut used = vec![0; limits.len()];
        let mut demands: Vec<_> = limits.iter().map(|_| None).collect();
        for (step, topic, count) in steps {
            let topic = topic % limits.len();
            let back = count.min(used[topic]);
            match step {
                0 => {
                    let idle = used[topic] == 0;
                    let free = limit - used.iter().sum::<usize>();
                    let taken = limiter.take_slots(topic, count);
                    prop_assert!(taken <= count);
                    let kept = limit >= limits.len();
                    prop_assert!(!(idle && count > 0 && taken == 0 && kept), "starved with {free} free");
                    used[topic] += taken;
                }
                1 => limiter.release_slots(topic, back),
                2 => limiter.release_unused_slots(topic, back),
                _ => demands[topic] = demands[topic].take().xor(Some(limiter.demand(topic))),
            }
            used[topic] -= if matches!(step, 1 | 2) { back } else { 0 };
            prop_assert!(used.iter().sum::<usize>() <= limit);
            prop_assert!(used.iter().zip(&limits).all(|(used, limit)| used <= limit));
            prop_assert_eq!(limiter.usage(), (used.iter().sum(), limit));
        }
    }

    #[test]
    fn no_topic_waits_longer_than_its_turn(
        limit in 1usize..30, count in 1usize..=5, firsts in vec(0usize..5, 300),
    ) {
        let mut world = World::of(limiter(limit, &PRIORITIES[..count], false), count);
        world.fill(0);
        let mut since = vec![0; count];
        for first in firsts {
            let before = world.begun.clone();
            world.end(0);
            world.fill(first);
            for (topic, since) in since.iter_mut().enumerate() {
                let waits = world.begun[topic] == before[topic] && world.used(topic) == 0;
                *since = if waits { *since + 1 } else { 0 };
                // While its turn advances by one stride, each other turn advances by as much, plus one slot.
                let others = PRIORITIES[..count].iter().map(|other| 6 / other.stride() as usize + 2).sum::<usize>();
                prop_assert!(*since <= others, "{topic} waits for {since}");
            }
        }
    }

    /// For attempts of equal duration in any order. With 100 or more slots also for other durations, because reserved
    /// slots then make no difference.
    #[test]
    fn after_a_thousand_slots_shares_are_within_five_percent_of_the_weights(
        limit in 3usize..150, moves in vec((any::<usize>(), 0usize..5), 1000), count in 1usize..=5,
    ) {
        let priorities = &PRIORITIES[..count];
        let mut world = World::of(limiter(limit, priorities, false), count);
        world.play(moves.into_iter().map(|(ends, first)| (if limit < 100 { 0 } else { ends }, first)));
        let all = world.begun.iter().sum::<usize>() as f64;
        let weights = priorities.iter().map(|priority| priority.weight()).sum::<usize>() as f64;
        for (begun, priority) in world.begun.iter().zip(priorities) {
            let share = *begun as f64 / (all * priority.weight() as f64 / weights);
            prop_assert!((0.95..=1.05).contains(&share), "{priority:?}: {share} of its share of {limit}");
        }
    }

    #[test]
    fn only_slots_reserved_for_idle_topics_stay_free_while_others_wait(
        limit in 1usize..30, limits in vec(1usize..12, 1..=5), strict: bool,
        moves in vec((0usize..3, any::<usize>(), 0usize..5), 0..100),
    ) {
        let topics: Vec<_> = limits.iter().copied().zip(PRIORITIES).collect();
        let mut world = World::of(ConcurrencyLimiter::new(limit, &topics, strict), topics.len());
        for (step, number, topic) in moves {
            let topic = topic % topics.len();
            match step {
                0 => world.demands[topic] = None,
                1 => world.demands[topic] = Some(world.limiter.demand(topic)),
                _ if world.running.is_empty() => {}
                _ => world.end(number),
            }
            world.fill(topic);
            let idle = |topic: &usize| world.demands[*topic].is_none() && world.used(*topic) == 0;
            let kept = (0..topics.len()).filter(idle).count();
            let free = world.limiter.limit - world.limiter.usage().0;
            let could = |topic: &usize| world.demands[*topic].is_some() && world.used(*topic) < topics[*topic].0;
            prop_assert!(free <= kept || !(0..topics.len()).any(|topic| could(&topic)), "{free} free, {kept} kept");
        }
    }

    /// A released slot goes to no lower priority while a higher one waits.
    #[test]
    fn strict_priorities_never_serve_a_lower_one_while_a_higher_one_waits(
        limit in 1usize..30, moves in vec((any::<usize>(), 0usize..5), 0..100),
    ) {
        let mut world = World::of(limiter(limit, &PRIORITIES, true), 5);
        world.play(moves);
        prop_assert!(world.is_full());
        prop_assert!(world.begun.iter().zip(PRIORITIES).all(|(begun, priority)| priority == High || *begun == 0));
        prop_assert!(limit == 1 || world.begun[0] > 0 && world.begun[4] > 0, "topics of one priority take turns");
    }
}

/// Assigns slots one by one to the topic with the earliest turn. Returns how many `me` gets.
fn one_by_one(free: usize, topics: &mut [TopicShare], me: usize) -> usize {
    let before = topics[me].used;
    for _ in 0..free {
        let next = topics.iter_mut().filter(|topic| topic.competes());
        // `min_by_key` returns the first of equal topics.
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
            demands: waits.into(),
            rank: priority as usize,
            stride: priority.stride(),
            reserves: true,
            turn,
        },
    )
}

proptest! {
    #[test]
    fn an_allotment_equals_slots_assigned_one_by_one(
        free in 0usize..60, mut topics in vec(topic(), 1..6), me in 0usize..6, want in 0usize..60, strict: bool,
    ) {
        let me = me % topics.len();
        topics[me].demands = 1;
        if !strict {
            topics.iter_mut().for_each(|topic| topic.rank = 0);
        }
        let limit = topics.iter().map(|topic| topic.used).sum::<usize>() + free;
        let mine = allotment(limit, &topics, me, want);
        prop_assert_eq!(mine, (one_by_one(free, &mut topics, me).min(want), true));
    }
}

#[test]
fn the_largest_numbers_do_not_overflow() {
    let all = [(usize::MAX, Priority::High), (usize::MAX, Priority::Low)];
    for strict in [false, true] {
        let mut topics = TopicShare::all(usize::MAX, &all, strict);
        assert!(allotment(usize::MAX, &topics, 0, usize::MAX).0 >= usize::MAX - 1);
        topics[0] = TopicShare { demands: 1, turn: u64::MAX, ..topics[0] };
        assert!(allotment(usize::MAX, &topics, 1, usize::MAX).0 > 0);
    }
}
