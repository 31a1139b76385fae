//! One timer: reading it.

use bytes::Bytes;

use crate::error::Result;
use crate::run::Call;
use crate::time::ServerTime;
use crate::{PartitionNames, Reply, Store, scripts};

/// Everything about a timer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Look {
    /// The server's time.
    pub stamp: ServerTime,
    /// When the timer next needs attention, in ms.
    pub score: Option<u64>,
    /// Whether it waits in quarantine.
    pub quarantined: bool,
    /// The record's bytes.
    pub record: Bytes,
    /// The state's bytes.
    pub state: Option<Bytes>,
    /// The record of the arming kept for later.
    pub next: Option<Bytes>,
}

impl Store {
    /// Reads one timer.
    pub async fn look(&self, at: &PartitionNames, key: &[u8]) -> Result<Option<Look>> {
        Look::read(self.call(&scripts::LOOK, at).arg(key).reply().await?)
    }

    /// The same for who only looks: a partition that is not there has no timer, and is not made for it.
    pub async fn look_if_made(&self, at: &PartitionNames, key: &[u8]) -> Result<Option<Look>> {
        match self.call(&scripts::LOOK, at).arg(key).reply_if_made().await? {
            Some(reply) => Look::read(reply),
            None => Ok(None),
        }
    }

    /// Reads several timers of a partition that is there, in one request.
    pub async fn looks(&self, at: &PartitionNames, keys: &[Bytes]) -> Vec<Result<Option<Look>>> {
        let call = |key: &Bytes| {
            let mut call = self.call(&scripts::LOOK, at);
            call.arg(&key[..]);
            call
        };
        let calls: Vec<_> = keys.iter().map(call).collect();
        let read = |answer| Look::read(Reply::new(scripts::LOOK.name, answer?)?.stamped()?);
        Call::run_all(&calls).await.into_iter().map(read).collect()
    }
}

impl Look {
    fn read(mut reply: Reply) -> Result<Option<Self>> {
        let (due, quarantine) = (reply.maybe_int()?, reply.maybe_int()?);
        let (record, state, next) = (reply.maybe_bytes()?, reply.maybe_bytes()?, reply.maybe_bytes()?);
        Ok(record.map(|record| Self {
            stamp: reply.stamp,
            score: due.or(quarantine),
            quarantined: due.is_none() && quarantine.is_some(),
            record,
            state,
            next,
        }))
    }
}
