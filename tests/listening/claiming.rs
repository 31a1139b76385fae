//! What claims cost, and how they fail.

use std::time::Duration;

use bytes::Bytes;

use crate::listening::{
    arm, arm_all, bed_with, cancel, listen, ms, one_timer, put_raw, secs, stats, succeed, take_time, topic,
};
use keylapse::Cancelled;
use keylapse::Topic;
use keylapse::dead_letters::DeadReason;
use keylapse::handler::Handler;
use keylapse::timers::ArmingId;
use keylapse_testing::{RunningListener, TestBed};
use keylapse_testserver::CallFault;
use keylapse_wire::RepairTarget;
use keylapse_wire::record::Record;
use keylapse_wire::time::MAX_DEADLINE_MS;

/// Puts other bytes in the place of a record.
fn overwrite(bed: &TestBed, key: &[u8], record: Option<Bytes>) {
    put_raw(bed, RepairTarget::Records, key, record);
}

fn record(deadline: u64) -> Bytes {
    Record { arming: ArmingId([1; 8]), deadline, payload: Bytes::from_static(b"1") }.encode()
}

#[tokio::test(start_paused = true)]
async fn a_timer_costs_one_claim_and_waiting_costs_none() {
    let (bed, listening) = bed_with(topic(), succeed).await;
    arm(&bed, "1", secs(60), 0).await;
    bed.advance(secs(61)).await;
    let stats = stats(&listening);
    assert_eq!((stats.claims, stats.empty_claims), (2, 1), "the first of all finds nothing");
    assert_eq!((stats.claimed, stats.by_timer, stats.handled), (1, 1, 1));
    assert_eq!(bed.calls().made("touch").len(), 1, "its trigger key is read, to be announced");
}

#[tokio::test(start_paused = true)]
async fn one_claim_takes_what_is_due_within_the_lookahead_and_no_more() {
    let (bed, listening) = bed_with(topic(), succeed).await;
    // Woken 3 ms ahead, it looks 10 ms further.
    for (id, at) in [("1", 1000), ("2", 1007), ("3", 1008)] {
        arm(&bed, id, ms(at), 0).await;
    }
    bed.advance(secs(2)).await;
    let began: Vec<_> = bed.all_runs().iter().map(|run| run.began).collect();
    assert_eq!(began, [ms(1000), ms(1007), ms(1008)]);
    let stats = stats(&listening);
    assert_eq!((stats.claims, stats.empty_claims, stats.repaired), (3, 1, 0));
}

#[tokio::test(start_paused = true)]
async fn while_all_places_are_taken_nobody_looks() {
    let (bed, listening) = one_timer(topic().concurrency(1), take_time, 20).await;
    arm(&bed, "2", secs(1), 0).await;
    bed.advance(secs(2)).await;
    let before = stats(&listening).claims;
    bed.advance(secs(18)).await;
    assert_eq!(stats(&listening).claims, before);
    bed.advance(secs(1)).await;
    assert_eq!(bed.all_runs()[1].began, secs(21));
}

#[tokio::test(start_paused = true)]
async fn an_ordinary_life_is_worth_no_warning() {
    let (_guard, log) = crate::listening::log::log();
    let (bed, _) = one_timer(topic(), succeed, 0).await;
    bed.until_finished().await;
    assert_eq!(log.lines(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn an_unanswered_claim_is_repeated_until_it_says_what_it_took() {
    for times in [1, 2, 3] {
        let (bed, listening) = one_timer(topic(), succeed, 0).await;
        bed.calls().fail("claim", CallFault::Unanswered, times);
        bed.advance(secs(2)).await;
        assert!(bed.all_runs()[0].lateness < ms(200), "{:?}", bed.all_runs());
        let stats = stats(&listening);
        assert_eq!((stats.claimed, stats.claim_errors), (1, 1), "one error for each reason in a row");
    }
}

#[tokio::test(start_paused = true)]
async fn a_refused_claim_is_made_again_but_not_in_a_hurry() {
    let (bed, listening) = one_timer(topic(), succeed, 0).await;
    let calls = bed.calls();
    calls.fail("claim", CallFault::Refused("LOADING"), 1000);
    bed.advance(secs(11)).await;
    let made = calls.made("claim").len();
    assert!((10..=30).contains(&made), "{made} claims in ten seconds");
    calls.heal();
    bed.advance(secs(1)).await;
    assert_eq!(bed.all_runs().len(), 1);
    assert_eq!(stats(&listening).claim_errors, 1);
}

#[tokio::test(start_paused = true)]
async fn each_reason_in_a_row_is_counted_once() {
    let (bed, listening) = bed_with(topic(), succeed).await;
    let calls = bed.calls();
    arm(&bed, "1", secs(1), 0).await;
    calls.fail("claim", CallFault::Refused("LOADING"), 2);
    calls.fail("claim", CallFault::Refused("READONLY"), 2);
    bed.advance(secs(5)).await;
    assert_eq!(stats(&listening).claim_errors, 2);
    // It was answered meanwhile: the same reason is pending.
    arm(&bed, "2", secs(1), 0).await;
    calls.fail("claim", CallFault::Refused("READONLY"), 2);
    bed.advance(secs(5)).await;
    assert_eq!(stats(&listening).claim_errors, 3);
}

#[tokio::test(start_paused = true)]
async fn what_a_claim_finds_broken_is_counted_by_its_kind() {
    let (bed, listening) = bed_with(topic().dead_letters(1, secs(86_400)), succeed).await;
    arm_all(&bed, &["orphan", "newer", "broken", "junk", "fine"], 0).await;
    overwrite(&bed, b"a:orphan", None);
    overwrite(&bed, b"a:newer", Some(Bytes::from_static(b"\xff")));
    overwrite(&bed, b"a:broken", Some(Bytes::from_static(b"\x01")));
    overwrite(&bed, b"a:junk", Some(Bytes::from_static(b"junk")));
    bed.advance(secs(2)).await;
    let stats = stats(&listening);
    assert_eq!(
        (stats.orphans, stats.parked, stats.dead, stats.trimmed),
        (1, 2, 1, 0),
        "j is a newer version"
    );
    assert_eq!((stats.claimed, stats.handled), (1, 1));

    arm(&bed, "again", secs(1), 0).await;
    overwrite(&bed, b"a:again", Some(Bytes::from_static(b"\x01")));
    bed.advance(secs(2)).await;
    let stats = super::stats(&listening);
    assert_eq!((stats.dead, stats.trimmed), (2, 1), "one letter is kept");
}

#[tokio::test(start_paused = true)]
async fn an_index_entry_that_is_ahead_of_its_record_is_put_right() {
    let (bed, listening) = one_timer(topic(), succeed, 0).await;
    arm(&bed, "2", secs(1), 0).await;
    let later = bed.now() + secs(50);
    let later = u64::try_from(later.duration_since(std::time::UNIX_EPOCH).unwrap().as_millis()).unwrap();
    overwrite(&bed, b"a:1", Some(record(later)));
    bed.advance(secs(49)).await;
    assert_eq!((bed.all_runs().len(), stats(&listening).repaired), (1, 1));
    bed.advance(secs(1)).await;
    let run = bed.all_runs().pop().unwrap();
    assert_eq!((run.began, run.lateness, run.attempt), (secs(50), secs(0), 1));
    assert_eq!(stats(&listening).repaired, 1);
}

#[tokio::test(start_paused = true)]
async fn a_deadline_that_never_comes_is_a_dead_letter() {
    for deadline in [MAX_DEADLINE_MS, MAX_DEADLINE_MS + 1, u64::MAX] {
        let (bed, listening) = one_timer(topic(), succeed, 0).await;
        overwrite(&bed, b"a:1", Some(record(deadline)));
        bed.advance(secs(2)).await;
        let letters = bed.schedule().dead_letters(&topic()).page(9).await.unwrap();
        assert_eq!(letters[0].reason, DeadReason::Unreadable);
        assert_eq!((stats(&listening).repaired, stats(&listening).dead), (0, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn of_two_listeners_one_leads_and_the_other_looks_four_times_a_second() {
    let bed = TestBed::counting();
    let both = [listen(&bed, topic(), succeed).await, listen(&bed, topic(), succeed).await];
    for id in 0..100 {
        arm(&bed, &id.to_string(), ms(1000 + id * 100), 0).await;
    }
    bed.advance(secs(12)).await;
    assert!(bed.all_runs().iter().all(|run| run.lateness.is_zero()), "{:#?}", bed.all_runs());
    let mut claims = both.map(|listening| (stats(&listening).claimed, stats(&listening).empty_claims));
    claims.sort_unstable();
    let [follower, leader] = claims;
    assert_eq!((follower.0, leader.0), (0, 100));
    assert!(leader.1 <= 2 && (20..60).contains(&follower.1), "{claims:?}");
}

/// So many listeners, and so many timers, from a second on every 100 ms.
async fn crowd_of(
    listeners: usize,
    topic: Topic<u32>,
    handler: impl Handler<u32> + Copy,
    timers: u64,
) -> (TestBed, Vec<RunningListener>) {
    let (bed, mut crowd) = (TestBed::counting(), Vec::new());
    for _ in 0..listeners {
        crowd.push(listen(&bed, topic.clone(), handler).await);
    }
    for id in 0..timers {
        arm(&bed, &id.to_string(), ms(1000 + id * 100), 0).await;
    }
    (bed, crowd)
}

/// What each of them has claimed, and how many of its claims were empty, in that order.
fn claims(crowd: &[RunningListener]) -> Vec<(u64, u64)> {
    let mut claims: Vec<_> = crowd.iter().map(|one| (stats(one).claimed, stats(one).empty_claims)).collect();
    claims.sort_unstable();
    claims
}

#[tokio::test(start_paused = true)]
async fn of_eight_listeners_one_leads_one_stands_by_and_the_others_rest() {
    let (bed, crowd) = crowd_of(8, topic(), succeed, 300).await;
    bed.advance(secs(32)).await;
    assert!(bed.all_runs().iter().all(|run| run.lateness.is_zero()), "{:#?}", bed.all_runs());
    let claims = claims(&crowd);
    assert_eq!(claims[7].0, 300, "{claims:?}");
    let standbys = claims.iter().filter(|(_, empty)| *empty > 60).count();
    assert_eq!(standbys, 1, "{claims:?}");
    assert!(claims.iter().filter(|(_, empty)| *empty <= 14).count() >= 7, "{claims:?}");
}

/// Without a call the others would come as late as they look.
#[tokio::test(start_paused = true)]
async fn what_one_listener_has_no_place_for_others_run_at_once() {
    let (bed, crowd) = crowd_of(4, topic().concurrency(10), take_time, 100).await;
    bed.advance(secs(12)).await;
    assert_eq!(claims(&crowd)[2].0, 0, "one runs all of them");
    for id in 100..140 {
        arm(&bed, &id.to_string(), secs(2), 10).await;
    }
    bed.advance(secs(3)).await;
    let late: Vec<_> = bed.all_runs()[100..].iter().map(|run| run.lateness).collect();
    assert_eq!(late.len(), 40);
    assert!(late.iter().all(|late| *late < ms(30)), "{late:?}");
}

#[tokio::test(start_paused = true)]
async fn when_the_leader_ends_another_leads_at_once() {
    let (bed, mut crowd) = crowd_of(4, topic(), succeed, 100).await;
    for _ in 0..3 {
        bed.advance(secs(3)).await;
        let leads = crowd.iter().position(|one| stats(one).claimed > 0).unwrap();
        crowd.swap_remove(leads).stop().await.unwrap();
    }
    bed.advance(secs(3)).await;
    let late: Vec<_> = bed.all_runs().iter().map(|run| run.lateness).filter(|late| !late.is_zero()).collect();
    assert!(late.is_empty(), "{late:?}");
    assert_eq!(bed.all_runs().len(), 100);
}

/// Of those that were not claimed by the dead: how late the latest starts after so many have crashed, the leader first
/// and then the standby.
async fn latest_after(crashes: usize) -> Duration {
    let (bed, mut crowd) = crowd_of(4, topic(), succeed, 200).await;
    bed.advance(secs(8)).await;
    crowd.sort_by_key(|one| (stats(one).claimed, stats(one).empty_claims));
    for _ in 0..crashes {
        crowd.pop().unwrap().crash().await;
    }
    bed.advance(secs(60)).await;
    let runs = bed.all_runs();
    assert_eq!(runs.len(), 200);
    runs.iter().filter(|run| !run.redelivered).map(|run| run.lateness).max().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_crashed_leader_costs_a_quarter_of_a_second_and_with_the_standby_five() {
    let [one, both] = [latest_after(1).await, latest_after(2).await];
    assert!(ms(25) < one && one < ms(260), "{one:?}");
    assert!(one < both && both < ms(5260), "{both:?}");
}

#[tokio::test(start_paused = true)]
async fn a_lone_listener_leads_whatever_is_cancelled() {
    let (bed, _) = bed_with(topic(), succeed).await;
    for id in 0..10_u32 {
        let name = id.to_string();
        arm(&bed, &name, ms(1000 + u64::from(id) * 100), 0).await;
        if id % 2 == 0 {
            assert_eq!(cancel(&bed, &name).await, Cancelled::Cancelled);
        }
    }
    bed.advance(secs(3)).await;
    assert_eq!(bed.all_runs().len(), 5);
    assert!(bed.all_runs().iter().all(|run| run.lateness.is_zero()), "{:#?}", bed.all_runs());
}

/// Forged ones, too: anybody can publish them, as many as he likes.
#[tokio::test(start_paused = true)]
async fn what_is_announced_is_looked_for_at_once_and_then_four_times_a_second() {
    let bed = TestBed::counting();
    let listening = listen(&bed, topic(), succeed).await;
    bed.advance(secs(1)).await;
    let before = stats(&listening).claims;
    let mut made = Vec::new();
    for _ in 0..60 {
        bed.notifications().forge("a:1");
        bed.advance(ms(10)).await;
        made.push(stats(&listening).claims - before);
    }
    bed.advance(secs(1)).await;
    let looked = |by: usize| made[by / 10 - 1];
    assert_eq!([10, 240, 260, 490, 510].map(looked), [1, 1, 2, 2, 3]);
    assert_eq!(stats(&listening).claims - before, 4, "one was planned when the announcements ended");
}
