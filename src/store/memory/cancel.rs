//! Withdraws timers: cancel.lua.

use super::afterlife::Ended;
use super::fields;
use super::turn::Turn;
use crate::store::{Cancel, CancelCode, CancelReply, Held};

const NOT_ARMED: CancelReply = CancelReply { code: CancelCode::NotArmed, arming: None };

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
        Some(CancelReply { code, arming: None })
    }

    fn cancel_one(&mut self, timer: &Cancel) -> CancelReply {
        let key = &timer.key;
        let Some(record) = self.book.rec.remove(key) else { return NOT_ARMED };
        let running = self.book.run.remove(key).filter(|state| fields::is_claimed(state));
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
        CancelReply { code, arming: fields::arming(&record) }
    }
}
