//! Trigger keys.

use bytes::Bytes;
use redis::{Value, cmd};

use crate::error::Result;
use crate::wire::reply::Reply;
use crate::wire::scripts;
use crate::wire::store::Store;

/// The largest number that a trigger key holds: servers keep numbers up to it once
/// for all keys.
const MOST: u32 = 9999;

/// A trigger key to set.
#[derive(Clone, Debug)]
pub struct Trigger {
    /// The key.
    pub key: Bytes,
    /// When it expires, in ms since 1970.
    pub deadline: u64,
    /// The attempt to come.
    pub attempt: u32,
    /// Whether this moves the deadline of a timer that was there before: then a
    /// number that expires at another time is taken for its key.
    pub moved: bool,
}

/// The answer for one trigger key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TriggerReply {
    /// It stands.
    Set,
    /// The name holds what is not known to be ours, and was left alone.
    Taken,
    /// The deadline has passed already.
    Past,
}

impl Store {
    /// Sets trigger keys.
    pub async fn set_triggers(&self, triggers: &[Trigger]) -> Result<Vec<TriggerReply>> {
        let mut command = self.script(&scripts::TRIGGER, triggers.iter().map(|trigger| &trigger.key[..]));
        for trigger in triggers {
            let number = trigger.attempt.clamp(1, MOST);
            command.arg(trigger.deadline).arg(number).arg(i32::from(trigger.moved));
        }
        let value = self.run_on(&self.0.node, &scripts::TRIGGER, &command).await?;
        Reply::new("trigger", value)?.each(|reply| {
            Ok(match reply.int()? {
                1 => TriggerReply::Set,
                2 => TriggerReply::Past,
                _ => TriggerReply::Taken,
            })
        })
    }

    /// Deletes a trigger key if it is ours and expires then.
    pub async fn drop_trigger(&self, key: &[u8], deadline: u64) -> Result<bool> {
        let mut command = self.script(&scripts::UNTRIGGER, [key].into_iter());
        command.arg(deadline);
        let value = self.run_on(&self.0.node, &scripts::UNTRIGGER, &command).await?;
        Ok(value == Value::Int(1))
    }

    /// Reads trigger keys, so that the server expires those that are due.
    pub async fn touch(&self, keys: &[Bytes]) -> Result<()> {
        let mut exists = cmd("EXISTS");
        keys.iter().for_each(|key| {
            exists.arg(&key[..]);
        });
        self.0.node.call("touching", &exists).await?;
        Ok(())
    }
}
