//! The rates of attempts and of retries, with jobs that fail at first.

use std::time::Duration;

use bytes::Bytes;
use keylapse::{Backoff, Done, Failure, Lapse, Listener, Schedule};
use serde_json::json;

use crate::orders::Orders;
use crate::runs::{Counted, Running};
use crate::{Outcome, jobs};

/// The failures of each job before it succeeds.
const FAILURES: u32 = 3;

/// `run retries`
pub(crate) async fn retries(orders: &Orders) -> Outcome {
    let topic = jobs::topic(orders)?.retry(Backoff::fixed(Duration::from_millis(1)));
    let schedule = Schedule::connect(&orders.url).await?;
    jobs::offer_overdue(&schedule, &topic, orders).await?;
    let attempts = orders.count * (FAILURES as usize + 1);
    let counted = Counted::new(attempts);
    let noting = counted.clone();
    let handler = move |lapse: Lapse<Bytes>| {
        noting.note();
        let end =
            if lapse.attempt() <= FAILURES { Err(Failure::retry("not yet")) } else { Ok::<_, Failure>(Done) };
        std::future::ready(end)
    };
    let builder = Listener::builder(&orders.url).concurrency(orders.concurrency);
    let running = Running::of(builder.on(topic, handler).build()?);
    counted.all().await;
    let (made, seconds) = counted.taken();
    let retried = running.stats.total().retried;
    running.end().await?;
    Ok(json!({
        "attempts": made, "retried": retried, "attempts_per_s": (made - 1) as f64 / seconds,
        "retries_per_s": retried as f64 / seconds,
    }))
}
