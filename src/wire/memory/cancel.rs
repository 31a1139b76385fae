//! Withdraws timers: cancel.lua.

use crate::wire::memory::afterlife::Ended;
use crate::wire::memory::fields;
use crate::wire::memory::turn::Turn;
use crate::wire::types::{Cancel, CancelCode, CancelReply, Held};
use crate::time::MAX_DEADLINE_MS;

const NOT_ARMED: CancelReply = CancelReply { code: CancelCode::NotArmed, deadline: None };

impl Turn<'_> {
    pub(super) fn cancel(&mut self, timers: &[Cancel], repeat: bool) -> Vec<CancelReply> {
        let mut out = Vec::with_capacity(timers.len());
        for timer in timers {
            let earlier = if repeat { self.cancelled_before(timer) } else { None };
            out.push(earlier.unwrap_or_else(|| self.cancel_one(timer)));
        }
        out
    }

    /// What the first execution of this cancel has answered.
    fn cancelled_before(&self, timer: &Cancel) -> Option<CancelReply> {
        let id = timer.id.as_bytes();
        let codes = [(Ended::Cancel, CancelCode::Cancelled), (Ended::Fenced, CancelCode::InFlight)];
        let (_, code) = codes.into_iter().find(|(what, _)| self.has_tombstone(*what, id))?;
        Some(CancelReply { code, deadline: None })
    }

    fn cancel_one(&mut self, timer: &Cancel) -> CancelReply {
        let key = &timer.key;
        let Some(record) = self.book.rec.remove(key) else { return NOT_ARMED };
        let state = self.book.run.remove(key);
        let deadline = deadline_of(&record, state.as_deref());
        let running = state.filter(|state| fields::is_claimed(state));
        let (what, code) = match running {
            Some(_) => (Ended::Fenced, CancelCode::InFlight),
            None => (Ended::Cancel, CancelCode::Cancelled),
        };
        self.tombstone(what, timer.id.as_bytes());
        self.tombstone_arming(&record);
        if let Some(kept) = self.book.next.remove(key) {
            self.tombstone_arming(&kept);
        }
        self.book.unindex(key);
        if let Some(token) = running.and_then(|state| fields::token(&state)) {
            self.fences.push(Held { key: key.clone(), token });
        }
        CancelReply { code, deadline }
    }
}

/// By which a trigger key is known. Written by others, it can be any number.
fn deadline_of(record: &[u8], state: Option<&[u8]>) -> Option<u64> {
    let present = state.and_then(fields::present_deadline);
    let deadline = present.or_else(|| fields::first_deadline(record));
    deadline.filter(|deadline| (1..MAX_DEADLINE_MS).contains(deadline))
}
