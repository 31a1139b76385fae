//! What was promised, kept in mind from calls and answers alone.
//!
//! Not a third store: it knows neither bytes nor scores nor what a claim would
//! choose. It knows which arming each key is of, who may hold it until when,
//! and how often it was lost, and judges answers by that:
//!
//! - P1 nothing that was armed vanishes;
//! - P2 nothing is claimed before its deadline, less the lookahead;
//! - P4 one token lives at a time, and a stale one changes nothing;
//! - P6 five lost leases end a timer: from the second on it runs in groups, and the last is lost alone;
//! - P7 nothing runs or comes back after its cancel, and the latest arming
//!   stands;
//! - whoever sleeps until the head that it knows of is woken for an earlier one.

mod arms;
mod claims;
mod ends;
mod sights;
mod sleeper;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use bytes::Bytes;
use keylapse::Cancelled;
use keylapse::timers::ArmingId;
use keylapse_connection::id::{CancelId, ReplayId, Token};
use keylapse_wire::time::WireWhen;
use keylapse_wire::{DeadLetterLimits, LeaseRef, RepairTarget};

use self::sleeper::Sleeper;
use super::call::{Answer, Call};
use super::clients::KEYS;
use super::driver::{Sight, Verdict};
use crate::model::rig::letter_name;

/// For how long a repeat is recognised, in ms.
const MEMORY: u64 = 600_000;

/// Returns an error unless a condition holds.
macro_rules! promise {
    ($holds:expr, $($why:tt)+) => {
        if !$holds {
            return Err(format!($($why)+));
        }
    };
}
use promise;

/// The server's clock at a call.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Moment {
    pub(crate) now: u64,
    pub(crate) ceil: u64,
}

impl Moment {
    fn deadline(self, when: WireWhen) -> u64 {
        match when {
            WireWhen::In(ms) => self.ceil + ms,
            WireWhen::At(ms) => ms.max(self.ceil),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Oracle {
    moment: Moment,
    bounds: DeadLetterLimits,
    keys: BTreeMap<Bytes, Entry>,
    /// Armings that were withdrawn or followed by another, and when.
    withdrawn: HashMap<ArmingId, u64>,
    cancels: HashMap<CancelId, (Cancelled, u64)>,
    /// Replays that have brought something back, and when.
    replays: HashMap<ReplayId, u64>,
    letters: BTreeSet<Bytes>,
    trimmed: u64,
    /// How many of the last call's deaths replaced a letter of the same arming and
    /// moment: a late repeat of its arm has armed it again.
    died_again: u64,
    paused: bool,
    /// Claims that were fenced by the last call.
    fenced: Vec<LeaseRef>,
    sleeper: Sleeper,
}

#[derive(Debug, Default)]
struct Entry {
    life: Option<Life>,
    /// What is kept for later, and its deadline.
    next: Option<(ArmingId, u64)>,
}

/// An arming that is to run.
#[derive(Clone, Copy, Debug)]
struct Life {
    arming: ArmingId,
    first_deadline: u64,
    deadline: u64,
    /// When it took the place of a waiting timer, if it did.
    replaced: Option<u64>,
    attempt: u32,
    lost: u8,
    /// Whether an attempt has failed or been put off.
    tried: bool,
    holder: Option<Holder>,
}

#[derive(Clone, Copy, Debug)]
struct Holder {
    token: Token,
    until: u64,
    /// Its lease was found to be lost, and nobody else holds it yet.
    found_lost: bool,
}

impl Life {
    fn new((arming, deadline): (ArmingId, u64), lost: u8) -> Self {
        Self {
            arming,
            first_deadline: deadline,
            deadline,
            replaced: None,
            attempt: 1,
            lost,
            tried: false,
            holder: None,
        }
    }

    fn runs(&self) -> bool {
        self.holder.is_some_and(|holder| !holder.found_lost)
    }

    fn is_held_by(&self, token: Token) -> bool {
        self.holder.is_some_and(|holder| holder.token == token)
    }
}

impl Entry {
    fn held_by(&mut self, token: Token) -> Option<&mut Life> {
        self.life.as_mut().filter(|life| life.is_held_by(token))
    }
}

impl Oracle {
    pub(crate) fn new(bounds: DeadLetterLimits) -> Self {
        let keys = KEYS.iter().map(|key| (Bytes::from_static(key), Entry::default())).collect();
        Self {
            moment: Moment::default(),
            bounds,
            keys,
            withdrawn: HashMap::new(),
            cancels: HashMap::new(),
            replays: HashMap::new(),
            letters: BTreeSet::new(),
            trimmed: 0,
            died_again: 0,
            paused: false,
            fenced: Vec::new(),
            sleeper: Sleeper::default(),
        }
    }

    /// Judges an answer, and keeps in mind what it means.
    pub(crate) fn note(&mut self, moment: Moment, call: &Call, answer: &Answer, sight: &Sight) -> Verdict {
        self.moment = moment;
        self.fenced.clear();
        self.died_again = 0;
        match (call, answer) {
            (Call::Arm { timers, only_if_absent, .. }, Answer::Armed(replies)) => {
                promise!(replies.len() == timers.len(), "not an answer for each timer");
                let mut pairs = timers.iter().zip(replies);
                pairs.try_for_each(|(timer, reply)| self.arm(timer, *only_if_absent, *reply))
            }
            (Call::Cancel { timers, repeat }, Answer::Cancelled(replies)) => {
                promise!(replies.len() == timers.len(), "not an answer for each timer");
                let mut pairs = timers.iter().zip(replies);
                pairs.try_for_each(|(cancel, reply)| self.cancel(cancel, *repeat, *reply))
            }
            (Call::Reschedule(key, when), Answer::Rescheduled(reply)) => self.reschedule(key, *when, *reply),
            (Call::Claim(call), Answer::Claimed(claimed)) => self.claim(call, claimed, &sight.looks),
            (Call::Ack(held), Answer::Acked(reply)) => self.ack(held, reply),
            (Call::Settle(ends), Answer::Settled(replies)) => {
                promise!(replies.len() == ends.len(), "not an answer for each end");
                ends.iter().zip(replies).try_for_each(|(end, reply)| self.settle(end, *reply))
            }
            (Call::Renew(held), Answer::Renewed(lost)) => self.renew(held, lost),
            (Call::Pause(reason), Answer::Paused(before)) => {
                promise!(before.is_some() || !self.paused, "it was paused");
                self.paused = reason.is_some();
                Ok(())
            }
            (Call::Repair(what), Answer::Repaired(repaired)) => {
                promise!(*what == RepairTarget::Slots || *repaired == 0, "P1: {repaired} entries were lost");
                Ok(())
            }
            (Call::CloseSlot(_), Answer::Closed) => Ok(()),
            (Call::Replay(call), Answer::Replayed(reply)) => self.replay(call, *reply),
            (Call::DropLetter(letter), Answer::Dropped(done)) => {
                promise!(self.letters.remove(letter) == *done, "it is not clear which letters there are");
                Ok(())
            }
            (call, Answer::Refused(kind)) => self.refused(call, *kind),
            _ => Err("that is no answer to this call".to_owned()),
        }
    }

    fn entry(&mut self, key: &Bytes) -> &mut Entry {
        self.keys.entry(key.clone()).or_default()
    }

    /// An arming was withdrawn or has been followed by another.
    fn withdraw(&mut self, arming: ArmingId) {
        self.withdrawn.insert(arming, self.moment.now);
    }

    /// Whether that cannot have been forgotten yet.
    fn was_just_withdrawn(&self, arming: ArmingId) -> bool {
        self.withdrawn.get(&arming).is_some_and(|at| self.moment.now < at + MEMORY)
    }

    /// Ends the life of a key. Answers the arming that was kept behind it, and
    /// now takes its place, with its deadline.
    fn end(&mut self, key: &Bytes, lost: u8) -> Option<(ArmingId, u64)> {
        let entry = self.entry(key);
        let next = entry.next.take();
        let ended = std::mem::replace(&mut entry.life, next.map(|next| Life::new(next, lost)));
        if let Some(ended) = ended.filter(|_| next.is_some()) {
            self.withdraw(ended.arming);
        }
        next
    }

    fn died(&mut self, key: &Bytes, arming: ArmingId) {
        let is_new = self.letters.insert(letter_name(arming, self.moment.now, key).into());
        self.died_again += u64::from(!is_new);
    }
}
