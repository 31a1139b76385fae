//! How partitions are, for people and for alarms.

use std::time::Duration;

use crate::error::Result;
use crate::run::Call;
use crate::time::{ServerTime, ms_ceil};
use crate::{PartitionNames, Reply, Store, scripts};

/// What a partition holds, in numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overview {
    /// The server's time.
    pub stamp: ServerTime,
    /// What stands in the place of the wire version: its number, what is being done to the topic, or nothing.
    pub version: Option<String>,
    /// The number of partitions that it says.
    pub of: Option<u64>,
    /// Why it is paused.
    pub paused: Option<String>,
    /// Dead letters trimmed.
    pub trimmed: u64,
    /// When the last of these was, in ms.
    pub trimmed_at: Option<u64>,
    /// Timers that wait or run, without those in quarantine.
    pub due: u64,
    /// Timers in quarantine.
    pub quarantined: u64,
    /// Dead letters.
    pub dead: u64,
    /// Keys that are enrolled.
    pub enrolled: u64,
    /// When the first of all needs attention, in ms.
    pub first: Option<u64>,
    /// Timers whose time has come.
    pub overdue: u64,
    /// Timers whose time comes within each of the spans that were asked for.
    pub within: [u64; 2],
    /// Timers whose first deadline has passed and which have neither ended nor run for the first time.
    pub undelivered: u64,
    /// The oldest of these deadlines, in ms.
    pub oldest: Option<u64>,
}

impl Store {
    /// Counts, of each partition. One that does not answer is an error by itself.
    pub async fn overviews(
        &self,
        partitions: &[PartitionNames],
        ahead: [Duration; 2],
    ) -> Vec<Result<Overview>> {
        let call = |at| {
            let mut call = self.bare_call(&scripts::OVERVIEW, at);
            ahead.iter().for_each(|span| _ = call.arg(ms_ceil(*span)));
            call
        };
        let calls: Vec<_> = partitions.iter().map(call).collect();
        let read = |answer| Overview::read(Reply::new(scripts::OVERVIEW.name, answer?)?.stamped()?);
        Call::run_all(&calls).await.into_iter().map(read).collect()
    }
}

impl Overview {
    fn read(mut reply: Reply) -> Result<Self> {
        Ok(Self {
            stamp: reply.stamp,
            version: reply.maybe_text()?,
            of: reply.maybe_int()?,
            paused: reply.maybe_text()?,
            trimmed: reply.int()?,
            due: reply.int()?,
            quarantined: reply.int()?,
            dead: reply.int()?,
            enrolled: reply.int()?,
            first: reply.maybe_int()?,
            overdue: reply.int()?,
            within: [reply.int()?, reply.int()?],
            undelivered: reply.int()?,
            oldest: reply.maybe_int()?,
            trimmed_at: reply.maybe_int()?,
        })
    }
}
