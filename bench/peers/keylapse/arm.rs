//! How many jobs can be offered each second.

use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use keylapse::{Arming, Schedule, Topic};
use serde_json::json;
use tokio::task::JoinSet;

use crate::orders::Orders;
use crate::{Fault, Outcome, jobs};

const HOUR: Duration = Duration::from_secs(3600);
const TASKS: usize = 32;

/// `run arm`
pub(crate) async fn arm(orders: &Orders) -> Outcome {
    let (topic, schedule) = (jobs::topic(orders)?, Schedule::connect(&orders.url).await?);
    let count = orders.count;
    let (single, mut seconds) = (0..count, Vec::new());
    let started = Instant::now();
    one_by_one(&schedule, &topic, orders, single).await?;
    seconds.push(started.elapsed());

    let started = Instant::now();
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let (schedule, topic, orders) = (schedule.clone(), topic.clone(), orders.clone());
        let mine = (count..2 * count).skip(task).step_by(TASKS);
        tasks.spawn(async move { one_by_one(&schedule, &topic, &orders, mine).await });
    }
    while let Some(task) = tasks.join_next().await {
        task??;
    }
    seconds.push(started.elapsed());

    let (numbers, later) = ((2 * count..3 * count).collect::<Vec<_>>(), SystemTime::now() + HOUR);
    let started = Instant::now();
    jobs::offer(&schedule, &topic, orders, &numbers, |_| later).await?;
    seconds.push(started.elapsed());

    let rate = |place: usize| count as f64 / seconds[place].as_secs_f64();
    Ok(json!({ "single_per_s": rate(0), "concurrent_per_s": rate(1), "bulk_per_s": rate(2) }))
}

async fn one_by_one(
    schedule: &Schedule,
    topic: &Topic<Bytes>,
    orders: &Orders,
    numbers: impl Iterator<Item = usize>,
) -> Result<(), Fault> {
    for number in numbers {
        let _: Arming = schedule.arm(topic, jobs::key(number), HOUR, &orders.payload).await?;
    }
    Ok(())
}
