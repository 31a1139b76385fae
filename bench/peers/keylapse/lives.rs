//! Whole lives of jobs: armed, handled and acknowledged, with producers and listener in one process.

use std::time::{Duration, Instant};

use bytes::Bytes;
use keylapse::{ArmResult, Schedule, Topic};
use serde_json::json;
use tokio::task::JoinSet;

use crate::orders::Orders;
use crate::producer::TASKS;
use crate::runs::{Counted, Running};
use crate::{Fault, Outcome, jobs};

/// The time of a start, which does not count.
const SETTLING: Duration = Duration::from_millis(500);

/// `run lives`
pub(crate) async fn lives(orders: &Orders) -> Outcome {
    let (topic, schedule) = (jobs::topic(orders)?, Schedule::connect(&orders.url).await?);
    let counted = Counted::new(orders.count);
    let noting = counted.clone();
    let running = Running::start(orders, topic.clone(), move |_| noting.note())?;
    tokio::time::sleep(SETTLING).await;

    let started = Instant::now();
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let (schedule, topic, orders) = (schedule.clone(), topic.clone(), orders.clone());
        tasks.spawn(async move { arm_due(&schedule, &topic, &orders, task).await });
    }
    while let Some(task) = tasks.join_next().await {
        task??;
    }
    counted.all().await;
    // A handler does nothing, so its start is its end.
    let seconds = started.elapsed().as_secs_f64();
    running.end().await?;
    let (handled, _) = counted.taken();
    Ok(json!({ "handled": handled, "lives_per_s": handled as f64 / seconds, "seconds": seconds }))
}

/// Arms this task's share of the jobs, each due immediately.
async fn arm_due(
    schedule: &Schedule,
    topic: &Topic<Bytes>,
    orders: &Orders,
    task: usize,
) -> Result<(), Fault> {
    for number in (task..orders.count).step_by(TASKS) {
        let _: ArmResult = schedule.arm(topic, jobs::key(number), Duration::ZERO, &orders.payload).await?;
    }
    Ok(())
}
