//! One timer or a few: withdrawing, moving, reading them.

use std::time::SystemTime;

use bytes::Bytes;

use crate::error::Result;
use crate::id::CancelId;
use crate::time::{ServerTime, WireWhen, system_time};
use crate::wire::{PartitionNames, Store, scripts};

/// A timer to withdraw.
#[derive(Clone, Debug)]
pub struct Cancel {
    /// Its key.
    pub key: Bytes,
    /// The id of this cancel.
    pub id: CancelId,
}

/// The result of a cancel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "an attempt may be running"]
#[non_exhaustive]
pub enum Cancelled {
    /// It will not run.
    Cancelled,
    /// A listener had claimed it ahead of its deadline, which is still to come: its attempt has not started. That
    /// listener is told, and does not start it once it has heard so.
    ///
    /// One that hears nothing, as its line is down or the caller may not publish, may start it up to the
    /// [lookahead](crate::Topic::lookahead) and 100 ms after its claim, and settles nothing then. Later it asks the
    /// server first.
    Claimed,
    /// A listener had claimed it, and its deadline is past: an attempt is running, or about to. It is told to stop,
    /// can settle nothing any more, and there will be no other. If it has not started when its listener hears of
    /// this, it does not; the same holds for one that hears nothing as above. A repeat of an unanswered call
    /// cannot tell the two cases apart, and says this.
    InFlight,
    /// There was no timer.
    NotArmed,
}

/// The answer for one timer of a cancel call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CancelReply {
    /// Which case.
    pub result: Cancelled,
    /// When what ended was due, in ms, where this very call ended something:
    /// its trigger key is known by it.
    pub deadline: Option<u64>,
}

/// The result of a reschedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "an attempt may be running"]
#[non_exhaustive]
pub enum Rescheduled {
    /// It is due then, by the server's clock.
    Rescheduled(SystemTime),
    /// An attempt is running; nothing was changed.
    InFlight,
    /// There is no timer.
    NotArmed,
}

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
    /// Withdraws timers.
    #[cfg(feature = "testing")]
    pub async fn cancel(
        &self,
        at: &PartitionNames,
        timers: &[Cancel],
        repeat: bool,
    ) -> Result<Vec<CancelReply>> {
        Ok(self.cancel_and_tell_time(at, timers, repeat).await?.1)
    }

    /// Withdraws timers; also answers when that was.
    pub async fn cancel_and_tell_time(
        &self,
        at: &PartitionNames,
        timers: &[Cancel],
        repeat: bool,
    ) -> Result<(ServerTime, Vec<CancelReply>)> {
        let mut call = self.call(&scripts::CANCEL, at);
        call.arg(i32::from(repeat));
        for timer in timers {
            call.arg(&timer.key[..]).arg(timer.id.as_bytes());
        }
        let codes = [Cancelled::NotArmed, Cancelled::Cancelled, Cancelled::InFlight];
        let mut reply = call.reply().await?;
        let mut read = |_| Ok(CancelReply { result: reply.one_of(&codes)?, deadline: reply.maybe_int()? });
        let read = timers.iter().map(&mut read).collect::<Result<_>>()?;
        self.told(at, &mut reply)?;
        Ok((reply.stamp, read))
    }

    /// Moves a waiting timer to another deadline; also answers the attempt to come.
    pub async fn reschedule(
        &self,
        at: &PartitionNames,
        key: &[u8],
        when: WireWhen,
    ) -> Result<(Rescheduled, u32)> {
        let mut reply = self.call(&scripts::RESCHEDULE, at).arg(key).arg(when.to_string()).reply().await?;
        let (code, deadline, _arming, attempt) = (reply.int()?, reply.int()?, reply.bytes()?, reply.int()?);
        let result = match code {
            0 => Rescheduled::NotArmed,
            1 => Rescheduled::Rescheduled(system_time(deadline)),
            2 => Rescheduled::InFlight,
            _ => return Err(reply.unexpected()),
        };
        self.told(at, &mut reply)?;
        Ok((result, u32::try_from(attempt).unwrap_or(u32::MAX)))
    }

    /// Reads one timer.
    pub async fn look(&self, at: &PartitionNames, key: &[u8]) -> Result<Option<Look>> {
        let mut reply = self.call(&scripts::LOOK, at).arg(key).reply().await?;
        let (due, quarantine) = (reply.maybe_int()?, reply.maybe_int()?);
        let (record, state, next) = (reply.maybe_bytes()?, reply.maybe_bytes()?, reply.maybe_bytes()?);
        Ok(record.map(|record| Look {
            stamp: reply.stamp,
            score: due.or(quarantine),
            quarantined: due.is_none() && quarantine.is_some(),
            record,
            state,
            next,
        }))
    }
}
