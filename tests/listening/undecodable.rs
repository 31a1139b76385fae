//! Payloads that the program cannot read, and another one perhaps can.

use crate::listening::{arm_all, secs, stats, succeed, topic};
use keylapse::Topic;
use keylapse::dead_letters::DeadReason;
use keylapse::{ArmResult, Lapse};
use keylapse::{Done, Failure};
use keylapse_testing::{RunningListener, TestBed};

/// The same topic as an older program knows it: its payloads are not numbers.
fn older() -> Topic<String> {
    Topic::new("a:{id}").expect("the pattern is fine")
}

async fn listen_older(bed: &TestBed) -> RunningListener {
    let handler = async |_: Lapse<String>| Ok::<_, Failure>(Done);
    bed.listen(|listener| listener.on(older(), handler)).await.expect("it can listen")
}

#[tokio::test(start_paused = true)]
async fn what_the_old_program_cannot_read_waits_for_the_new_one() {
    let bed = TestBed::counting();
    let old = listen_older(&bed).await;
    let ids: Vec<_> = (0..55).map(|id| id.to_string()).collect();
    arm_all(&bed, &ids.iter().map(String::as_str).collect::<Vec<_>>(), 7).await;
    bed.advance(secs(600)).await;
    assert_eq!((stats(&old).dead, bed.all_runs().len()), (0, 0));
    old.stop().await.unwrap();
    let new = bed.listen(|listener| listener.on(topic(), succeed)).await.unwrap();
    bed.advance(secs(301)).await;
    assert_eq!((stats(&new).handled, stats(&new).dead), (55, 0));
    assert!(bed.all_runs().iter().all(|run| run.attempt == 1), "it has used up no attempt");
}

#[tokio::test(start_paused = true)]
async fn what_nobody_can_read_dies_after_an_hour_and_both_are_said() {
    let (_guard, log) = crate::listening::log::log();
    let bed = TestBed::counting();
    let old = listen_older(&bed).await;
    arm_all(&bed, &["1"], 7).await;
    bed.advance(secs(3600)).await;
    assert_eq!(stats(&old).dead, 0);
    bed.advance(secs(3)).await;
    assert_eq!(stats(&old).dead, 1);
    let letter = bed.schedule().dead_letters(&topic()).next().await.unwrap().unwrap();
    assert_eq!((letter.reason, letter.attempts, letter.history.len()), (DeadReason::Undecodable, 1, 1));
    let lines = log.lines();
    let first = lines
        .iter()
        .position(|line| line.contains("undecodable payload, put off: is it for another version"));
    let last = lines.iter().position(|line| line.contains("undecodable payload: dead letter"));
    assert!(first == Some(0) && last > first && lines.len() < 4, "{lines:#?}");
}

/// It takes the place of a retry, as over any waiting timer.
#[tokio::test(start_paused = true)]
async fn what_is_put_off_can_be_replaced() {
    let bed = TestBed::counting();
    let _old = listen_older(&bed).await;
    arm_all(&bed, &["1"], 7).await;
    bed.advance(secs(10)).await;
    let armed = bed.schedule().arm(&older(), ["1"], secs(1), &"text".to_owned()).await.unwrap();
    assert!(matches!(armed, ArmResult::Replaced(_)), "{armed:?}");
    bed.advance(secs(2)).await;
    assert_eq!(bed.all_runs().len(), 1);
}
