//! A primary that hangs, and goes on when it has been replaced, or before.

use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};

use super::super::Stage;
use super::super::fall::Fall;

pub(super) async fn strike(stage: &Stage, partition: u32, ms: u64) {
    let mut fall = Fall::of(stage, partition).await;
    let until = Instant::now() + Duration::from_millis(ms);
    fall.falls(stage, |node| node.suspend().expect("it runs")).await;
    let heir = fall.heir(stage).await;
    stage.say(&format!("another has its place after {:?}", heir.after(&fall)));
    sleep_until(until).await;
    fall.node.resume().expect("it was stopped");
    fall.follows(stage).await;
    fall.record(stage, heir, false);
}

pub(super) async fn freeze(stage: &Stage, partition: u32, ms: u64) {
    let fall = Fall::of(stage, partition).await;
    fall.node.suspend().expect("it runs");
    sleep(Duration::from_millis(ms)).await;
    fall.node.resume().expect("it was stopped");
    stage.record_outage(fall.since, &fall.node, fall.partitions, &"Freeze");
}
