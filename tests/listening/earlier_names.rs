//! Topics with keys like ours that nobody serves.

use crate::listening::log::Log;
use crate::listening::{secs, succeed};
use keylapse::Topic;
use keylapse::{Done, Lapse};
use keylapse_testing::TestBed;

/// The topic before its pattern was changed, and after: it has another name by default.
fn before() -> Topic<u32> {
    Topic::new("order:unpaid:{id}").unwrap()
}

fn after() -> Topic<u32> {
    Topic::new("order:{kind}:{id}").unwrap()
}

/// A timer of the topic as it was.
async fn arm_before(bed: &TestBed) {
    let armed = bed.schedule().arm(&before(), ["42"], secs(3600), &0).await.unwrap();
    assert!(armed.is_armed());
}

fn warned(log: &Log) -> bool {
    let lines = log.lines();
    assert!(lines.len() < 2, "{lines:#?}");
    lines.iter().any(|line| {
        line.contains("no listener seems to serve it")
            && ["topic=order.unpaid", "ours=order:{kind}:{id}", "timers=1"]
                .iter()
                .all(|part| line.contains(part))
    })
}

#[tokio::test(start_paused = true)]
async fn timers_under_the_name_that_an_earlier_pattern_gave_are_worth_a_warning() {
    let (_guard, log) = crate::listening::log::log();
    let bed = TestBed::counting();
    arm_before(&bed).await;
    bed.listen(|listener| listener.on(after(), succeed)).await.unwrap();
    bed.advance(secs(1)).await;
    assert!(warned(&log), "{:?}", log.lines());
}

#[tokio::test(start_paused = true)]
async fn who_is_served_or_holds_nothing_or_has_other_keys_is_not_warned_of() {
    let (_guard, log) = crate::listening::log::log();
    let ours = async |bed: &TestBed, topic: Topic<u32>| {
        let listening = bed.listen(|listener| listener.on(topic, succeed)).await.unwrap();
        bed.advance(secs(1)).await;
        listening
    };
    // Another listener has it.
    let bed = TestBed::counting();
    arm_before(&bed).await;
    let _theirs = ours(&bed, before()).await;
    ours(&bed, after()).await;
    assert!(!warned(&log));
    // We have both.
    let bed = TestBed::counting();
    arm_before(&bed).await;
    let both = async |_: Lapse<u32>| Ok::<_, std::io::Error>(Done);
    bed.listen(|listener| listener.on(before(), both).on(after(), succeed)).await.unwrap();
    bed.advance(secs(1)).await;
    // Its keys are not like ours, or it is empty.
    let bed = TestBed::counting();
    arm_before(&bed).await;
    ours(&bed, Topic::new("cart:{kind}:{id}").unwrap()).await;
    bed.schedule().cancel(&before(), ["42"]).await.map(drop).unwrap();
    ours(&bed, after()).await;
    assert!(!warned(&log), "{:?}", log.lines());
}

#[tokio::test(start_paused = true)]
async fn a_list_of_topics_that_is_none_keeps_nobody_from_listening() {
    let bed = TestBed::counting();
    bed.command(["HSET", "keylapse:topics", "x", "not json", "y", "{\"name\":\"{\"}"]);
    bed.listen(|listener| listener.on(after(), succeed)).await.unwrap();
    let armed = bed.schedule().arm(&after(), ["a", "1"], secs(1), &0).await.unwrap();
    assert!(armed.is_armed());
    bed.until_finished().await;
    assert_eq!(bed.all_runs().len(), 1);
}

/// A list that somebody has filled keeps nobody from listening for long.
#[tokio::test(start_paused = true)]
async fn of_more_than_ten_thousand_topics_with_keys_like_ours_ten_thousand_are_looked_at() {
    let bed = TestBed::counting();
    // So no page of the list ends with the last that is looked at.
    bed.command(["HSET", "keylapse:topics", "x", "not json"]);
    for number in 0..10_010 {
        let name = format!("topic.{number}");
        let entry = serde_json::json!({
            "name": &name, "pattern": "order:unpaid:{id}", "partitions": 1, "marker_keys": false
        });
        bed.command(["HSET", "keylapse:topics", &name, &entry.to_string()]);
    }
    bed.listen(|listener| listener.on(after(), succeed)).await.unwrap();
    bed.advance(secs(60)).await;
    // Each has two indices; the listener's own topic is on the list, and not asked.
    let asked = bed.calls().made("zcard").len() / 2;
    assert!((9_999..=10_000).contains(&asked), "{asked}");
}
