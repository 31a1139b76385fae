//! What is heard in a gap: kept until a canary gives it a name and its keys were looked at after that.
//!
//! It may have been noted by others, or not: rather twice than never. All who hear it so agree on its name, which is
//! the canary and how many expiries of the key come before it: so it fires once more at most.

use std::collections::HashMap;
use std::mem;

use bytes::Bytes;

use crate::attached::reader::{StreamReader, identity};
use crate::attached::request::Request;
use crate::attached::room::Taken;
use crate::attached::value::Expiry;
use crate::attached::writer::Write;
use crate::events::Answer;
use crate::id::ArmingId;
use crate::log::warn;
use crate::runtime::EventMode;
use crate::time::ServerTime;
use crate::wire::{Deed, Found, FoundGone, Identity, Judged, Life, Note, Position, Watch};

/// Bytes of keys that were heard in a gap, and are kept until it is over; and what a key takes besides, about.
const MOST: usize = 64 << 20;
const BESIDE_KEY: usize = 64;

/// What was heard in one gap since something was missed last.
#[derive(Debug, Default)]
pub(super) struct Unsure {
    /// How often each key was heard to expire.
    keys: HashMap<Bytes, u32>,
    /// What they take.
    bytes: usize,
    /// The canary after it.
    canary: Option<u64>,
}

impl Unsure {
    /// A key was heard to expire; false where there is no room.
    fn hear(&mut self, key: Bytes) -> bool {
        if let Some(times) = self.keys.get_mut(&key) {
            *times += 1;
            return true;
        }
        let bytes = self.bytes + key.len() + BESIDE_KEY;
        let fits = bytes <= MOST;
        if fits {
            self.bytes = bytes;
            self.keys.insert(key, 1);
        }
        fits
    }

    /// Whether it will still be noted that this key has expired.
    pub(super) fn has(&self, key: &Bytes) -> bool {
        self.keys.contains_key(key)
    }

    fn remove(&mut self, key: &Bytes) -> Option<u32> {
        let times = self.keys.remove(key)?;
        self.bytes -= key.len() + BESIDE_KEY;
        Some(times)
    }

    fn take_one(&mut self, key: &Bytes) -> bool {
        let Some(times) = self.keys.get_mut(key) else { return false };
        *times -= 1;
        if *times == 0 {
            self.remove(key);
        }
        true
    }
}

impl StreamReader {
    /// A key was heard to expire in a gap. It is kept until that is over, if there is room; else it fires only if it
    /// was enrolled.
    pub(super) fn hear_unsure(&mut self, partition: usize, key: Bytes) {
        if self.unsure.hear(key) {
            return;
        }
        let topic = self.topic(partition);
        if topic.attached.lost_unenrolled.get() == 0 {
            warn!(topic = %topic.config.name, "more keys expire in a gap than can be kept: events are dropped");
        }
        topic.attached.lost_unenrolled.add(1);
    }

    /// A canary was heard after a gap, and gives names to what was heard before it. The keys are read together
    /// with the time of the anchor: an expiry that was announced before the answer has been noted by then, so
    /// of a key that is gone nothing more will be heard of what was read before.
    pub(super) fn name_unsure(&mut self, canary: u64) {
        let keys: Vec<Bytes> = self.unsure.keys.keys().cloned().collect();
        if !keys.is_empty() {
            self.unsure.canary = Some(canary);
            warn_of(keys.len());
        }
        self.asked(Request::Anchor(keys));
    }

    /// A canary was heard that this listener does not believe. Others may, and name by it what all have heard: so
    /// what was heard before it has its name now, and waits for no other.
    pub(super) fn name_by_hearsay(&mut self, canary: u64) {
        if self.unsure.canary.is_none() && !self.unsure.keys.is_empty() {
            self.unsure.canary = Some(canary);
            warn_of(self.unsure.keys.len());
            self.tear_unsure(false);
        }
    }

    /// Keys that were heard in a gap were read, or could not be.
    pub(super) async fn note_unsure(&mut self, keys: Vec<Bytes>, answer: Option<Answer>) {
        let Some(canary) = self.unsure.canary else { return };
        let (stamp, found) = answer.unwrap_or_default();
        let mut found = found.into_iter();
        for key in keys {
            let is_gone = matches!(found.next(), Some(Found { life: Life::Gone, .. }));
            let at = self.stream.place(&key);
            let gone = is_gone.then(|| FoundGone { at, stamp, asked: ServerTime::default() });
            if let Some(times) = self.unsure.remove(&key) {
                self.fire_unsure(key, times, Some(canary), gone).await;
            }
        }
    }

    /// What has its name keeps it; what has none will have none, where more was missed since.
    pub(super) fn tear_unsure(&mut self, missed: bool) {
        if missed || self.unsure.canary.is_some() {
            self.torn.push(mem::take(&mut self.unsure));
        }
    }

    pub(super) async fn fire_torn(&mut self) {
        for Unsure { keys, canary, .. } in mem::take(&mut self.torn) {
            if canary.is_none() && !keys.is_empty() {
                warn_of(keys.len());
            }
            for (key, times) in keys {
                self.fire_unsure(key, times, canary, None).await;
            }
        }
    }

    async fn fire_unsure(&self, key: Bytes, times: u32, canary: Option<u64>, gone: Option<FoundGone>) {
        let Some(partition) = self.runtime.route(&key) else { return };
        let node = self.stream.node();
        for back in 1..=times {
            self.topic(partition).attached.ambiguous.add(1);
            let (identity, arming) = match canary {
                Some(canary) => {
                    let arming = identity(&key, Position { node, canary, count: back }, true);
                    (Identity::Gap { node, canary, back, gone }, arming)
                }
                None => (Identity::Unknown(node), ArmingId::random()),
            };
            let note = Note { key: key.clone(), identity, arming };
            self.write(partition, Write::Note(note), Taken::default()).await;
        }
    }

    /// A key is gone that was heard to expire in a gap. The note of that is to come, and ends its watch; but
    /// where no canary comes, that is now.
    pub(super) async fn end_unsure(
        &mut self,
        partition: usize,
        watch: Watch,
        stamp: ServerTime,
        room: Taken,
    ) {
        if self.runtime.stream_state.known().mode != EventMode::Blind || !self.unsure.take_one(&watch.key) {
            return;
        }
        self.topic(partition).attached.ambiguous.add(1);
        let deed = Deed::Fire { arming: ArmingId::random(), flags: Expiry::Ambiguous.flags() };
        let at = self.stream.place(&watch.key);
        self.write(partition, Write::Judge(Judged { watch, at, stamp, before: None, deed }), room).await;
    }
}

fn warn_of(count: usize) {
    warn!(count, "keys were heard to expire in a gap: their handlers may run twice");
}
