//! How many overdue jobs are handled each second.

use keylapse::Schedule;
use serde_json::json;

use crate::orders::Orders;
use crate::runs::{Counted, Running};
use crate::server_cpu::ServerCpu;
use crate::{Outcome, jobs};

/// `run throughput`
pub(crate) async fn throughput(orders: &Orders) -> Outcome {
    let (topic, schedule) = (jobs::topic(orders)?, Schedule::connect(&orders.url).await?);
    jobs::offer_behind(&schedule, &topic, orders).await?;
    jobs::offer_overdue(&schedule, &topic, orders).await?;
    let mut cpu = ServerCpu::of(orders).await?;
    let used = cpu.seconds().await?;
    let counted = Counted::new(orders.count);
    let noting = counted.clone();
    let running = Running::start(orders, topic, move |_| noting.note())?;
    counted.all().await;
    let claims = running.stats.total().claims;
    running.end().await?;
    let (handled, seconds) = counted.taken();
    let server_us = (cpu.seconds().await? - used) * 1e6 / handled as f64;
    Ok(json!({
        "handled": handled,
        "seconds": seconds,
        "per_s": (handled.saturating_sub(1)) as f64 / seconds,
        "per_claim": handled as f64 / claims as f64,
        "server_us": server_us,
    }))
}
