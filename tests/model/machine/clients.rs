//! From a step to a call: fills in keys, times, ids and tokens.

use bytes::Bytes;
use keylapse::dead_letters::DeadReason;
use keylapse_wire::record::State;
use keylapse_wire::time::WireWhen;
use keylapse_wire::{
    AttemptEnd, Claim, Claimed, DeadLetterLimits, LeaseRef, NewTimer, QuarantineGroup, ReplayCall, Settle,
};

use super::call::Call;
use super::op::{Ahead, Ask, Ending, Op, Pick, When};
use crate::model::rig::Ids;
use crate::produce::Cancel;

/// Few, so that things happen to the same ones; ordinary ones and others.
pub(crate) const KEYS: [&[u8]; 5] = [b"a", b"ab", b"b", b"\xff\x00", b""];

/// Beside nobody, so many of those that have lost two leases, three, and four.
const GROUP: QuarantineGroup = QuarantineGroup { running: 0, sizes: [3, 2, 1] };

/// Those who make the calls, and what they remember.
pub(crate) struct Clients {
    letters: DeadLetterLimits,
    ids: Ids,
    /// Everything that was ever claimed, and its attempt.
    taken: Vec<(LeaseRef, u32)>,
    calls: Vec<Call>,
}

/// What a step may refer to.
pub(crate) struct Scene {
    pub(crate) now: u64,
    pub(crate) letters: Vec<Bytes>,
}

impl Clients {
    pub(crate) fn new(letters: DeadLetterLimits) -> Self {
        Self { letters, ids: Ids::default(), taken: Vec::new(), calls: Vec::new() }
    }

    /// Fills in what a step leaves open; none if there is nothing to do it to.
    pub(crate) fn call(&mut self, op: &Op, scene: &Scene) -> Option<Call> {
        Some(match op {
            Op::Arm { timers, absent } => {
                Call::Arm { timers: self.timers(timers, scene), only_if_absent: *absent, repeat: false }
            }
            Op::Cancel(keys) => Call::Cancel { timers: self.cancels(keys), repeat: false },
            Op::Reschedule(ahead) => {
                Call::Reschedule(Bytes::from_static(KEYS[ahead.key]), scene.when(ahead.when))
            }
            Op::Claim(ask) => Call::Claim(self.claim(ask)),
            Op::Ack(picks) => Call::Ack(self.held(picks)?),
            Op::Settle(ends) => Call::Settle(self.ends(ends)?),
            Op::Renew(picks) => Call::Renew(self.held(picks)?),
            Op::Pause(on) => Call::Pause(on.then_some("maintenance")),
            Op::Repair(what) => Call::Repair(*what),
            Op::Replay { letter, as_new } => Call::Replay(ReplayCall {
                letter: scene.letter(*letter)?,
                id: self.ids.replay(),
                anew: as_new.then(|| self.ids.arming()),
                repeat: false,
            }),
            Op::DropLetter(letter) => Call::DropLetter(scene.letter(*letter)?),
            Op::CloseSlot(slot) => Call::CloseSlot(Ids::slot(*slot)),
            Op::Echo(ago) => self.echo(*ago)?,
            Op::Pass(_) | Op::Break { .. } => return None,
        })
    }

    /// Remembers a call, and what it took.
    pub(crate) fn remember(&mut self, call: Call, claimed: Option<&Claimed>) {
        if let (Call::Claim(Claim { token, .. }), Some(claimed)) = (&call, claimed) {
            for timer in &claimed.timers {
                let state = timer.state.clone().and_then(|state| State::decode(state).ok());
                let held = LeaseRef { key: timer.key.clone(), token: *token };
                self.taken.push((held, state.map_or(1, |state| state.attempt)));
            }
        }
        self.calls.push(call);
    }

    /// No key twice in a call.
    fn timers(&mut self, ahead: &[Ahead], scene: &Scene) -> Vec<NewTimer> {
        let mut timers: Vec<NewTimer> = Vec::new();
        for one in ahead {
            let key = Bytes::from_static(KEYS[one.key]);
            if timers.iter().all(|timer| timer.key != key) {
                let payload = Bytes::from(vec![b'.'; one.payload]);
                let arming = self.ids.arming();
                timers.push(NewTimer {
                    key,
                    when: scene.when(one.when),
                    arming,
                    payload,
                    trace: None,
                    by: None,
                });
            }
        }
        timers
    }

    fn cancels(&mut self, keys: &[usize]) -> Vec<Cancel> {
        let mut once = keys.to_vec();
        once.sort_unstable();
        once.dedup();
        let cancel = |key: usize| Cancel { key: Bytes::from_static(KEYS[key]), id: self.ids.cancel() };
        once.into_iter().map(cancel).collect()
    }

    pub(crate) fn claim(&mut self, ask: &Ask) -> Claim {
        Claim {
            index: ask.index,
            slot: Ids::slot(ask.slot),
            token: self.ids.token(),
            repeat: false,
            limit: ask.limit,
            bytes: ask.bytes,
            lookahead_ms: ask.lookahead_ms.cast_signed(),
            lease_ms: ask.lease_ms,
            letters: self.letters,
            group: GROUP,
        }
    }

    fn picked(&self, pick: Pick) -> Option<&(LeaseRef, u32)> {
        let last = self.taken.len().checked_sub(1)?;
        self.taken.get(last - pick % self.taken.len())
    }

    fn held(&self, picks: &[Pick]) -> Option<Vec<LeaseRef>> {
        picks.iter().map(|pick| Some(self.picked(*pick)?.0.clone())).collect()
    }

    fn ends(&mut self, ends: &[(Pick, Ending)]) -> Option<Vec<Settle>> {
        let mut settles = Vec::with_capacity(ends.len());
        for (pick, ending) in ends {
            let (held, attempt) = self.picked(*pick)?.clone();
            settles.push(Settle { held, end: self.end(*ending, attempt) });
        }
        Some(settles)
    }

    fn end(&mut self, ending: Ending, attempt: u32) -> AttemptEnd {
        let history = Bytes::from(format!("[{attempt}]"));
        match ending {
            Ending::Retry(delay) => AttemptEnd::Retry { delay, attempt: attempt + 1, snoozes: 0, history },
            Ending::Snooze(delay) => AttemptEnd::Snooze { delay, attempt, snoozes: 1, history },
            Ending::Again(delay) => AttemptEnd::Again { delay, arming: self.ids.arming() },
            Ending::Dead => AttemptEnd::Dead { reason: DeadReason::Exhausted, history },
            Ending::Release => AttemptEnd::Release,
        }
    }

    fn echo(&self, ago: usize) -> Option<Call> {
        let place = self.calls.len().checked_sub(1 + ago)?;
        let call = &self.calls[place];
        let is_past = self.calls[place + 1..].iter().any(|later| call.is_past_after(later));
        (!is_past).then(|| call.repeated())
    }
}

impl Scene {
    fn when(&self, when: When) -> WireWhen {
        match when {
            When::In(ms) => WireWhen::In(ms),
            When::At(offset) => WireWhen::At(self.now.saturating_add_signed(offset)),
        }
    }

    fn letter(&self, place: usize) -> Option<Bytes> {
        self.letters.get(place % self.letters.len().max(1)).cloned()
    }
}
