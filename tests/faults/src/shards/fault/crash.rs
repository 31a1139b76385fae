//! A primary that is killed and is back before anybody has taken its place.

use super::super::Stage;
use super::super::fall::Fall;

pub(super) async fn strike(stage: &Stage, partition: u32) {
    let fall = Fall::of(stage, partition).await;
    fall.node.restart().await.expect("it can be started again");
    stage.group.wait_until_ok().await;
    stage.record_outage(fall.since, &fall.node, fall.partitions, &"Crash");
}
