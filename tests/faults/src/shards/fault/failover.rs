//! A primary that is told to make way.

use super::super::fall::Fall;
use super::super::{Group, Stage};

pub(super) async fn strike(stage: &Stage, partition: u32) {
    let mut fall = Fall::of(stage, partition).await;
    fall.since = crate::clock::now();
    match &stage.group {
        // It waits until its replica has all that it has.
        Group::Cluster(cluster) => {
            let replica = cluster.replica_of(&fall.node).await.expect("it has one");
            cluster.failover(&replica).await.expect("a failover");
            let heir = fall.heir(stage).await;
            fall.record(stage, heir, true);
        }
        // It is told nothing, and acknowledges until it is made a replica.
        Group::Sentinel(group) => {
            let (told, heir) = tokio::join!(group.failover(), fall.heir(stage));
            told.expect("a failover");
            let mut heir = heir;
            fall.follows(stage).await;
            heir.has_shared_until_now(&fall.partitions).await;
            stage.say(&format!("another has its place after {:?}", heir.after(&fall)));
            fall.record(stage, heir, false);
        }
    }
}
