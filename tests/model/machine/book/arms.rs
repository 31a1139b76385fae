//! Armings and their withdrawal.

use bytes::Bytes;
use keylapse::store::{
    ArmCode, ArmReply, Cancel, CancelCode, CancelReply, NewTimer, ReplayReply, RescheduleReply,
};
use keylapse::{ArmingId, ErrorKind, MAX_DEADLINE_MS, WireWhen};

use super::{Book, Life, MEMORY, promise};
use crate::machine::call::Call;
use crate::machine::player::Verdict;

impl Book {
    pub(super) fn arm(&mut self, timer: &NewTimer, absent: bool, repeat: bool, reply: ArmReply) -> Verdict {
        let promised = (timer.arming, self.moment.deadline(timer.when));
        let just_withdrawn = self.was_just_withdrawn(timer.arming);
        let once_withdrawn = self.withdrawn.contains_key(&timer.arming);
        let slot = self.slot(&timer.key);
        match (reply.code, &mut slot.life) {
            (ArmCode::Armed, Some(life)) => {
                promise!(life.arming == timer.arming, "P1: armed as if there was no timer");
                promise!(life.deadline == reply.deadline, "P2: not the deadline of this arming");
                return Ok(());
            }
            (ArmCode::Armed, none) => {
                promise!(!(repeat && just_withdrawn), "P7: what was withdrawn or followed came back");
                *none = Some(Life::new(promised, 0));
            }
            (ArmCode::Replaced, Some(life)) => {
                promise!(!absent && !life.runs(), "P1: a running or protected timer was replaced");
                let ended = std::mem::replace(life, Life::new(promised, life.lost));
                let kept = slot.next.take();
                self.withdraw(ended.arming);
                // The latest arming stands, whatever was kept before it.
                kept.into_iter().for_each(|(arming, _)| self.withdraw(arming));
            }
            (ArmCode::AfterRunning, Some(life)) => {
                if let Some((_, deadline)) = slot.next.filter(|(arming, _)| *arming == timer.arming) {
                    promise!(deadline == reply.deadline, "P2: not the deadline of this arming");
                    return Ok(());
                }
                promise!(life.runs(), "it is kept behind nothing that runs");
                promise!(!absent, "a timer that was to be left alone was followed");
                if let Some((ended, _)) = slot.next.replace(promised) {
                    self.withdraw(ended);
                }
            }
            (ArmCode::Exists, Some(_)) => {
                promise!(absent, "it was not asked whether there is one");
                return Ok(());
            }
            (ArmCode::Superseded, _) => {
                promise!(repeat && once_withdrawn, "P1: an arming was not made");
                return Ok(());
            }
            (code, None) => return Err(format!("P1: {code:?}, but there is no timer")),
        }
        promise!(reply.deadline == promised.1, "P2: not the deadline that was asked for: {promised:?}");
        Ok(())
    }

    pub(super) fn cancel(&mut self, cancel: &Cancel, repeat: bool, reply: CancelReply) -> Verdict {
        let now = self.moment.now;
        if let Some((code, at)) = self.cancels.get(&cancel.id).filter(|_| repeat) {
            let same = reply == CancelReply { code: *code, arming: None };
            promise!(same || now >= at + MEMORY, "P7: a repeat has another answer");
            if same {
                return Ok(());
            }
        }
        let slot = self.slot(&cancel.key);
        let Some(life) = slot.life.take() else {
            promise!(reply == CancelReply { code: CancelCode::NotArmed, arming: None }, "there is nothing");
            return Ok(());
        };
        let kept = slot.next.take();
        let code = if life.runs() { CancelCode::InFlight } else { CancelCode::Cancelled };
        promise!(reply == CancelReply { code, arming: Some(life.arming) }, "P7: {code:?} {:?}", life.arming);
        self.withdraw(life.arming);
        if let Some((arming, _)) = kept {
            self.withdraw(arming);
        }
        self.cancels.insert(cancel.id, (code, now));
        Ok(())
    }

    pub(super) fn reschedule(&mut self, key: &Bytes, when: WireWhen, reply: RescheduleReply) -> Verdict {
        let deadline = self.moment.deadline(when);
        let expected = match &mut self.slot(key).life {
            None => RescheduleReply::NotArmed,
            Some(life) if life.runs() => RescheduleReply::InFlight,
            Some(life) => {
                life.deadline = deadline;
                RescheduleReply::Rescheduled { deadline, arming: life.arming, attempt: life.attempt }
            }
        };
        promise!(reply == expected, "P2: {expected:?} was promised");
        Ok(())
    }

    pub(super) fn replay(&mut self, letter: &Bytes, arming: ArmingId, reply: ReplayReply) -> Verdict {
        let (key, now) = (letter.slice(8..), self.moment.ceil);
        let present = self.slot(&key).life;
        let expected = match present {
            Some(life) if life.arming == arming => ReplayReply::Replayed(life.first_deadline),
            Some(_) => ReplayReply::Exists,
            None if self.letters.remove(letter) => {
                self.slot(&key).life = Some(Life::new((arming, now), 0));
                ReplayReply::Replayed(now)
            }
            None => ReplayReply::NoLetter,
        };
        promise!(reply == expected, "P1: {expected:?} was promised");
        Ok(())
    }

    /// Only deadlines that are too far are refused, and with all of their call.
    pub(super) fn refused(&self, call: &Call, kind: ErrorKind) -> Verdict {
        let too_far = |when| self.moment.deadline(when) >= MAX_DEADLINE_MS;
        let rightly = match call {
            Call::Arm { timers, .. } => timers.iter().any(|timer| too_far(timer.when)),
            Call::Reschedule(_, when) => too_far(*when),
            _ => false,
        };
        promise!(rightly && kind == ErrorKind::Invalid, "a call was refused");
        Ok(())
    }
}
