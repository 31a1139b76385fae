//! Keys that expire at a deadline: trigger keys, and those that are written back for their retries.

use bytes::Bytes;
use redis::{Value, cmd};

use crate::error::Result;
use crate::wire::{Store, TriggerKey, copy, scripts};

/// A trigger key to set.
#[derive(Clone, Debug)]
pub struct Trigger {
    /// The key.
    pub key: Bytes,
    /// When it expires, in ms since 1970.
    pub deadline: u64,
    /// The attempt to come.
    pub attempt: u32,
}

impl Store {
    /// Sets trigger keys where they lie elsewhere than the index. `moved`: whether the timers were there before, so
    /// that a number that expires at another time is taken for their key.
    #[cfg(feature = "testing")]
    pub async fn set_triggers(&self, triggers: &[Trigger], moved: bool) -> Result<Vec<TriggerKey>> {
        let keys: Vec<_> = triggers.iter().map(|trigger| &trigger.key[..]).collect();
        let mut call = self.call_with(&scripts::TRIGGER, &keys);
        for trigger in triggers {
            call.arg(trigger.deadline).arg(trigger.attempt).arg(i32::from(moved));
        }
        let codes = [TriggerKey::None, TriggerKey::Set, TriggerKey::Taken];
        let codes = crate::wire::Reply::new("trigger", call.run().await?)?
            .each(|reply| reply.one_of(&[0_usize, 1, 2]))?
            .into_iter()
            .map(|code| codes[code].clone());
        Ok(codes.collect())
    }

    /// Deletes a trigger key if it is ours and expires then.
    pub async fn drop_trigger(&self, key: &[u8], deadline: u64) -> Result<bool> {
        Ok(self.call_with(&scripts::UNTRIGGER, &[key]).arg(deadline).run().await? == Value::Int(1))
    }

    /// Writes a key back, if the name is free. The copy is as touch.lua makes it.
    pub async fn write_back(&self, key: &[u8], deadline: u64, copy: &[u8]) -> Result<TriggerKey> {
        let (kind, value) = copy.split_first().map_or((0, copy), |(kind, value)| (*kind, value));
        let mut call = self.call_with(&scripts::WRITE_BACK, &[key]);
        call.arg(deadline).arg(if kind == copy::DUMP { "dump" } else { "string" }).arg(value);
        Ok(placed(redis::from_redis_value(call.run().await?).unwrap_or_default()))
    }

    /// Reads trigger keys, so that the server expires those that are due.
    pub async fn touch(&self, keys: &[Bytes]) -> Result<()> {
        let servers = &self.0.servers;
        if !servers.are_many() {
            let keys: Vec<_> = keys.iter().map(|key| &key[..]).collect();
            return self.send("touching", b"", cmd("EXISTS").arg(keys)).await.map(drop);
        }
        let touches = keys.iter().map(|key| (servers.slot_of(key), cmd("EXISTS").arg(&key[..]).clone()));
        let answers = servers.each("touching", touches.collect()).await;
        answers.into_iter().find_map(Result::err).map_or(Ok(()), Err)
    }
}

/// What became of a key that was to be written back; none is kept whose deadline has passed.
fn placed(code: u64) -> TriggerKey {
    match code {
        1 => TriggerKey::Set,
        2 => TriggerKey::None,
        _ => TriggerKey::Taken,
    }
}
