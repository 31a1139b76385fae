//! The slow repair gets to everything that the listener serves.

use super::{arm_on, secs, stats, succeed};
use crate::Topic;
use crate::testing::TestBed;
use crate::wire::{DEFAULT_NAMESPACE, PartitionNames};

const PARTITIONS: u32 = 3;

fn topics() -> [Topic<u32>; 2] {
    ["a:{id}", "b:{id}"]
        .map(|pattern| Topic::new(pattern).expect("the pattern is fine").partitions(PARTITIONS))
}

/// One key of each partition.
fn keys(topic: &Topic<u32>) -> Vec<(PartitionNames, String)> {
    let of = |index| PartitionNames::new(DEFAULT_NAMESPACE, topic.name(), index, PARTITIONS, false);
    let lies_in = |index, id: &u32| {
        topic.config.partition_of(format!("{}:{id}", topic.name()).as_bytes()) == index as usize
    };
    (0..PARTITIONS)
        .map(|index| (of(index), (0..).find(|id| lies_in(index, id)).expect("there is one").to_string()))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn lost_index_entries_are_found_in_each_partition_of_each_topic() {
    let bed = TestBed::new();
    let [a, b] = topics();
    let serving = |listener: crate::ListenerBuilder| listener.on(a.clone(), succeed).on(b.clone(), succeed);
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
    // Each partition has four scans, each of them takes five seconds.
    bed.pass(secs(6 * 4 * 5 + 5)).await;
    assert_eq!(stats(&listening).repaired, 6);
    for (at, key) in lost {
        let look =
            bed.client().store.look(&at, key.as_bytes()).await.expect("an answer").expect("it is armed");
        assert!(look.score.is_some(), "{at:?} {key}");
    }
}
