//! How many jobs can be offered each second.

use serde_json::json;

use crate::Outcome;
use crate::producer::{Act, Producer, from_tasks, one_by_one, per_s};

/// `run arm`
pub(crate) async fn arm(producer: &impl Producer, count: usize) -> Outcome {
    let single = per_s(count, one_by_one(producer, &[Act::Arm], 0..count)).await?;
    let concurrent = per_s(count, from_tasks(producer, &[Act::Arm], count..2 * count)).await?;
    let bulk = per_s(count, producer.arm_many(2 * count..3 * count)).await?;
    Ok(json!({ "single_per_s": single, "concurrent_per_s": concurrent, "bulk_per_s": bulk }))
}
