//! The jobs: their topic, their keys, and the calls that offer them.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use keylapse::{ArmResult, Key, Lapse, NewArm, Schedule, Topic};
use rand::seq::SliceRandom;

use crate::Fault;
use crate::orders::Orders;

/// The prefix of each key: 17 bytes, before 11 digits.
const PREFIX: &str = "app:trans:notice:";
/// Jobs that are created before they are offered, so that they do not fill the memory.
const PORTION: usize = 100_000;
const DAY: Duration = Duration::from_secs(86_400);

/// Returns the topic of nearly all measures.
pub(crate) fn topic(orders: &Orders) -> Result<Topic<Bytes>, Fault> {
    Ok(Topic::raw("app:trans:notice:{id}")?.marker_keys(orders.marker_keys).concurrency(orders.concurrency))
}

/// Returns the key of a job.
pub(crate) fn key(number: usize) -> Key<String> {
    Key(format!("{PREFIX}{number:011}"))
}

/// Returns the number of a job.
pub(crate) fn number<T>(lapse: &Lapse<T>) -> usize {
    let digits = lapse.key().get(PREFIX.len()..).and_then(|digits| std::str::from_utf8(digits).ok());
    digits.and_then(|digits| digits.parse().ok()).unwrap_or(usize::MAX)
}

/// Returns the numbers of all jobs, in the order of offering.
pub(crate) fn numbers(orders: &Orders) -> Vec<usize> {
    let mut numbers: Vec<_> = (0..orders.count).collect();
    if orders.shuffled {
        numbers.shuffle(&mut rand::rng());
    }
    numbers
}

/// Offers these jobs in bulk. Fails if any of them is not armed.
pub(crate) async fn offer(
    schedule: &Schedule,
    topic: &Topic<Bytes>,
    orders: &Orders,
    numbers: &[usize],
    when: impl Fn(usize) -> SystemTime + Send + Sync,
) -> Result<(), Fault> {
    for portion in numbers.chunks(PORTION) {
        let arms = portion.iter().map(|&n| NewArm::new(key(n), when(n), orders.payload.clone()));
        let _: Vec<ArmResult> =
            schedule.arm_many(topic, arms).await?.into_iter().collect::<keylapse::Result<_>>()?;
    }
    Ok(())
}

/// Offers far-future jobs: due in a day, with keys of their own.
pub(crate) async fn offer_behind(
    schedule: &Schedule,
    topic: &Topic<Bytes>,
    orders: &Orders,
) -> Result<(), Fault> {
    let numbers: Vec<_> = (0..orders.behind).map(|n| n + 10_000_000_000).collect();
    let later = SystemTime::now() + DAY;
    offer(schedule, topic, orders, &numbers, |n| later + Duration::from_micros(n as u64 % 1_000_000_000))
        .await
}

/// Offers all jobs, due at even distances in the second that has passed.
pub(crate) async fn offer_overdue(
    schedule: &Schedule,
    topic: &Topic<Bytes>,
    orders: &Orders,
) -> Result<(), Fault> {
    let (start, gap) = (
        SystemTime::now() - Duration::from_secs(1),
        Duration::from_secs(1).div_f64(orders.count.max(1) as f64),
    );
    offer(schedule, topic, orders, &numbers(orders), |n| start + gap.mul_f64(n as f64)).await
}
