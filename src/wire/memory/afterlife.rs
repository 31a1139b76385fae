//! What may follow the end of a timer: afterlife.lua.

use bytes::Bytes;

use crate::wire::memory::fields;
use crate::wire::memory::index::Score;
use crate::wire::memory::turn::Turn;
use crate::id::ArmingId;
use crate::wire::record::State;

/// Tombstones are forgotten after this long, in ms,
const TOMB_AGE: u64 = 600_000;
/// or when there are more of them.
const TOMB_COUNT: usize = 100_000;

/// What was withdrawn or followed by another.
#[derive(Clone, Copy, Debug)]
#[repr(u8)]
pub(super) enum Ended {
    /// An arming, by a cancel or a later arming.
    Arming = b'a',
    /// A waiting timer, by this arming.
    Replaced = b'r',
    /// A waiting timer, by this cancel.
    Cancel = b'c',
    /// A running attempt, by this cancel.
    Fenced = b'f',
}

impl Turn<'_> {
    /// Remembers what was ended, so that a repeat of its beginning does not
    /// begin it again.
    pub(super) fn tombstone(&mut self, what: Ended, id: &[u8]) {
        let (now, tomb) = (self.now(), &mut self.book.tomb);
        tomb.set(&name(what, id), Score::from_ms(now));
        let too_old = tomb.below(Score::nth(now.saturating_sub(TOMB_AGE), 1), usize::MAX);
        too_old.iter().for_each(|member| tomb.remove(member));
        let excess = tomb.range(0, tomb.len().saturating_sub(TOMB_COUNT));
        excess.iter().for_each(|member| tomb.remove(member));
    }

    /// The same of a record's arming, or of what is left of its id.
    pub(super) fn tombstone_arming(&mut self, record: &[u8]) {
        let id = record.get(1..).unwrap_or_default();
        self.tombstone(Ended::Arming, &id[..id.len().min(8)]);
    }

    pub(super) fn forget_tombstone(&mut self, what: Ended, id: &[u8]) {
        self.book.tomb.remove(&name(what, id));
    }

    pub(super) fn has_tombstone(&self, what: Ended, id: &[u8]) -> bool {
        self.book.tomb.contains(&name(what, id))
    }

    /// Installs the arming kept behind a timer that is gone, and answers its
    /// deadline and id. Lost leases are inherited until a live holder settles,
    /// or a poison pill that arms its own key would never be caught.
    pub(super) fn succeed(&mut self, key: &Bytes, lost: u8, ended: &[u8]) -> Option<(u64, ArmingId)> {
        let kept = self.book.next.remove(key)?;
        let deadline = fields::first_deadline(&kept).unwrap_or(self.now());
        let arming = fields::arming(&kept).unwrap_or(ArmingId([0; 8]));
        self.book.rec.insert(key.clone(), kept);
        self.stain(key, lost);
        self.wait(key, Score::from_ms(deadline), lost);
        if let Some(ended) = fields::arming(ended) {
            self.tombstone(Ended::Arming, ended.as_bytes());
        }
        Some((deadline, arming))
    }

    /// Makes the state that of a new arming, which is none unless there are
    /// lost leases to inherit.
    pub(super) fn stain(&mut self, key: &Bytes, lost: u8) {
        if lost > 0 {
            let stained = State { lost, ..State::waiting(1) };
            self.book.run.insert(key.clone(), stained.encode());
        } else {
            self.book.run.remove(key);
        }
    }
}

fn name(what: Ended, id: &[u8]) -> Bytes {
    [&[what as u8], id].concat().into()
}
