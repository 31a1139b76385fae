use bytes::Bytes;

use super::*;
use crate::id::Token;
use crate::lapse::Lapse;
use crate::listener::Listener;
use crate::outcome::{Done, Failure};
use crate::roles::expirer::touches;
use crate::time::ServerTime;
use crate::topic::Topic;
use crate::wire::{Claimed, ClaimedTimer, Heads, MemoryStore};

/// What the server's clock shows in these tests, in ms.
const NOW: u64 = 1_000_000;

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

async fn succeed(_: Lapse<u32>) -> Result<Done, Failure> {
    Ok(Done)
}

fn claimer() -> Claimer {
    let store = MemoryStore::new();
    let listener = Listener::builder_on(store.clone()).on(Topic::new("a:{id}").unwrap(), succeed).build();
    let (touches, _) = touches(Arc::new(store.clone()));
    let partition = listener.unwrap().runtime().partitions[0].clone();
    Claimer::new(Arc::new(store), partition, Starter::new(true).unwrap(), touches)
}

/// One that has looked before.
fn settled_in() -> Claimer {
    let mut claimer = claimer();
    claimer.looked = true;
    claimer.planned = None;
    claimer
}

fn reading() -> Reading {
    Reading::now(ServerTime::from_ms(NOW))
}

/// An answer with this head, and as many timers.
fn answer(due: Option<u64>, timers: usize) -> Taken {
    let timer =
        || ClaimedTimer { key: Bytes::from_static(b"a:1"), record: Bytes::from_static(b"?"), state: None };
    let claimed = Claimed {
        stamp: ServerTime::from_ms(NOW),
        heads: Heads { due, solo: None },
        paused: None,
        timers: std::iter::repeat_with(timer).take(timers).collect(),
        orphans: 0,
        parked: 0,
        buried: 0,
        trimmed: 0,
        rival: false,
    };
    Taken { claimed, token: Token([1; 8]), since: Instant::now(), reading: reading() }
}

fn from_rival(due: Option<u64>) -> Taken {
    let mut taken = answer(due, 0);
    taken.claimed.rival = true;
    taken
}

fn head(ms: u64) -> Option<Head> {
    Some(Head { ms, at: reading().when(ms), exactly: false })
}

fn is_beaten(claimer: &Claimer) -> bool {
    claimer.leadership != Leadership::default()
}

#[tokio::test(start_paused = true)]
async fn only_a_rival_that_took_what_the_timer_woke_for_beats() {
    let after = |taken: Taken, woke_for, source| {
        let mut claimer = settled_in();
        claimer.learn(&taken, woke_for, source);
        is_beaten(&claimer)
    };
    assert!(after(from_rival(Some(NOW + 1)), head(NOW), Source::Timer));
    assert!(after(from_rival(None), head(NOW), Source::Timer));

    assert!(!after(answer(Some(NOW + 1), 0), head(NOW), Source::Timer), "it was cancelled");
    assert!(!after(from_rival(Some(NOW)), head(NOW), Source::Timer), "it is still there");
    assert!(!after(from_rival(Some(NOW - 1)), head(NOW), Source::Timer), "something earlier is there");
    assert!(!after(from_rival(Some(NOW + 1)), head(NOW), Source::Sweep), "it did not wake for it");
    assert!(!after(from_rival(Some(NOW + 1)), None, Source::Timer), "it woke for nothing");
}

#[tokio::test(start_paused = true)]
async fn whoever_finds_something_leads_again_and_does_not_rest() {
    let mut claimer = settled_in();
    claimer.learn(&from_rival(None), head(NOW), Source::Timer);
    assert!(is_beaten(&claimer));
    let rested = claimer.rested;
    tokio::time::advance(ms(100)).await;
    claimer.learn(&answer(None, 1), head(NOW), Source::Timer);
    assert!(!is_beaten(&claimer));
    assert_eq!(claimer.rested, rested);
}

#[tokio::test(start_paused = true)]
async fn after_an_empty_look_what_is_due_waits_a_little_but_what_is_not_yet_due_keeps_its_time() {
    for (due, at) in [(NOW - 9, 5), (NOW, 5), (NOW + 1, 1), (NOW + 9, 9)] {
        let mut claimer = settled_in();
        claimer.learn(&answer(Some(due), 0), None, Source::Sweep);
        let head = claimer.head.unwrap();
        assert_eq!((head.ms, head.at), (due, Instant::now() + ms(at)));
        assert!(head.exactly, "an early look has just come away empty");
    }
}

#[tokio::test(start_paused = true)]
async fn the_first_look_of_all_puts_nothing_off() {
    let mut claimer = claimer();
    claimer.learn(&answer(Some(NOW), 0), None, Source::Sweep);
    assert_eq!(claimer.head.unwrap().at, Instant::now());
    claimer.learn(&answer(Some(NOW), 0), None, Source::Sweep);
    assert_eq!(claimer.head.unwrap().at, Instant::now() + EMPTY_PAUSE);
}

#[tokio::test(start_paused = true)]
async fn after_a_full_look_the_next_head_is_looked_for_ahead_of_its_time() {
    let mut claimer = settled_in();
    claimer.learn(&answer(Some(NOW + 9), 1), None, Source::Timer);
    assert!(!claimer.head.unwrap().exactly);
}

#[tokio::test(start_paused = true)]
async fn a_paused_partition_has_no_head() {
    let mut claimer = settled_in();
    let mut taken = answer(Some(NOW + 9), 0);
    taken.claimed.paused = Some("for now".into());
    claimer.learn(&taken, None, Source::Timer);
    assert!(claimer.head.is_none());
}

#[tokio::test(start_paused = true)]
async fn news_of_an_earlier_head_counts_and_of_a_later_or_the_same_does_not() {
    let mut claimer = settled_in();
    let told = |claimer: &mut Claimer, ms| {
        claimer.partition.wakeup.head(ms);
        claimer.read_news(Some(reading()));
        let head = claimer.head.unwrap();
        assert_eq!(head.at, reading().when(head.ms));
        (head.ms, head.exactly)
    };
    assert_eq!(told(&mut claimer, NOW + 50), (NOW + 50, false));
    assert_eq!(told(&mut claimer, NOW + 60), (NOW + 50, false));
    assert_eq!(told(&mut claimer, NOW + 40), (NOW + 40, false));
    claimer.head.as_mut().unwrap().exactly = true;
    assert_eq!(told(&mut claimer, NOW + 40), (NOW + 40, true), "an early look need not be made twice");
}

#[tokio::test(start_paused = true)]
async fn news_during_a_rest_waits_for_its_end_and_is_then_looked_for_at_once() {
    let mut claimer = settled_in();
    claimer.rested = Instant::now() + ms(5);
    let told = |claimer: &mut Claimer, ms| {
        claimer.head = None;
        claimer.partition.wakeup.head(ms);
        claimer.read_news(Some(reading()));
        let head = claimer.head.unwrap();
        (head.at - Instant::now(), head.exactly)
    };
    assert_eq!(told(&mut claimer, NOW + 2), (ms(5), true));
    assert_eq!(told(&mut claimer, NOW + 5), (ms(5), false), "it is not put off");
    assert_eq!(told(&mut claimer, NOW + 9), (ms(9), false));
}

#[tokio::test(start_paused = true)]
async fn the_earliest_planned_look_stands_with_the_first_reason_for_it() {
    let mut claimer = settled_in();
    let now = Instant::now();
    let told = |claimer: &mut Claimer, at, source| {
        claimer.partition.wakeup.look(at, source);
        claimer.read_news(Some(reading()));
        claimer.planned
    };
    assert_eq!(
        told(&mut claimer, now + ms(9), Source::Notification),
        Some((now + ms(9), Source::Notification))
    );
    assert_eq!(told(&mut claimer, now + ms(9), Source::Sweep), Some((now + ms(9), Source::Notification)));
    assert_eq!(told(&mut claimer, now + ms(20), Source::Sweep), Some((now + ms(9), Source::Notification)));
    assert_eq!(told(&mut claimer, now, Source::Sweep), Some((now, Source::Sweep)));
}

#[tokio::test(start_paused = true)]
async fn a_head_without_a_reading_of_the_servers_clock_is_looked_for_at_once() {
    let mut claimer = settled_in();
    claimer.partition.wakeup.head(NOW + 50);
    claimer.read_news(None);
    assert_eq!(claimer.planned, Some((Instant::now(), Source::Timer)));
    assert!(claimer.head.is_none());
}
