//! The ends of attempts: ack.lua and settle.lua.

use bytes::Bytes;

use crate::wire::memory::fields;
use crate::wire::memory::grave::Corpse;
use crate::wire::memory::index::Score;
use crate::wire::memory::turn::Turn;
use crate::id::ArmingId;
use crate::wire::record::{RECORD_HEAD, Record, State};
use crate::wire::types::{AckReply, End, Followed, Held, Letters, Settle, SettleReply};

impl Turn<'_> {
    pub(super) fn ack(&mut self, held: &[Held]) -> AckReply {
        // All are judged before any is removed: a call that names a timer
        // twice gets the same answer for both.
        let holds: Vec<bool> = held.iter().map(|one| self.holds(one)).collect();
        let mut reply = AckReply::default();
        let mut done = Vec::with_capacity(held.len());
        for (place, holds) in holds.into_iter().enumerate() {
            if holds { done.push(place) } else { reply.gone.push(place) }
        }
        let ended: Vec<Bytes> = done.iter().map(|place| self.finish(&held[*place].key)).collect();
        for (place, record) in done.into_iter().zip(ended) {
            if let Some((deadline, arming)) = self.succeed(&held[place].key, 0, &record) {
                reply.followed.push(Followed { place, deadline, arming });
            }
        }
        reply
    }

    /// Takes a timer out, and answers its record. As none but suspects is held
    /// in solo, that is looked into for them only.
    fn finish(&mut self, key: &Bytes) -> Bytes {
        let state = self.book.run.remove(key).unwrap_or_default();
        if fields::may_be_suspect(&state) {
            self.book.solo.remove(key);
        }
        self.book.due.remove(key);
        self.book.rec.remove(key).unwrap_or_default()
    }

    pub(super) fn settle(&mut self, letters: Letters, ends: &[Settle]) -> Vec<SettleReply> {
        let mut out = Vec::with_capacity(ends.len());
        for Settle { held, end } in ends {
            let state = self.book.run.get(&held.key).filter(|_| self.holds(held));
            let record = self.book.rec.get(&held.key).cloned();
            out.push(match state.and_then(fields::state).zip(record) {
                Some((state, record)) => self.settle_one(&held.key, state, record, end, letters),
                None => SettleReply::Gone,
            });
        }
        out
    }

    fn holds(&self, one: &Held) -> bool {
        self.book.run.get(&one.key).is_some_and(|state| fields::is_held_by(state, one.token))
    }

    /// Takes a timer out of everything but what is kept behind it, and answers
    /// its record.
    fn remove(&mut self, key: &Bytes) -> Bytes {
        self.book.unindex(key);
        self.book.run.remove(key);
        self.book.rec.remove(key).unwrap_or_default()
    }

    fn settle_one(
        &mut self,
        key: &Bytes,
        state: State,
        record: Bytes,
        end: &End,
        letters: Letters,
    ) -> SettleReply {
        match end {
            End::Retry { delay, attempt, snoozes, history } => self
                .give_way(key)
                .unwrap_or_else(|| self.wait_again(key, &record, *delay, (*attempt, *snoozes, history))),
            End::Snooze { delay, attempt, snoozes, history } => {
                self.wait_again(key, &record, *delay, (*attempt, *snoozes, history))
            }
            End::Again { delay, arming } => {
                self.give_way(key).unwrap_or_else(|| self.begin_again(key, &record, *delay, *arming))
            }
            End::Dead { reason, history } => {
                let state = State { history: history.clone(), ..unheld(state) }.encode();
                let followed = self.bury(Corpse { key, record, state, reason: *reason, lost: 0 }, letters);
                followed.map_or(SettleReply::Settled(None), |(at, id)| SettleReply::GaveWay(at, id))
            }
            End::Release => self.release(key, state, &record),
        }
    }

    /// Ends the timer in favour of the arming kept behind it, if there is one.
    fn give_way(&mut self, key: &Bytes) -> Option<SettleReply> {
        if !self.book.next.contains_key(key) {
            return None;
        }
        let record = self.remove(key);
        self.succeed(key, 0, &record).map(|(deadline, arming)| SettleReply::GaveWay(deadline, arming))
    }

    fn wait_again(
        &mut self,
        key: &Bytes,
        record: &[u8],
        delay: u64,
        (attempt, snoozes, history): (u32, u16, &Bytes),
    ) -> SettleReply {
        let deadline = self.after(delay);
        let state = State { snoozes, deadline, history: history.clone(), ..State::waiting(attempt) };
        self.book.run.insert(key.clone(), state.encode());
        self.book.unindex(key);
        self.wait(key, Score::from_ms(deadline), 0);
        SettleReply::Settled(fields::arming(record).map(|arming| (deadline, arming)))
    }

    /// The same payload as a new arming.
    fn begin_again(&mut self, key: &Bytes, record: &Bytes, delay: u64, arming: ArmingId) -> SettleReply {
        let deadline = self.after(delay);
        let payload = record.slice(RECORD_HEAD.min(record.len())..);
        self.tombstone_arming(record);
        self.remove(key);
        self.book.rec.insert(key.clone(), Record { arming, deadline, payload }.encode());
        self.wait(key, Score::from_ms(deadline), 0);
        SettleReply::Settled(Some((deadline, arming)))
    }

    /// Hands an attempt back. That proves nothing about the handler, so lost
    /// leases stay.
    fn release(&mut self, key: &Bytes, state: State, record: &Bytes) -> SettleReply {
        let first = fields::first_deadline(record).unwrap_or(self.now());
        let deadline = if state.deadline > 0 { state.deadline } else { first };
        let waiting = unheld(state);
        self.book.run.insert(key.clone(), waiting.encode());
        self.wait(key, Score::from_ms(deadline), waiting.lost);
        SettleReply::Settled(fields::arming(record).map(|arming| (deadline, arming)))
    }
}

/// The state when nobody holds it any more.
fn unheld(state: State) -> State {
    State { claimed: false, token: State::waiting(1).token, ..state }
}
