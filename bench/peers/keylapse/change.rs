//! How many timers can be changed and withdrawn each second.

use serde_json::{Value, json};

use crate::Outcome;
use crate::producer::{Act, Producer, from_tasks, per_s};

/// The acts, in their order: each needs the result of the one before.
const ACTS: [(&str, &[Act]); 4] = [
    ("arm_per_s", &[Act::Arm]),
    ("over_per_s", &[Act::Over]),
    ("reschedule_per_s", &[Act::Reschedule]),
    ("cancel_per_s", &[Act::Cancel]),
];

/// `run change`
pub(crate) async fn change(producer: &impl Producer, count: usize) -> Outcome {
    let mut printed = json!({});
    for (name, acts) in ACTS {
        printed[name] = Value::from(per_s(count, from_tasks(producer, acts, 0..count)).await?);
    }
    Ok(printed)
}

/// `run arm_cancel`
pub(crate) async fn arm_cancel(producer: &impl Producer, count: usize) -> Outcome {
    let pairs = per_s(count, from_tasks(producer, &[Act::Arm, Act::Cancel], 0..count)).await?;
    Ok(json!({ "pairs_per_s": pairs }))
}
