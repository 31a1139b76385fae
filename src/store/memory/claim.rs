//! Takes what is due, for the time of a lease: claim.lua.

use bytes::Bytes;

use super::fields;
use super::grave::Corpse;
use super::index::Score;
use super::ledger::LastClaim;
use super::turn::{Turn, waits_in};
use crate::store::record::{Reason, Record, State, Unreadable};
use crate::store::{Claim, Claimed, ClaimedTimer, Heads, Index, POISON_AT, SUSPECT_AT};

/// How far a record of a newer version is put off, in ms.
const PARK: u64 = 60_000;

/// A claim while it is being made.
struct Taking {
    call: Claim,
    /// How many bytes may still be taken.
    room: usize,
    timers: Vec<ClaimedTimer>,
    /// The states that the timers are held with.
    holds: Vec<State>,
    orphans: u64,
    parked: u64,
    buried: u64,
}

impl Turn<'_> {
    pub(super) fn claim(&mut self, call: Claim) -> Claimed {
        // What follows a burial is new to everybody, whatever the head was.
        self.head = None;
        let paused = self.book.paused.clone();
        if let Some(timers) = self.claimed_before(call) {
            return self.claimed(call, paused, timers);
        }
        if paused.is_some() {
            let nothing = self.claimed(call, paused, Vec::new());
            return Claimed { heads: Heads::default(), rival: false, ..nothing };
        }
        let trimmed = self.book.trimmed;
        let Taking { timers, orphans, parked, buried, .. } = self.take(call);
        let trimmed = self.book.trimmed - trimmed;
        Claimed { orphans, parked, buried, trimmed, ..self.claimed(call, None, timers) }
    }

    fn claimed(&self, call: Claim, paused: Option<String>, timers: Vec<ClaimedTimer>) -> Claimed {
        Claimed {
            stamp: self.stamp,
            heads: self.book.heads(),
            paused,
            rival: timers.is_empty() && self.book.by.is_some_and(|by| by != call.lane),
            timers,
            orphans: 0,
            parked: 0,
            buried: 0,
            trimmed: 0,
        }
    }

    /// What an unanswered claim still holds, with its leases renewed.
    fn claimed_before(&mut self, call: Claim) -> Option<Vec<ClaimedTimer>> {
        let slot = self.book.lanes.get(&call.lane).filter(|slot| call.repeat && slot.token == call.token)?;
        let expires = Score::from_ms(self.now().saturating_add(call.lease_ms));
        let mut timers = Vec::with_capacity(slot.keys.len());
        for key in slot.keys.clone() {
            let Some(record) = self.book.rec.get(&key) else { continue };
            let held = |state: &&Bytes| fields::is_claimed(state) && fields::is_held_by(state, call.token);
            let Some(state) = self.book.run.get(&key).filter(held) else { continue };
            let (record, state) = (record.clone(), state.clone());
            let index = self.book.index_mut(waits_in(fields::lost_leases(&state)));
            // One that has been renewed for longer since is not cut short.
            let expires = index.score(&key).map_or(expires, |renewed| renewed.max(expires));
            index.set(&key, expires);
            timers.push(ClaimedTimer { key, record, state: Some(state) });
        }
        Some(timers)
    }

    fn take(&mut self, call: Claim) -> Taking {
        let mut taking = Taking::new(call);
        let end = Score::from_ms((self.now() + 1).saturating_add(call.lookahead_ms));
        let ready = self.book.index(call.index).below(end, call.limit);
        for key in &ready {
            if taking.room == 0 {
                break;
            }
            self.attend(key, &mut taking);
        }
        self.hold(&taking);
        taking
    }

    /// Looks at one key whose time has come.
    fn attend(&mut self, key: &Bytes, taking: &mut Taking) {
        let Some(record) = self.book.rec.get(key).cloned() else {
            self.book.index_mut(taking.call.index).remove(key);
            self.book.run.remove(key);
            taking.orphans += 1;
            return;
        };
        let state = self.book.run.get(key).cloned();
        match (Record::decode(record.clone()), state.clone().map(State::decode).transpose()) {
            (Err(Unreadable::Newer), _) | (_, Err(Unreadable::Newer)) => {
                let later = Score::from_ms(self.now() + PARK);
                self.book.index_mut(taking.call.index).set(key, later);
                taking.parked += 1;
            }
            (Err(Unreadable::Broken), _) | (_, Err(Unreadable::Broken)) => {
                let state = state.unwrap_or_default();
                self.bury_one(Corpse { key, record, state, reason: Reason::Unreadable, lost: 0 }, taking);
            }
            (Ok(_), Ok(state)) if misplaced(taking.call.index, state.as_ref()) => self.trust(key),
            (Ok(_), Ok(None)) => taking.add(key, record, None),
            (Ok(_), Ok(Some(state))) => self.attend_again(key, record, state, taking),
        }
    }

    /// Puts a timer among the others again, unless it is there.
    fn trust(&mut self, key: &Bytes) {
        if !self.book.due.contains(key) {
            self.book.due.set(key, Score::from_ms(self.now()));
        }
        self.book.solo.remove(key);
    }

    /// A timer with a past: it was held before, or moved.
    fn attend_again(&mut self, key: &Bytes, record: Bytes, mut state: State, taking: &mut Taking) {
        if state.claimed {
            let expires = self.book.index(taking.call.index).score(key);
            if expires.is_some_and(|expires| expires.ms() > self.now()) {
                return;
            }
            state.lost = state.lost.saturating_add(1);
            if state.lost >= POISON_AT {
                let (lost, state) = (state.lost, state.encode());
                return self
                    .bury_one(Corpse { key, record, state, reason: Reason::LostLeases, lost }, taking);
            }
        }
        if state.lost >= SUSPECT_AT && taking.call.index == Index::Due {
            // The token stays: a late settlement is accepted until the next claim.
            let waiting = State { claimed: false, ..state };
            self.book.run.insert(key.clone(), waiting.encode());
            self.book.due.remove(key);
            self.book.solo.set(key, Score::from_ms(self.now()));
            return;
        }
        taking.add(key, record, Some(state));
    }

    fn bury_one(&mut self, corpse: Corpse<'_>, taking: &mut Taking) {
        self.bury(corpse, taking.call.letters);
        taking.buried += 1;
    }

    fn hold(&mut self, taking: &Taking) {
        if taking.timers.is_empty() {
            return;
        }
        let call = taking.call;
        let keys = taking.timers.iter().map(|timer| timer.key.clone()).collect();
        self.book.lanes.insert(call.lane, LastClaim { token: call.token, at: self.now(), keys });
        self.book.by = Some(call.lane);
        let expires = Score::from_ms(self.now().saturating_add(call.lease_ms));
        for (timer, hold) in taking.timers.iter().zip(&taking.holds) {
            self.book.run.insert(timer.key.clone(), hold.encode());
            self.book.index_mut(call.index).set(&timer.key, expires);
        }
    }
}

/// Whether a timer waits with the suspects and is none: its state was lost,
/// and with it the suspicion.
fn misplaced(index: Index, state: Option<&State>) -> bool {
    index == Index::Solo && state.is_none_or(|state| state.lost < SUSPECT_AT)
}

impl Taking {
    fn new(call: Claim) -> Self {
        Self { call, room: call.bytes, timers: vec![], holds: vec![], orphans: 0, parked: 0, buried: 0 }
    }

    /// Takes a timer. A first attempt has no state to tell the claimant of.
    fn add(&mut self, key: &Bytes, record: Bytes, state: Option<State>) {
        self.room = self.room.saturating_sub(record.len());
        let token = self.call.token;
        let again = state.map(|state| State { claimed: true, token, ..state });
        let told = again.as_ref().map(State::encode);
        self.timers.push(ClaimedTimer { key: key.clone(), record, state: told });
        self.holds.push(again.unwrap_or_else(|| State::first(token)));
    }
}
