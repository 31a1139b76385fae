//! Creates or replaces timers: arm.lua.

use crate::wire::memory::afterlife::Ended;
use crate::wire::memory::fields;
use crate::wire::memory::index::Score;
use crate::wire::memory::turn::Turn;
use crate::error::Result;
use crate::wire::record::Record;
use crate::wire::types::{Arm, ArmCode, ArmReply, NewTimer};

impl Turn<'_> {
    pub(super) fn arm(&mut self, call: Arm<'_>) -> Result<Vec<ArmReply>> {
        // All before any: a deadline that is refused leaves nothing written.
        let deadlines =
            call.timers.iter().map(|timer| self.deadline(timer.when)).collect::<Result<Vec<_>>>()?;
        let one = |(timer, deadline)| self.arm_one(timer, deadline, call);
        Ok(call.timers.iter().zip(deadlines).map(one).collect())
    }

    fn arm_one(&mut self, timer: &NewTimer, deadline: u64, call: Arm<'_>) -> ArmReply {
        if self.book.is_indexed(&timer.key) {
            return self.arm_over(timer, deadline, call);
        }
        if call.repeat && self.has_tombstone(Ended::Arming, timer.arming.as_bytes()) {
            return ArmReply { code: ArmCode::Superseded, deadline: 0 };
        }
        self.forget_replacement(timer, call);
        // What a lost index entry left behind must not speak for a new timer.
        self.book.run.remove(&timer.key);
        self.book.rec.insert(timer.key.clone(), record(timer, deadline));
        let place = self.book.sequence.take(self.stamp.ms());
        self.wait(&timer.key, Score::nth(deadline, place), 0);
        ArmReply { code: ArmCode::Armed, deadline }
    }

    /// A key that is in an index already.
    fn arm_over(&mut self, timer: &NewTimer, deadline: u64, call: Arm<'_>) -> ArmReply {
        if let Some(deadline) = self.deadline_of_arming(timer) {
            let replaced = self.has_tombstone(Ended::Replaced, timer.arming.as_bytes());
            return ArmReply { code: if replaced { ArmCode::Replaced } else { ArmCode::Armed }, deadline };
        }
        if let Some(deadline) = self.deadline_of_kept(timer) {
            return ArmReply { code: ArmCode::AfterRunning, deadline };
        }
        if call.repeat && self.has_tombstone(Ended::Arming, timer.arming.as_bytes()) {
            return ArmReply { code: ArmCode::Superseded, deadline: 0 };
        }
        if call.only_if_absent {
            return ArmReply { code: ArmCode::Exists, deadline: 0 };
        }
        if let Some(earlier) = self.book.next.remove(&timer.key) {
            self.tombstone_arming(&earlier);
        }
        self.forget_replacement(timer, call);
        let running = self.book.run.get(&timer.key).is_some_and(|state| fields::is_claimed(state));
        let code = if running { self.keep(timer, deadline) } else { self.replace(timer, deadline) };
        ArmReply { code, deadline }
    }

    /// A repeat that arms again: what it has replaced before it ended is not what it does now.
    fn forget_replacement(&mut self, timer: &NewTimer, call: Arm<'_>) {
        if call.repeat {
            self.forget_tombstone(Ended::Replaced, timer.arming.as_bytes());
        }
    }

    /// The deadline of the key's timer, if it is of this very arming.
    fn deadline_of_arming(&self, timer: &NewTimer) -> Option<u64> {
        let record = self.book.rec.get(&timer.key)?;
        let first = fields::first_deadline(record)?;
        let state = self.book.run.get(&timer.key);
        let present = state.and_then(|state| fields::present_deadline(state));
        (fields::arming(record) == Some(timer.arming)).then(|| present.unwrap_or(first))
    }

    /// The deadline of this very arming, if it is kept for later; it may be
    /// although the attempt before it has been handed back.
    fn deadline_of_kept(&self, timer: &NewTimer) -> Option<u64> {
        let kept = self.book.next.get(&timer.key)?;
        fields::first_deadline(kept).filter(|_| fields::arming(kept) == Some(timer.arming))
    }

    /// Keeps an arming until the running attempt has ended.
    fn keep(&mut self, timer: &NewTimer, deadline: u64) -> ArmCode {
        self.book.next.insert(timer.key.clone(), record(timer, deadline));
        ArmCode::AfterRunning
    }

    fn replace(&mut self, timer: &NewTimer, deadline: u64) -> ArmCode {
        if let Some(earlier) = self.book.rec.insert(timer.key.clone(), record(timer, deadline)) {
            self.tombstone_arming(&earlier);
        }
        self.tombstone(Ended::Replaced, timer.arming.as_bytes());
        let lost = self.book.run.get(&timer.key).map_or(0, |state| fields::lost_leases(state));
        self.stain(&timer.key, lost);
        self.wait(&timer.key, Score::from_ms(deadline), lost);
        ArmCode::Replaced
    }
}

fn record(timer: &NewTimer, deadline: u64) -> bytes::Bytes {
    Record { arming: timer.arming, deadline, payload: timer.payload.clone() }.encode()
}
