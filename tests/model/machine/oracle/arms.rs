//! Armings and their withdrawal.

use crate::model::rig::{ArmCode, ArmReply, system_time};
use bytes::Bytes;
use keylapse::dead_letters::Replayed;
use keylapse::timers::ArmingId;
use keylapse::{Cancelled, ErrorKind, Rescheduled};
use keylapse_wire::time::{MAX_DEADLINE_MS, WireWhen};
use keylapse_wire::{CancelReply, LeaseRef, NewTimer, ReplayCall};

use super::{Entry, Holder, Life, MEMORY, Moment, Oracle, promise};
use crate::model::machine::call::Call;
use crate::model::machine::driver::Verdict;
use crate::produce::Cancel;

const SUPERSEDED: ArmReply = ArmReply { code: ArmCode::Superseded, deadline: 0 };
const TOO_FAR: ArmReply = ArmReply { code: ArmCode::TooFar, deadline: 0 };
const EXISTS: ArmReply = ArmReply { code: ArmCode::Exists, deadline: 0 };

impl Oracle {
    pub(super) fn arm(&mut self, timer: &NewTimer, absent: bool, reply: ArmReply) -> Verdict {
        if self.moment.deadline(timer.when) >= MAX_DEADLINE_MS {
            promise!(reply == TOO_FAR, "P2: a deadline that cannot be kept was taken");
            return Ok(());
        }
        let remembered = match reply.code {
            ArmCode::Superseded => self.withdrawn.contains_key(&timer.arming),
            _ => self.was_just_withdrawn(timer.arming),
        };
        let since = self.moment.now.saturating_sub(MEMORY);
        let entry = self.entry(&timer.key);
        let expected = match entry.found(timer.arming, since, reply.code) {
            Some(found) => found,
            None if remembered => SUPERSEDED,
            None if absent && entry.life.is_some() => EXISTS,
            None => self.install(timer),
        };
        promise!(reply == expected, "P1: {expected:?} was promised to {timer:?}");
        Ok(())
    }

    fn install(&mut self, timer: &NewTimer) -> ArmReply {
        let (now, deadline) = (self.moment.now, self.moment.deadline(timer.when));
        let entry = self.entry(&timer.key);
        // The latest arming stands, whatever was kept before it.
        let kept = entry.next.take().map(|(arming, _)| arming);
        let (code, replaced) = match &mut entry.life {
            Some(life) if life.runs() => {
                entry.next = Some((timer.arming, deadline));
                (ArmCode::AfterRunning, None)
            }
            Some(life) => {
                let life_of = Life::new((timer.arming, deadline), life.lost);
                let earlier = std::mem::replace(life, Life { replaced: Some(now), ..life_of });
                (ArmCode::Replaced, Some(earlier.arming))
            }
            none => {
                *none = Some(Life::new((timer.arming, deadline), 0));
                (ArmCode::Armed, None)
            }
        };
        kept.into_iter().chain(replaced).for_each(|ended| self.withdraw(ended));
        ArmReply { code, deadline }
    }

    pub(super) fn cancel(&mut self, cancel: &Cancel, repeat: bool, reply: CancelReply) -> Verdict {
        let now = self.moment.now;
        if let Some((code, at)) = self.cancels.get(&cancel.id).filter(|_| repeat) {
            let same = reply == CancelReply { result: *code, deadline: None };
            promise!(same || now >= at + MEMORY, "P7: a repeat has another answer");
            if same {
                return Ok(());
            }
        }
        let entry = self.entry(&cancel.key);
        let Some(life) = entry.life.take() else {
            promise!(
                reply == CancelReply { result: Cancelled::NotArmed, deadline: None },
                "there is nothing"
            );
            return Ok(());
        };
        let kept = entry.next.take();
        let running = life.holder.filter(|holder| !holder.found_lost);
        let code = match running {
            None => Cancelled::Cancelled,
            Some(_) if life.deadline > now => Cancelled::Claimed,
            Some(_) => Cancelled::InFlight,
        };
        if let Some(Holder { token, .. }) = running {
            self.fenced.push(LeaseRef { key: cancel.key.clone(), token });
        }
        let promised = CancelReply { result: code, deadline: Some(life.deadline) };
        promise!(reply == promised, "P7: {promised:?} was promised");
        self.withdraw(life.arming);
        if let Some((arming, _)) = kept {
            self.withdraw(arming);
        }
        // A repeat does not know whether the deadline was still to come.
        let again = if running.is_some() { Cancelled::InFlight } else { code };
        self.cancels.insert(cancel.id, (again, now));
        Ok(())
    }

    pub(super) fn reschedule(&mut self, key: &Bytes, when: WireWhen, reply: Rescheduled) -> Verdict {
        let deadline = self.moment.deadline(when);
        let expected = match &mut self.entry(key).life {
            None => Rescheduled::NotArmed,
            Some(life) if life.runs() => Rescheduled::InFlight,
            Some(life) => {
                life.deadline = deadline;
                if !life.tried && life.lost == 0 {
                    life.first_deadline = deadline;
                }
                Rescheduled::Rescheduled(system_time(deadline))
            }
        };
        promise!(reply == expected, "P2: {expected:?} was promised");
        Ok(())
    }

    pub(super) fn replay(&mut self, call: &ReplayCall, reply: Replayed) -> Verdict {
        let ReplayCall { letter, id, anew, repeat } = call;
        let Moment { now, ceil } = self.moment;
        if let Some(at) = self.replays.get(id).filter(|_| *repeat) {
            // It may be remembered for longer. Once forgotten, it does what it finds to do; that letter is gone.
            if reply == Replayed::Replayed {
                return Ok(());
            }
            promise!(now >= at + MEMORY, "P1: a repeat of a replay has another answer");
        }
        let key = letter.slice(16..);
        let present = self.entry(&key).life;
        let expected = match present {
            Some(_) => Replayed::Exists,
            None if self.letters.remove(letter) => Replayed::Replayed,
            None => Replayed::Gone,
        };
        promise!(reply == expected, "P1: {expected:?} was promised");
        if expected == Replayed::Replayed {
            let died = ArmingId::from_bytes(&letter[..8]).ok_or("a letter without an arming")?;
            let arming = anew.unwrap_or(died);
            self.entry(&key).life = Some(Life::new((arming, ceil), 0));
            self.withdrawn.remove(&arming);
            self.replays.insert(*id, now);
        }
        Ok(())
    }

    /// Only a move to a deadline that is too far is refused.
    pub(super) fn refused(&self, call: &Call, kind: ErrorKind) -> Verdict {
        let too_far = |when| self.moment.deadline(when) >= MAX_DEADLINE_MS;
        let rightly = match call {
            Call::Reschedule(_, when) => too_far(*when),
            _ => false,
        };
        promise!(rightly && kind == ErrorKind::Invalid, "a call was refused");
        Ok(())
    }
}

impl Entry {
    /// What an arm call says of an arming that it finds here; that it has replaced another is
    /// remembered for a while, and may be for longer.
    fn found(&self, arming: ArmingId, since: u64, said: ArmCode) -> Option<ArmReply> {
        let code_of = |life: &Life| match life.replaced {
            Some(at) if at > since || said == ArmCode::Replaced => ArmCode::Replaced,
            _ => ArmCode::Armed,
        };
        let life = self.life.filter(|life| life.arming == arming);
        let kept = self.next.filter(|(kept, _)| *kept == arming);
        let found = life.map(|life| (code_of(&life), life.deadline));
        let found = found.or(kept.map(|(_, deadline)| (ArmCode::AfterRunning, deadline)));
        found.map(|(code, deadline)| ArmReply { code, deadline })
    }
}
