//! Keys with a deadline of their own: trigger.lua and untrigger.lua.

use std::collections::HashMap;

use bytes::Bytes;

use crate::id::ArmingId;
use crate::store::{Trigger, TriggerReply};

/// What the values of our own keys begin with.
const OURS: &[u8] = b"{\"attempt\":";
/// How much of a value is searched for an arming.
const SEARCHED: usize = 256;

#[derive(Debug, Default)]
pub(super) struct Triggers {
    keys: HashMap<Bytes, Slot>,
    /// Keys that have been found expired and not been told of.
    expired: Vec<Bytes>,
}

#[derive(Debug)]
struct Slot {
    value: Bytes,
    /// None for keys of others.
    deadline: Option<u64>,
}

impl Triggers {
    pub(super) fn set(&mut self, now: u64, trigger: &Trigger) -> TriggerReply {
        let present = self.get(now, &trigger.key);
        let ours = present.as_ref().is_some_and(|value| value.starts_with(OURS));
        if present.is_some() && !ours {
            return TriggerReply::Foreign;
        }
        if trigger.deadline <= now {
            self.keys.remove(&trigger.key);
            return TriggerReply::Past;
        }
        let slot = Slot { value: trigger.value().into(), deadline: Some(trigger.deadline) };
        self.keys.insert(trigger.key.clone(), slot);
        TriggerReply::Set
    }

    pub(super) fn put_foreign(&mut self, key: Bytes, value: Bytes) {
        self.keys.insert(key, Slot { value, deadline: None });
    }

    /// Deletes a key if it carries this arming.
    pub(super) fn drop_of(&mut self, now: u64, key: &[u8], arming: ArmingId) -> bool {
        let mark = format!("\"arming\":\"{arming}\"");
        let carries = |value: Bytes| {
            let searched = &value[..value.len().min(SEARCHED)];
            searched.windows(mark.len()).any(|part| part == mark.as_bytes())
        };
        self.get(now, key).is_some_and(carries) && self.keys.remove(key).is_some()
    }

    /// The value of a key. As in Redis, one whose deadline has passed expires
    /// when somebody looks, and is still there in its deadline's millisecond.
    pub(super) fn get(&mut self, now: u64, key: &[u8]) -> Option<Bytes> {
        let slot = self.keys.get(key)?;
        if slot.deadline.is_none_or(|deadline| now <= deadline) {
            return Some(slot.value.clone());
        }
        let (key, _) = self.keys.remove_entry(key)?;
        self.expired.push(key);
        None
    }

    /// The keys that have expired since this was last asked.
    pub(super) fn take_expired(&mut self) -> Vec<Bytes> {
        std::mem::take(&mut self.expired)
    }
}
