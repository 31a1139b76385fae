//! The slow repair gets to everything that the listener serves.

use super::{arm_on, secs, stats, succeed};
use keylapse::Topic;
use keylapse::inside::ClientInside as _;
use keylapse::inside::TopicInside as _;
use keylapse_testing::{RedisReply, TestBed};
use keylapse_wire::names::{DEFAULT_NAMESPACE, PartitionNames};

const PARTITIONS: u32 = 3;

fn topics() -> [Topic<u32>; 2] {
    ["a:{id}", "b:{id}"]
        .map(|pattern| Topic::new(pattern).expect("the pattern is fine").partitions(PARTITIONS))
}

/// One key of each partition.
fn keys(topic: &Topic<u32>) -> Vec<(PartitionNames, String)> {
    let of = |index| PartitionNames::new(DEFAULT_NAMESPACE, topic.name(), index, PARTITIONS, false);
    let lies_in = |index, id: &u32| {
        topic.config().partition_of(format!("{}:{id}", topic.name()).as_bytes()) == index as usize
    };
    (0..PARTITIONS)
        .map(|index| (of(index), (0..).find(|id| lies_in(index, id)).expect("there is one").to_string()))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn lost_index_entries_are_found_in_each_partition_of_each_topic() {
    let bed = TestBed::counting();
    let [a, b] = topics();
    let serving =
        |listener: keylapse::ListenerBuilder| listener.on(a.clone(), succeed).on(b.clone(), succeed);
    let listening = bed.listen(serving).await.expect("it can listen");
    let mut lost = Vec::new();
    for topic in [&a, &b] {
        for (at, id) in keys(topic) {
            arm_on(&bed, topic, &id, secs(86_400), 0).await;
            let key = format!("{}:{id}", topic.name());
            bed.command(["ZREM", at.key("due"), &key]);
            lost.push((at, key));
        }
    }
    assert_eq!(lost.len(), 6);
    // Each partition has six scans, each of them takes five seconds.
    bed.advance(secs(6 * 6 * 5 + 5)).await;
    assert_eq!(stats(&listening).repaired, 6);
    for (at, key) in lost {
        let look = bed
            .client()
            .store()
            .get_timer(&at, key.as_bytes())
            .await
            .expect("an answer")
            .expect("it is armed");
        assert!(look.score.is_some(), "{at:?} {key}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_round_through_a_thousand_empty_partitions_takes_minutes() {
    let bed = TestBed::counting();
    let topic = topics()[0].clone().partitions(1000);
    let at = PartitionNames::new(DEFAULT_NAMESPACE, "a", 999, 1000, false);
    let id = (0..)
        .find(|id| topic.config().partition_of(format!("a:{id}").as_bytes()) == 999)
        .unwrap()
        .to_string();
    let listening = bed.listen(|listener| listener.on(topic.clone(), succeed)).await.expect("it can listen");
    arm_on(&bed, &topic, &id, secs(86_400), 0).await;
    bed.command(["ZREM", at.key("due"), &format!("a:{id}")]);
    bed.advance(secs(310)).await;
    assert_eq!(stats(&listening).repaired, 1);
    let made = bed.calls().made("repair").len();
    assert!((6_000..6_400).contains(&made), "{made} steps");
}

#[tokio::test(start_paused = true)]
async fn tombstones_past_their_age_go_without_another_cancel() {
    let bed = TestBed::counting();
    let topic = topics()[0].clone().partitions(1);
    let at = PartitionNames::new(DEFAULT_NAMESPACE, "a", 0, 1, false);
    let listening = bed.listen(|listener| listener.on(topic.clone(), succeed)).await.expect("it can listen");
    arm_on(&bed, &topic, "1", secs(86_400), 0).await;
    let now = bed.now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis().to_string();
    for start in (0..50_000).step_by(1000) {
        let mut put = vec!["ZADD".to_owned(), at.key("tombstones").to_owned()];
        put.extend((start..start + 1000).flat_map(|n| [now.clone(), format!("c{n:08}")]));
        bed.command(&put);
    }
    let left = || bed.command(["ZCARD", at.key("tombstones")]);
    bed.advance(secs(590)).await;
    assert_eq!(left(), RedisReply::Int(50_000));
    bed.advance(secs(60)).await;
    assert_eq!(left(), RedisReply::Int(0));
    assert_eq!(stats(&listening).repaired, 0, "nothing was amiss");
}
