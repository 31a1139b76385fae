//! Keys with a deadline of their own: trigger.lua and untrigger.lua.

use std::collections::HashMap;

use bytes::Bytes;

use crate::wire::types::{Trigger, TriggerReply};

#[derive(Debug, Default)]
pub(super) struct Triggers {
    keys: HashMap<Bytes, Slot>,
    /// Keys that have been found expired and not been told of.
    expired: Vec<Bytes>,
}

#[derive(Debug)]
struct Slot {
    value: Bytes,
    /// None for keys that do not expire.
    deadline: Option<u64>,
}

impl Slot {
    fn is_number_until(&self, holds: impl FnOnce(u64) -> bool) -> bool {
        self.deadline.is_some_and(holds) && Trigger::is_number(&self.value)
    }

    /// Whether this may be the key of the same timer as that which is to be set.
    fn is_ours(&self, now: u64, trigger: &Trigger) -> bool {
        self.is_number_until(|expires| trigger.moved || expires <= now || expires == trigger.deadline)
    }
}

impl Triggers {
    pub(super) fn set(&mut self, now: u64, trigger: &Trigger) -> TriggerReply {
        if self.slot(now, &trigger.key).is_some_and(|present| !present.is_ours(now, trigger)) {
            return TriggerReply::Foreign;
        }
        if trigger.deadline <= now {
            self.keys.remove(&trigger.key);
            return TriggerReply::Past;
        }
        let slot = Slot { value: trigger.number().to_string().into(), deadline: Some(trigger.deadline) };
        self.keys.insert(trigger.key.clone(), slot);
        TriggerReply::Set
    }

    pub(super) fn put_foreign(&mut self, key: Bytes, value: Bytes) {
        self.keys.insert(key, Slot { value, deadline: None });
    }

    pub(super) fn expire_at(&mut self, now: u64, key: &[u8], deadline: u64) {
        if let Some(slot) = self.slot(now, key) {
            slot.deadline = Some(deadline);
        }
    }

    /// Deletes a key of ours that expires then.
    pub(super) fn drop_of(&mut self, now: u64, key: &[u8], deadline: u64) -> bool {
        let found =
            self.slot(now, key).is_some_and(|slot| slot.is_number_until(|expires| expires == deadline));
        found && self.keys.remove(key).is_some()
    }

    /// The value of a key.
    pub(super) fn get(&mut self, now: u64, key: &[u8]) -> Option<Bytes> {
        self.slot(now, key).map(|slot| slot.value.clone())
    }

    /// A key that is there. As in Redis, one whose deadline has passed expires
    /// when somebody looks, and is still there in its deadline's millisecond.
    fn slot(&mut self, now: u64, key: &[u8]) -> Option<&mut Slot> {
        let expired = self.keys.get(key)?.deadline.is_some_and(|deadline| deadline < now);
        if expired {
            let (key, _) = self.keys.remove_entry(key)?;
            self.expired.push(key);
            return None;
        }
        self.keys.get_mut(key)
    }

    /// The keys that have expired since this was last asked.
    pub(super) fn take_expired(&mut self) -> Vec<Bytes> {
        std::mem::take(&mut self.expired)
    }
}
