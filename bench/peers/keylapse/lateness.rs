//! How long after its due time each handler starts.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use keylapse::Schedule;
use serde_json::{Value, json};

use crate::orders::Orders;
use crate::runs::{Running, Starts, micros};
use crate::{Outcome, jobs};

/// The time between the start of the worker and the first job, in addition to the time that offering takes.
const LEAD: Duration = Duration::from_secs(1);
/// The least rate of offering, in jobs a second.
const OFFERED_PER_S: f64 = 20_000.0;

/// `run lateness`
pub(crate) async fn lateness(orders: &Orders) -> Outcome {
    let (topic, schedule) = (jobs::topic(orders)?, Schedule::connect(&orders.url).await?);
    let rate = orders.rate()?;
    jobs::offer_behind(&schedule, &topic, orders).await?;
    let starts = Starts::new(orders.count);
    let noting = starts.clone();
    let running = Running::start(orders, topic.clone(), move |lapse| noting.note(jobs::number(lapse)))?;
    let first = whole_ms(LEAD + Duration::from_secs_f64(orders.count as f64 / OFFERED_PER_S));
    let numbers = jobs::numbers(orders);
    jobs::offer(&schedule, &topic, orders, &numbers, |n| due(first, rate, n)).await?;
    if SystemTime::now() > first {
        return Err("offering took longer than was left until the first job was due".into());
    }
    starts.all().await;
    let stats = running.stats.total();
    running.end().await?;
    let mut printed = report(starts.taken(), |n| micros(due(first, rate, n)));
    printed["claims_per_job"] = (stats.claims as f64 / orders.count as f64).into();
    Ok(printed)
}

/// Returns the next whole millisecond after a delay.
pub(crate) fn whole_ms(away: Duration) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(micros(SystemTime::now() + away).div_ceil(1000))
}

/// Returns the deadline of a job: a whole millisecond, the finest unit of any other system.
pub(crate) fn due(first: SystemTime, rate: f64, number: usize) -> SystemTime {
    first + Duration::from_millis((number as f64 * 1000.0 / rate) as u64)
}

/// Returns the figures of starts.
pub(crate) fn report(starts: Vec<(usize, u64)>, due: impl Fn(usize) -> u64) -> Value {
    let late = starts.into_iter().map(|(n, at)| i128::from(at) - i128::from(due(n)));
    let mut late: Vec<i128> = late.collect();
    late.sort_unstable();
    let early = late.iter().filter(|late| **late < 0).count();
    json!({
        "handled": late.len(), "early": early,
        "p50_ms": rank(&late, 0.5), "p99_ms": rank(&late, 0.99), "max_ms": rank(&late, 1.0),
    })
}

/// Returns a percentile by nearest rank, in ms.
fn rank(sorted: &[i128], share: f64) -> Option<f64> {
    let place = (sorted.len() as f64 * share).ceil().max(1.0) as usize - 1;
    sorted.get(place).map(|late| *late as f64 / 1e3)
}
