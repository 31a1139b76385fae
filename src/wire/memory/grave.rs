//! How a timer becomes a dead letter: grave.lua.

use bytes::Bytes;

use crate::wire::memory::fields;
use crate::wire::memory::index::Score;
use crate::wire::memory::turn::Turn;
use crate::id::ArmingId;
use crate::wire::types::Letters;
use crate::wire::record::{Letter, Reason};

/// How many letters one death trims at most, for being too many
const TRIM_EXCESS: usize = 1000;
/// and for being too old.
const TRIM_OLD: usize = 100;
/// Why a partition pauses by itself.
const FULL: &str = "dead letters are full";

/// A timer that is to be buried.
pub(super) struct Corpse<'a> {
    pub(super) key: &'a Bytes,
    pub(super) record: Bytes,
    pub(super) state: Bytes,
    pub(super) reason: Reason,
    /// Lost leases that the arming kept behind it inherits.
    pub(super) lost: u8,
}

impl Turn<'_> {
    /// Moves a timer into the dead letters, and lets the arming kept behind it
    /// follow.
    pub(super) fn bury(&mut self, corpse: Corpse<'_>, bounds: Letters) -> Option<(u64, ArmingId)> {
        let Corpse { key, record, state, reason, lost } = corpse;
        let name = letter_name(&record, key);
        let letter = Letter { reason, died: self.now(), state, record: record.clone() };
        self.book.grave.insert(name.clone(), letter.encode());
        self.book.dead.set(&name, Score::from_ms(self.now()));
        self.book.unindex(key);
        self.book.run.remove(key);
        self.book.rec.remove(key);
        self.bound_letters(bounds);
        self.succeed(key, lost, &record)
    }

    fn bound_letters(&mut self, bounds: Letters) {
        let kept = usize::try_from(bounds.count).unwrap_or(usize::MAX);
        let dead = &self.book.dead;
        if bounds.pause_when_full {
            if dead.len() >= kept {
                self.book.paused.get_or_insert_with(|| FULL.to_owned());
            }
        } else {
            let excess = dead.len().saturating_sub(kept);
            self.trim(&self.book.dead.range(0, excess.min(TRIM_EXCESS)));
        }
        let oldest = Score::from_ms(self.now().saturating_sub(bounds.age_ms));
        self.trim(&self.book.dead.below(oldest, TRIM_OLD));
    }

    fn trim(&mut self, names: &[Bytes]) {
        for name in names {
            self.book.dead.remove(name);
            self.book.grave.remove(name);
        }
        self.book.trimmed += names.len() as u64;
    }
}

/// The arming's id and the key; broken records have no id.
fn letter_name(record: &[u8], key: &[u8]) -> Bytes {
    let arming = fields::arming(record).unwrap_or(ArmingId([0; 8]));
    [arming.as_bytes(), key].concat().into()
}
