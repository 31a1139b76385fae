//! Timers that lost two leases.

use keylapse::inside::TopicInside as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::listening::{
    arm, arm_all, arm_on, bed_with, fail, listen, ms, put_raw, secs, stats, stuck, succeed, take_time, topic,
};
use keylapse::ArmResult;
use keylapse::Lapse;
use keylapse::Topic;
use keylapse::dead_letters::{DeadReason, Replayed};
use keylapse::handler::Handler;
use keylapse::handler::LapseSource;
use keylapse::{Done, Failure};
use keylapse_testing::{HandlerRun, RedisReply, RunningListener, TestBed};
use keylapse_testserver::CallFault;
use keylapse_wire::RepairTarget;
use keylapse_wire::record::State;

/// Timers that have lost so many leases.
async fn arm_after_losses(bed: &TestBed, ids: &[&str], lost: u8, payload: u32) {
    for id in ids {
        arm(bed, id, secs(1), payload).await;
        let state = State { lost, ..State::waiting(1) }.encode();
        put_raw(bed, RepairTarget::States, format!("a:{id}").as_bytes(), Some(state));
    }
}

/// A listener that is about to crash: there have been so many runs in all.
async fn listen_until(bed: &TestBed, runs: usize, handler: impl Handler<u32>) -> RunningListener {
    let victim = listen(bed, topic(), handler).await;
    bed.until(|all| all.len() == runs).await;
    victim
}

#[tokio::test(start_paused = true)]
async fn what_has_one_lease_to_lose_runs_alone_and_the_others_beside_it() {
    let (bed, listening) = bed_with(topic(), take_time).await;
    arm_after_losses(&bed, &["x", "y"], 4, 10).await;
    arm_all(&bed, &["1", "2"], 10).await;
    bed.advance(secs(40)).await;
    let runs = bed.all_runs();
    let began = |key: &str| runs.iter().find(|run| run.key == key.as_bytes()).map(|run| run.began);
    assert_eq!((began("a:1"), began("a:2")), (Some(secs(1)), Some(secs(1))));
    let (first, second) = (began("a:x").min(began("a:y")).unwrap(), began("a:x").max(began("a:y")).unwrap());
    assert!(first >= secs(10) && first < secs(10) + ms(20), "once it is calm: {runs:#?}");
    assert!(second >= first + secs(10) && second < first + secs(11), "{runs:#?}");
    assert_eq!((stats(&listening).handled, stats(&listening).redelivered), (4, 2));
}

#[tokio::test(start_paused = true)]
async fn a_pill_is_buried_after_two_leases_lost_with_others_two_in_a_group_and_one_alone() {
    let bed = TestBed::counting();
    arm(&bed, "pill", secs(1), 0).await;
    for run in 1..=5 {
        let victim = listen_until(&bed, run, stuck).await;
        victim.crash().await;
    }
    let last = listen(&bed, topic(), succeed).await;
    bed.until_finished().await;
    let letters = bed.schedule().dead_letters(&topic()).page(9).await.unwrap();
    assert_eq!((letters.len(), letters[0].reason), (1, DeadReason::LostLeases));
    assert_eq!((bed.all_runs().len(), stats(&last).dead), (5, 1));
    let found: Vec<_> = bed.all_runs().iter().map(|run| run.source).collect();
    assert_eq!(found[2..], [LapseSource::Timer; 3], "from the quarantine");
}

#[tokio::test(start_paused = true)]
async fn a_refused_claim_from_quarantine_is_made_again_but_not_in_a_hurry() {
    let (bed, _) = bed_with(topic(), take_time).await;
    arm_after_losses(&bed, &["x", "y"], 4, 5).await;
    bed.advance(secs(11)).await;
    assert_eq!(bed.all_runs().len(), 1, "the other waits for its end");
    let calls = bed.calls();
    let before = calls.made("claim").len();
    calls.fail("claim", CallFault::Refused("LOADING"), 1000);
    bed.advance(secs(20)).await;
    let made = calls.made("claim").len() - before;
    assert!((10..=60).contains(&made), "{made} claims in sixteen seconds");
    calls.heal();
    bed.advance(secs(3)).await;
    assert_eq!(bed.all_runs().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn the_next_in_quarantine_waits_until_the_end_of_the_last_is_settled_but_not_for_ever() {
    for (fails, waits) in [(0, ms(0)..ms(1)), (1, ms(5)..ms(100)), (1000, secs(1)..ms(1100))] {
        let (bed, _) = bed_with(topic(), succeed).await;
        arm_after_losses(&bed, &["x", "y"], 4, 0).await;
        bed.calls().fail("ack", CallFault::Refused("LOADING"), fails);
        bed.advance(secs(15)).await;
        let runs = bed.all_runs();
        let apart = runs[1].began - runs[0].began;
        assert!(waits.contains(&apart), "{apart:?}, with {fails} refusals");
    }
}

#[tokio::test(start_paused = true)]
async fn what_fails_in_quarantine_and_keeps_its_lease_leaves_it() {
    let (bed, listening) = bed_with(topic(), fail).await;
    arm_after_losses(&bed, &["x"], 3, 0).await;
    bed.advance(secs(30)).await;
    let runs = bed.all_runs();
    let found: Vec<_> = runs.iter().map(|run| (run.attempt, run.redelivered)).collect();
    assert_eq!(found, [(1, true), (2, false), (3, false)]);
    assert_eq!((stats(&listening).redelivered, stats(&listening).failed), (1, 3));
}

/// How many run when the most do.
fn most_at_a_time(bed: &TestBed) -> usize {
    let runs = bed.all_runs();
    let at_once = |at: Duration| {
        let has_ended = |run: &HandlerRun| run.ended.is_some_and(|ended| ended <= at);
        runs.iter().filter(|run| run.began <= at && !has_ended(run)).count()
    };
    runs.iter().map(|run| at_once(run.began)).max().unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn groups_are_half_of_the_places_then_the_root_of_that_and_then_one() {
    for (places, lost, most) in
        [(100, 2, 50), (100, 3, 7), (100, 4, 1), (4, 2, 2), (4, 3, 1), (1, 2, 1), (2000, 2, 150)]
    {
        let (bed, _) = bed_with(topic().concurrency(places), take_time).await;
        let ids: Vec<_> = (0..150).map(|n| n.to_string()).collect();
        let ids: Vec<_> = ids.iter().map(String::as_str).take(if most < 3 { 5 } else { 150 }).collect();
        arm_after_losses(&bed, &ids, lost, 1).await;
        bed.until_finished().await;
        assert_eq!(
            (most_at_a_time(&bed), bed.all_runs().len()),
            (most, ids.len()),
            "{places} places, {lost} lost"
        );
    }
}

/// Each partition has a claimer of its own, and all of them one group.
#[tokio::test(start_paused = true)]
async fn who_is_to_be_alone_waits_for_the_group_of_all_partitions_and_is_not_overtaken_for_ever() {
    let topic = topic().partitions(8);
    let bed = TestBed::counting();
    let ids: Vec<_> = (0..200).map(|n| n.to_string()).collect();
    for (number, id) in ids.iter().enumerate() {
        arm_on(&bed, &topic, id, secs(1), 5).await;
        let partition = topic.config().partition_of(format!("a:{id}").as_bytes());
        let state = State { lost: if number == 99 { 4 } else { 2 }, ..State::waiting(1) }.encode();
        let (name, key) = (format!("keylapse:{{a/{partition}}}:timer_states"), format!("a:{id}"));
        bed.command([b"HSET", name.as_bytes(), key.as_bytes(), &state]);
    }
    let _listening = listen(&bed, topic, take_time).await;
    bed.until_finished().await;
    let runs = bed.all_runs();
    let alone = runs.iter().find(|run| run.key == b"a:99"[..]).unwrap().began;
    let beside = runs.iter().filter(|run| run.began < alone + secs(5) && run.began + secs(5) > alone).count();
    assert_eq!((beside, runs.len()), (1, 200));
    assert!(alone < secs(35), "{alone:?}");
}

/// A listener of one topic: a hundred places, a lease of 30 s.
#[tokio::test(start_paused = true)]
async fn two_crashes_of_a_full_listener_are_made_good_within_a_minute() {
    let bed = TestBed::counting();
    let ids: Vec<_> = (0..100).map(|n| n.to_string()).collect();
    for id in &ids {
        arm(&bed, id, secs(1), 10).await;
    }
    for run in 1..=2 {
        let victim = listen(&bed, topic(), take_time).await;
        bed.until(|runs| runs.len() == run * 100).await;
        bed.advance(secs(1)).await;
        victim.crash().await;
    }
    let crashed = bed.elapsed();
    let last = listen(&bed, topic(), take_time).await;
    bed.until_finished().await;
    let took = bed.elapsed() - crashed;
    assert!(took < secs(60), "{took:?}");
    assert_eq!((stats(&last).handled, stats(&last).dead, bed.all_runs().len()), (100, 0, 300));
}

/// Takes the seconds that the payload says, but does not end where it says none.
async fn pill_or_not(lapse: Lapse<u32>) -> Result<Done, Failure> {
    if *lapse.payload() == 0 { stuck(lapse).await } else { take_time(lapse).await }
}

fn pills(runs: &[HandlerRun]) -> usize {
    runs.iter().filter(|run| run.key.starts_with(b"a:pill")).count()
}

/// Runs listeners until nothing is left: each is taken down by the first pill that runs in it. How many that were.
async fn run_with_pills(
    bed: &TestBed,
    topic: &Topic<u32>,
    restart: Duration,
    each: &mut impl FnMut(Duration),
) -> usize {
    for crashes in 0.. {
        let seen = pills(&bed.all_runs());
        let listening = listen(bed, topic.clone(), pill_or_not).await;
        let struck = tokio::select! {
            () = bed.until(|runs| pills(runs) > seen) => true,
            () = bed.until_finished() => false,
        };
        if !struck {
            return crashes;
        }
        bed.advance(ms(20)).await;
        listening.crash().await;
        bed.advance(restart).await;
        each(bed.elapsed());
    }
    unreachable!()
}

#[tokio::test(start_paused = true)]
async fn a_pill_among_a_hundred_bystanders_takes_five_listeners_down() {
    let bed = TestBed::counting();
    let topic = topic().concurrency(101);
    for id in 0..100 {
        arm(&bed, &id.to_string(), secs(1), 10).await;
        if id == 50 {
            arm(&bed, "pill", secs(1), 0).await;
        }
    }
    let crashes = run_with_pills(&bed, &topic, ms(500), &mut |_| {}).await;
    let letters = bed.schedule().dead_letters(&topic).page(9).await.unwrap();
    assert_eq!((crashes, letters.len(), &letters[0].key[..]), (5, 1, &b"a:pill"[..]));
    println!("all done after {:?}", bed.elapsed());
}

/// It says that it does, as it arms in the task that runs it: its heir would be one more pill.
#[tokio::test(start_paused = true)]
async fn a_pill_that_arms_its_own_key_ends_and_what_it_armed_can_be_replayed() {
    let bed = TestBed::counting();
    arm(&bed, "pill", secs(1), 0).await;
    let (schedule, armed) = (bed.schedule().clone(), Arc::new(AtomicU32::new(0)));
    let counted = armed.clone();
    let rearm = move |lapse: Lapse<u32>| {
        let (schedule, number) = (schedule.clone(), counted.fetch_add(1, Ordering::Relaxed) + 1);
        async move {
            let armed = schedule.arm(&topic(), ["pill"], secs(1), &number).await?;
            assert!(matches!(armed, ArmResult::AfterRunning(_)), "{armed:?}");
            stuck(lapse).await
        }
    };
    for run in 1..=5 {
        let victim = listen_until(&bed, run, rearm.clone()).await;
        bed.advance(ms(20)).await;
        victim.crash().await;
    }
    let last = listen(&bed, topic(), succeed).await;
    bed.until_finished().await;
    assert_eq!((bed.all_runs().len(), stats(&last).dead), (5, 2), "nothing runs any more");
    let letters = bed.schedule().dead_letters(&topic()).page(9).await.unwrap();
    let heir = letters.iter().find(|letter| letter.reason == DeadReason::Inherited).expect("its heir");
    assert_eq!((letters.len(), heir.payload.as_ref().unwrap(), heir.lost_leases), (2, &5, 0));
    assert_eq!(bed.schedule().replay(heir).await.unwrap(), Replayed::Replayed);
    bed.until_finished().await;
    assert_eq!(bed.all_runs().len(), 6);
}

/// What other producers arm meanwhile has done nothing wrong.
#[tokio::test(start_paused = true)]
async fn what_others_arm_over_a_pill_runs_when_it_is_dead() {
    let bed = TestBed::counting();
    arm(&bed, "1", secs(1), 0).await;
    for run in 1..=5 {
        let victim = listen_until(&bed, run, stuck).await;
        let _ = bed.schedule().arm(&topic(), ["1"], secs(1), &7).await.unwrap();
        victim.crash().await;
    }
    let last = listen(&bed, topic(), succeed).await;
    bed.until_finished().await;
    assert_eq!((stats(&last).handled, stats(&last).dead), (1, 1));
}

/// Ten healthy timers of a second each second, and a pill.
#[tokio::test(start_paused = true)]
async fn no_healthy_timer_dies_among_pills_and_the_backlog_shrinks() {
    for lease in [2, 30] {
        let bed = TestBed::counting();
        let topic = topic().lease(secs(lease));
        for id in 0..247 {
            arm(&bed, &id.to_string(), ms(100) * id, 1).await;
        }
        for id in 1..=25 {
            arm(&bed, &format!("pill{id}"), secs(id), 0).await;
        }
        let mut waiting = Vec::new();
        let mut look = |at: Duration| {
            let RedisReply::Int(count) = bed.command(["ZCARD", "keylapse:{a/0}:quarantine"]) else {
                panic!("no count")
            };
            waiting.push((at.as_secs(), count));
        };
        let crashes = run_with_pills(&bed, &topic, ms(200), &mut look).await;
        let letters = bed.schedule().dead_letters(&topic).page(300).await.unwrap();
        assert!(letters.iter().all(|letter| letter.key.starts_with(b"a:pill")), "{letters:?}");
        assert_eq!(letters.len(), 25);
        let waits = |from: u64| waiting.iter().find(|(at, _)| *at >= from).expect("it goes on").1;
        let from = 35 + 2 * lease;
        println!("lease {lease}: {crashes} crashes, done after {:?}; {waiting:?}", bed.elapsed());
        assert!(waits(from) > waits(from + 30) && waits(from + 30) > waits(from + 60), "{waiting:?}");
    }
}
