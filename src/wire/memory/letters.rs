//! Reads, drops and revives dead letters: replay.lua and a few commands.

use bytes::Bytes;

use crate::wire::memory::fields;
use crate::wire::memory::index::Score;
use crate::wire::memory::ledger::Ledger;
use crate::wire::memory::turn::Turn;
use crate::id::ArmingId;
use crate::wire::record::{Letter, Record};
use crate::wire::types::{RawLetter, ReplayReply};

impl Ledger {
    /// Oldest first.
    pub(super) fn letters(&self, skip: usize, count: usize) -> Vec<RawLetter> {
        let named = |id: Bytes| self.grave.get(&id).cloned().map(|letter| RawLetter { id, letter });
        self.dead.range(skip, count).into_iter().filter_map(named).collect()
    }

    pub(super) fn drop_letter(&mut self, id: &[u8]) -> bool {
        self.dead.remove(id);
        self.grave.remove(id).is_some()
    }
}

impl Turn<'_> {
    pub(super) fn replay(&mut self, id: &[u8], arming: ArmingId) -> ReplayReply {
        let key = Bytes::copy_from_slice(id.get(8..).unwrap_or_default());
        if let Some(present) = self.book.rec.get(&key) {
            // A repeat finds what the first call armed.
            let deadline =
                fields::first_deadline(present).filter(|_| fields::arming(present) == Some(arming));
            return deadline.map_or(ReplayReply::Exists, ReplayReply::Replayed);
        }
        let Some(letter) = self.book.grave.get(id) else { return ReplayReply::NoLetter };
        let record = Letter::decode(letter.clone()).and_then(|letter| Record::decode(letter.record));
        let Ok(Record { payload, .. }) = record else { return ReplayReply::Unreadable };
        let deadline = self.stamp.ms_ceil();
        self.book.drop_letter(id);
        self.book.run.remove(&key);
        self.book.rec.insert(key.clone(), Record { arming, deadline, payload }.encode());
        self.wait(&key, Score::from_ms(deadline), 0);
        ReplayReply::Replayed(deadline)
    }
}
