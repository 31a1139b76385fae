//! The time that a listener needs from its start for all jobs that came due without a listener.

use std::time::Instant;

use keylapse::Schedule;
use serde_json::json;

use crate::orders::Orders;
use crate::runs::{Counted, Running};
use crate::{Outcome, jobs};

/// `run recovery`
pub(crate) async fn recovery(orders: &Orders) -> Outcome {
    let (topic, schedule) = (jobs::topic(orders)?, Schedule::connect(&orders.url).await?);
    jobs::offer_overdue(&schedule, &topic, orders).await?;
    let counted = Counted::new(orders.count);
    let (noting, started) = (counted.clone(), Instant::now());
    let running = Running::start(orders, topic, move |_| noting.note())?;
    counted.all().await;
    let (all, (handled, since_first)) = (started.elapsed().as_secs_f64(), counted.taken());
    running.end().await?;
    Ok(json!({ "handled": handled, "first_s": all - since_first, "all_s": all }))
}
