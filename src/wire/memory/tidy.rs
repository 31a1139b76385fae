//! The slow repair: tidy.lua. Here every step looks at everything.

use bytes::Bytes;

use crate::wire::memory::fields;
use crate::wire::memory::index::Score;
use crate::wire::memory::turn::Turn;
use crate::wire::record::STATE_HEAD;
use crate::wire::types::{Scan, RepairStep, Repaired};
use crate::time::MAX_DEADLINE_MS;

/// When a slot's slot is of no use any more, in ms.
const LANE_AGE: u64 = 86_400_000;

impl Turn<'_> {
    pub(super) fn tidy(&mut self, step: &RepairStep) -> Repaired {
        let repaired = match step.what {
            Scan::Records => self.mend_records(step.lease_ms),
            Scan::States => self.mend_states(),
            Scan::Next => self.mend_next(),
            Scan::Lanes => self.mend_lanes(),
        };
        Repaired { cursor: 0, repaired: repaired as u64 }
    }

    /// Records that no index names, or only for a day that never comes.
    fn mend_records(&mut self, lease_ms: u64) -> usize {
        let lost: Vec<Bytes> = self.book.rec.keys().filter(|key| !self.is_placed(key)).cloned().collect();
        for key in &lost {
            let state = self.book.run.get(key).filter(|state| state.len() >= STATE_HEAD);
            let leases = state.map_or(0, |state| fields::lost_leases(state));
            let at = self.attention_at(key, lease_ms);
            self.wait(key, Score::from_ms(at), leases);
        }
        lost.len()
    }

    fn is_placed(&self, key: &[u8]) -> bool {
        let score = self.book.due.score(key).or(self.book.solo.score(key));
        score.is_some_and(|score| score.ms() < MAX_DEADLINE_MS)
    }

    /// When a timer needs attention: at its deadline, or, as its holder may be
    /// alive, a lease from now.
    fn attention_at(&self, key: &[u8], lease_ms: u64) -> u64 {
        let first = || self.book.rec.get(key).and_then(|record| fields::first_deadline(record));
        let at = match self.book.run.get(key) {
            Some(state) if state.len() < STATE_HEAD => None,
            Some(state) if fields::is_claimed(state) => Some(self.now().saturating_add(lease_ms)),
            Some(state) => fields::present_deadline(state).or_else(first),
            None => first(),
        };
        at.filter(|at| *at < MAX_DEADLINE_MS).unwrap_or(self.now())
    }

    /// States without a record.
    fn mend_states(&mut self) -> usize {
        let (before, rec) = (self.book.run.len(), &self.book.rec);
        self.book.run.retain(|key, _| rec.contains_key(key));
        before - self.book.run.len()
    }

    /// Armings that wait behind nothing.
    fn mend_next(&mut self) -> usize {
        let rec = &self.book.rec;
        let lost: Vec<Bytes> = self.book.next.keys().filter(|key| !rec.contains_key(*key)).cloned().collect();
        for key in &lost {
            self.succeed(key, 0, &[]);
        }
        lost.len()
    }

    /// Slots of listeners that are gone.
    fn mend_lanes(&mut self) -> usize {
        let (before, now) = (self.book.slots.len(), self.now());
        self.book.slots.retain(|_, slot| now.saturating_sub(slot.at) < LANE_AGE);
        before - self.book.slots.len()
    }
}
