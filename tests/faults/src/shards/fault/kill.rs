//! A primary that is killed, and comes back as a replica.

use std::time::Duration;

use keylapse_testing::LocalNode;
use tokio::time::sleep;

use super::super::Stage;
use super::super::fall::Fall;

pub(super) async fn strike(stage: &Stage, partition: u32, restart_after: u64) {
    let mut fall = Fall::of(stage, partition).await;
    fall.falls(stage, LocalNode::kill).await;
    let heir = fall.heir(stage).await;
    stage.say(&format!("another has its place after {:?}", heir.after(&fall)));
    sleep(Duration::from_millis(restart_after)).await;
    fall.node.restart().await.expect("it can be started again");
    fall.follows(stage).await;
    fall.record(stage, heir, false);
}
