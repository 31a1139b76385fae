//! keylapse as programs that arm timers call it.

use std::ops::Range;
use std::time::SystemTime;

use bytes::Bytes;
use keylapse::{ArmResult, Cancelled, Rescheduled, Schedule, Topic};

use crate::orders::Orders;
use crate::producer::{Act, LATER, MUCH_LATER, Producer};
use crate::{Fault, jobs};

/// One schedule that all tasks share.
#[derive(Clone, Debug)]
pub(crate) struct Ours {
    schedule: Schedule,
    topic: Topic<Bytes>,
    orders: Orders,
}

impl Ours {
    /// Connects.
    pub(crate) async fn connect(orders: &Orders) -> Result<Self, Fault> {
        let (topic, schedule) = (jobs::topic(orders)?, Schedule::connect(&orders.url).await?);
        Ok(Self { schedule, topic, orders: orders.clone() })
    }
}

impl Producer for Ours {
    async fn act(&self, act: Act, number: usize) -> Result<(), Fault> {
        let (schedule, topic, key) = (&self.schedule, &self.topic, jobs::key(number));
        let done = match act {
            Act::Arm => {
                let arming = schedule.arm(topic, key, LATER, &self.orders.payload).await?;
                matches!(arming, ArmResult::Armed(_))
            }
            Act::Over => {
                let arming = schedule.arm(topic, key, LATER, &self.orders.payload).await?;
                matches!(arming, ArmResult::Replaced(_))
            }
            Act::Reschedule => {
                let moved = schedule.reschedule(topic, key, MUCH_LATER).await?;
                matches!(moved, Rescheduled::Rescheduled(_))
            }
            Act::Cancel => schedule.cancel(topic, key).await? == Cancelled::Cancelled,
        };
        if done { Ok(()) } else { Err(format!("{act:?} of timer {number} did something else").into()) }
    }

    async fn arm_many(&self, numbers: Range<usize>) -> Result<(), Fault> {
        let (numbers, later) = (numbers.collect::<Vec<_>>(), SystemTime::now() + LATER);
        jobs::offer(&self.schedule, &self.topic, &self.orders, &numbers, |_| later).await
    }
}
