//! Tales of several servers.

use super::*;
use crate::job::shard_of;
use crate::verdict::Weather;

/// Of another partition than `KEY`.
const ELSEWHERE: &str = "sharded:3";
const KEY: &str = "sharded:a";

fn shard() -> u32 {
    shard_of(KEY).expect("it is a key of ours")
}

impl Tale {
    /// Armed at this time for 100 ms later, and acknowledged at once; `reached`: by the replicas that were asked for, too.
    fn sharded(self, ms: u64, key: &str, reached: Option<bool>) -> Self {
        let asked = Entry::ArmAsked { n: 1, key: key.to_owned(), work: Work::Succeed, delay_ms: 100 };
        let told = Entry::ArmTold { n: 1, told: Told::Armed, deadline: Some((ms + 100) * 1000), reached };
        self.then(ms, PRODUCER, asked).then(ms, PRODUCER, told)
    }

    fn ran_sharded(self, ms: u64, key: &str) -> Self {
        let (key, source) = (key.to_owned(), "timer".to_owned());
        let started = Entry::Started { n: 1, key, attempt: 1, deadline: 100_000, source };
        self.then(ms, LISTENER, started).ended(ms + 10, LISTENER, (1, 1), End::Done)
    }

    /// The server of `KEY` falls at this time, another takes its place two seconds later, and has this.
    fn succeeded(self, since: u64, held: &[u64]) -> Self {
        self.succession(since, held, false)
    }

    fn succession(self, since: u64, held: &[u64], is_orderly: bool) -> Self {
        let held = Held { numbers: held.to_vec(), ..Held::default() };
        self.fell(since, SERVER, vec![shard()], held, is_orderly)
    }
}

#[test]
fn keys_of_the_tales_lie_apart() {
    assert_ne!(shard_of(ELSEWHERE), shard_of(KEY));
}

#[test]
fn what_was_acknowledged_alone_and_never_reached_the_new_server_is_unreplicated() {
    let report = Tale::new().sharded(0, KEY, None).succeeded(30, &[]).judged(&[]);
    assert!(report.is_valid(), "{:?}", report.findings);
    assert_eq!(report.shards.unreplicated, [30_000]);
    assert_eq!(report.shards.promoted_after, Some(2_000_000));
}

/// The harness learns late who has the place: nobody else had it for the first quarter of a second.
#[test]
fn an_answer_that_is_read_just_after_the_fall_was_sent_before() {
    let read = |ms| {
        let asked = Entry::ArmAsked { n: 1, key: KEY.to_owned(), work: Work::Succeed, delay_ms: 5000 };
        let told = Entry::ArmTold { n: 1, told: Told::Armed, deadline: Some(5_100_000), reached: None };
        let one = succession(30, SERVER, vec![shard()], Held::default(), false);
        let unseen = Succession { sole_until: one.since, ..one };
        Tale::new().then(10, PRODUCER, asked).then(ms, PRODUCER, told).followed(30, unseen)
    };
    finds(read(90), &[]);
    finds(read(300), &[Wrong::Lost]);
}

#[test]
fn what_the_replicas_had_is_lost() {
    finds(Tale::new().sharded(0, KEY, Some(true)).succeeded(30, &[]), &[Wrong::Lost]);
    finds(Tale::new().sharded(0, KEY, Some(false)).succeeded(30, &[]), &[]);
}

#[test]
fn what_the_new_server_had_is_lost_if_it_has_no_end() {
    finds(Tale::new().sharded(0, KEY, None).succeeded(30, &[1]), &[Wrong::Lost]);
}

#[test]
fn what_is_kept_elsewhere_or_is_old_or_new_is_lost_if_it_has_no_end() {
    finds(Tale::new().sharded(0, ELSEWHERE, None).succeeded(30, &[]), &[Wrong::Lost]);
    finds(Tale::new().sharded(0, KEY, None).succeeded(1_100, &[]), &[Wrong::Lost]);
    finds(Tale::new().sharded(2_040, KEY, None).succeeded(30, &[]), &[Wrong::Lost]);
}

#[test]
fn what_the_new_server_began_and_did_not_end_is_lost() {
    let tale = Tale::new().sharded(0, KEY, None).succeeded(30, &[]);
    let started = Entry::Started {
        n: 1,
        key: KEY.to_owned(),
        attempt: 1,
        deadline: 100_000,
        source: "sweep".to_owned(),
    };
    finds(tale.then(2_100, LISTENER, started), &[Wrong::Lost]);
}

#[test]
fn what_ran_just_before_its_server_fell_may_run_again_and_what_is_kept_elsewhere_may_not() {
    let again = |key| Tale::new().sharded(0, key, None).ran_sharded(101, key).ran_sharded(2_600, key);
    finds(again(KEY).succeeded(200, &[1]), &[]);
    finds(again(ELSEWHERE).succeeded(200, &[]), &[Wrong::Unexplained]);
    finds(again(KEY).succeeded(5_000, &[1]), &[Wrong::Unexplained]);
    finds(again(KEY), &[Wrong::Unexplained]);
}

#[test]
fn a_server_that_gave_its_place_away_with_all_it_had_explains_nothing() {
    let again = Tale::new().sharded(0, KEY, None).ran_sharded(101, KEY).ran_sharded(2_600, KEY);
    finds(again.succession(200, &[1], true), &[Wrong::Unexplained]);
    finds(Tale::new().sharded(0, KEY, None).succession(30, &[], true), &[Wrong::Lost]);
}

#[test]
fn what_starts_early_is_found_though_its_server_falls() {
    finds(Tale::new().sharded(0, KEY, None).ran_sharded(90, KEY).succeeded(30, &[1]), &[Wrong::Early]);
}

#[test]
fn a_server_out_of_reach_for_a_lease_explains_what_is_kept_there_alone() {
    let tale = |key, until: u64| {
        let tale = Tale::new().sharded(0, key, None).ran_sharded(101, key).ran_sharded(2_600, key);
        tale.then(until, HARNESS, cut(90_000, None, Some(vec![shard()])))
    };
    finds(tale(KEY, 1_500), &[]);
    finds(tale(KEY, 100), &[Wrong::Unexplained]);
    finds(tale(ELSEWHERE, 1_500), &[Wrong::Unexplained]);
}

#[test]
fn a_process_that_is_kept_from_a_server_that_is_back_explains_what_is_kept_there_alone() {
    let tale = |key, stopped: u64| {
        let tale = Tale::new().sharded(0, key, None).ran_sharded(101, key).ran_sharded(2_600, key);
        let tale = tale.then(150, HARNESS, cut(90_000, None, Some(vec![shard()])));
        tale.outage(stopped, stopped + 700, Some("listener 0"))
    };
    finds(tale(KEY, 700), &[]);
    finds(tale(KEY, 1_600), &[Wrong::Unexplained]);
    finds(tale(ELSEWHERE, 700), &[Wrong::Unexplained]);
}

#[test]
fn lateness_is_counted_where_a_server_was_replaced_and_elsewhere() {
    let tale = |key| Tale::new().sharded(0, key, None).ran_sharded(2_100, key).succeeded(50, &[1]);
    let late = |tale: Tale| tale.judged(&[]).shards.late.into_iter().collect::<Vec<_>>();
    assert_eq!(late(tale(KEY)), [(Weather::Failed, vec![2_000_000])]);
    assert_eq!(late(tale(ELSEWHERE)), [(Weather::Calm, vec![2_000_000])]);
    let caught_up = |tale: Tale| tale.judged(&[]).shards.caught_up_after;
    assert_eq!((caught_up(tale(KEY)), caught_up(tale(ELSEWHERE))), (Some(50_000), None));
    let moved = |tale: Tale| tale.then(150, HARNESS, Entry::Moved { since: 60_000, slots: 1 });
    assert_eq!(late(moved(tale(ELSEWHERE))), [(Weather::Moving, vec![2_000_000])]);
}
