//! Moves a waiting timer to another deadline: reschedule.lua.

use bytes::{Bytes, BytesMut};

use crate::wire::memory::fields;
use crate::wire::memory::index::Score;
use crate::wire::memory::turn::Turn;
use crate::error::Result;
use crate::wire::types::RescheduleReply;
use crate::wire::record::{RECORD_HEAD, STATE_HEAD, State};
use crate::time::WireWhen;

/// Attempt, lost leases and snoozes of a state to which nothing has happened: its
/// age is to count from the new deadline.
const UNTOUCHED: [u8; 7] = [0, 0, 0, 1, 0, 0, 0];

impl Turn<'_> {
    pub(super) fn reschedule(&mut self, key: &[u8], when: WireWhen) -> Result<RescheduleReply> {
        let deadline = self.deadline(when)?;
        let record = self.book.rec.get(key).filter(|record| record.len() >= RECORD_HEAD);
        let Some(arming) = record.and_then(|record| fields::arming(record)) else {
            return Ok(RescheduleReply::NotArmed);
        };
        let state = self.book.run.get(key);
        if state.is_some_and(|state| fields::is_claimed(state)) {
            return Ok(RescheduleReply::InFlight);
        }
        let (record, state) = (record.cloned().unwrap_or_default(), moved(state, deadline));
        let (attempt, lost) = (fields::attempt(&state), fields::lost_leases(&state));
        let key = Bytes::copy_from_slice(key);
        if record[0] == 1 && state[10..17] == UNTOUCHED {
            self.book.rec.insert(key.clone(), with_deadline(record, 9, deadline));
            self.book.run.remove(&key);
        } else {
            self.book.run.insert(key.clone(), state);
        }
        self.wait(&key, Score::from_ms(deadline), lost);
        Ok(RescheduleReply::Rescheduled { deadline, arming, attempt })
    }
}

/// The same state with another deadline. Its other bytes may be those of a
/// newer version and stay as they are.
fn moved(state: Option<&Bytes>, deadline: u64) -> Bytes {
    let whole = state.filter(|state| state.len() >= STATE_HEAD).cloned();
    with_deadline(whole.unwrap_or_else(|| State::waiting(1).encode()), STATE_HEAD - 8, deadline)
}

fn with_deadline(bytes: Bytes, at: usize, deadline: u64) -> Bytes {
    let mut bytes = BytesMut::from(bytes);
    bytes[at..at + 8].copy_from_slice(&deadline.to_be_bytes());
    bytes.freeze()
}
