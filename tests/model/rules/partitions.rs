//! All programs agree on how a topic is divided.

use keylapse::ErrorKind;
use keylapse_wire::names::PartitionNames;
use keylapse_wire::time::WireWhen;
use keylapse_wire::{OpFlags, Store, TopicEntry};

use crate::model::rig::{ArmCode, Rig};
use crate::produce::Produce;

on_each_server! {
    another_number_of_partitions_is_refused,
    partition_0_speaks_for_all,
    a_registration_creates_the_partitions,
    a_managed_topic_stays_managed,
    a_partition_has_timers_of_its_own,
    namespaces_do_not_meet,
    a_look_for_nothing_takes_no_answer_of_another,
}

fn partition(rig: &Rig, index: u32, of: u32) -> PartitionNames {
    PartitionNames::new("keylapse", &format!("{}.divided", rig.at.topic), index, of, false)
}

async fn refusal(store: &Store, at: &PartitionNames) -> Option<ErrorKind> {
    store.get_timer(at, b"a").await.err().map(|error| error.kind())
}

async fn another_number_of_partitions_is_refused(rig: &mut Rig) {
    assert_eq!(refusal(&rig.store, &partition(rig, 0, 2)).await, None, "the first to come decides");
    assert_eq!(refusal(&rig.store, &partition(rig, 0, 4)).await, Some(ErrorKind::Partitions));
    let timer = rig.timer("a", WireWhen::In(0));
    let refused =
        rig.store.arm(&partition(rig, 0, 1), OpFlags::default(), &[timer]).await.expect_err("it says one");
    assert_eq!(refused.kind(), ErrorKind::Partitions);
}

async fn partition_0_speaks_for_all(rig: &mut Rig) {
    assert_eq!(refusal(&rig.store, &partition(rig, 1, 2)).await, None);
    assert_eq!(refusal(&rig.store, &partition(rig, 3, 4)).await, Some(ErrorKind::Partitions));
    assert_eq!(refusal(&rig.store, &partition(rig, 0, 2)).await, None);
}

async fn a_registration_creates_the_partitions(rig: &mut Rig) {
    let topic = |of| TopicEntry {
        name: format!("{}.divided", rig.at.topic),
        pattern: "a:{id}".to_owned(),
        partitions: of,
        marker_keys: true,
        attached: false,
    };
    let all = |of| (0..of).map(|index| partition(rig, index, of)).collect::<Vec<_>>();
    rig.store.register(&topic(2), &all(2)).await.expect("it is the first");
    rig.store.register(&topic(2), &all(2)).await.expect("it agrees");
    let refused = rig.store.register(&topic(3), &all(3)).await.expect_err("it does not agree");
    assert_eq!(refused.kind(), ErrorKind::Partitions);
}

async fn a_managed_topic_stays_managed(rig: &mut Rig) {
    rig.arm_in("a", 10).await;
    let attached = TopicEntry {
        name: rig.at.topic.clone(),
        pattern: "{id}".to_owned(),
        partitions: 1,
        marker_keys: false,
        attached: true,
    };
    let managed = rig.at.clone();
    rig.attach();
    let refused = rig.store.register(&attached, std::slice::from_ref(&rig.at)).await;
    assert_eq!(refused.expect_err("it is managed").kind(), ErrorKind::Conflict);
    rig.at = managed;
    assert_eq!(rig.arm_in("b", 10).await.1.code, ArmCode::Armed);
}

async fn a_partition_has_timers_of_its_own(rig: &mut Rig) {
    let timer = rig.timer("a", WireWhen::In(0));
    rig.store.arm(&partition(rig, 0, 2), OpFlags::default(), &[timer]).await.expect("it can be armed");
    let look = async |at| rig.store.get_timer(&at, b"a").await.expect("it answers");
    assert!(look(partition(rig, 0, 2)).await.is_some());
    assert_eq!(look(partition(rig, 1, 2)).await, None);
}

async fn namespaces_do_not_meet(rig: &mut Rig) {
    let other = PartitionNames::new("keylapse:other", &rig.at.topic, 0, 8, false);
    assert_eq!(refusal(&rig.store, &rig.at).await, None);
    assert_eq!(refusal(&rig.store, &other).await, None);
}

/// A request without commands has no answer; the client would take that of the next request.
async fn a_look_for_nothing_takes_no_answer_of_another(rig: &mut Rig) {
    rig.arm_in("a", 1000).await;
    let none = rig.store.holds(&rig.at, &["due"], &[]).await.expect("nothing is asked");
    assert!(none.is_empty(), "{none:?}");
    let key = rig.timer("a", WireWhen::In(0)).key;
    let held = rig.store.holds(&rig.at, &["due"], &[key]).await.expect("it is answered");
    assert_eq!(held, [true], "the answer is its own");
}
