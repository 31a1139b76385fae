//! Arms jobs that stay in the server, so that the harness can read its memory.

use std::time::{Duration, SystemTime};

use keylapse::Schedule;
use serde_json::json;

use crate::orders::Orders;
use crate::{Outcome, jobs};

const DAY: Duration = Duration::from_secs(86_400);

/// `run bytes`
pub(crate) async fn bytes(orders: &Orders) -> Outcome {
    let (topic, schedule) = (jobs::topic(orders)?, Schedule::connect(&orders.url).await?);
    let (later, numbers) = (SystemTime::now() + DAY, jobs::numbers(orders));
    jobs::offer(&schedule, &topic, orders, &numbers, |n| later + Duration::from_millis(n as u64)).await?;
    Ok(json!({ "armed": orders.count }))
}
