//! Ends of attempts.

use bytes::Bytes;
use keylapse_wire::{AckReply, AttemptEnd, LeaseRef, PromotedArming, Settle, SettleReply};

use super::{Life, Oracle, promise};
use crate::model::machine::driver::Verdict;

impl Oracle {
    pub(super) fn ack(&mut self, held: &[LeaseRef], reply: &AckReply) -> Verdict {
        let mut live = Vec::with_capacity(held.len());
        for one in held {
            live.push(self.entry(&one.key).held_by(one.token).is_some());
        }
        let gone: Vec<usize> = (0..held.len()).filter(|place| !live[*place]).collect();
        promise!(reply.gone == gone, "P4: {gone:?} hold nothing");
        let mut followed = Vec::new();
        for (place, one) in held.iter().enumerate() {
            // The same one may be named twice in a call.
            if self.entry(&one.key).held_by(one.token).is_some()
                && let Some((arming, deadline)) = self.end(&one.key, 0)
            {
                followed.push(PromotedArming { place, deadline, arming });
            }
        }
        promise!(reply.followed == followed, "P1: {followed:?} follow");
        Ok(())
    }

    pub(super) fn settle(&mut self, settle: &Settle, reply: SettleReply) -> Verdict {
        let Settle { held, end } = settle;
        let Some(life) = self.entry(&held.key).held_by(held.token) else {
            promise!(reply == SettleReply::Gone, "P4: a stale token settled {settle:?}");
            return Ok(());
        };
        let life = *life;
        let expected = self.ended_by(&held.key, life, end);
        promise!(reply == expected, "P1: {expected:?} was promised to {settle:?}");
        Ok(())
    }

    fn ended_by(&mut self, key: &Bytes, life: Life, end: &AttemptEnd) -> SettleReply {
        let kept = self.entry(key).next.is_some();
        let next = match end {
            AttemptEnd::Snooze { delay, attempt, .. } => self.later(life, *delay, *attempt),
            AttemptEnd::Release => Life { holder: None, ..life },
            AttemptEnd::Dead { .. } => {
                self.died(key, life.arming);
                return self.gave_way(key).unwrap_or(SettleReply::Settled(None));
            }
            AttemptEnd::Retry { .. } | AttemptEnd::Again { .. } if kept => {
                return self.gave_way(key).unwrap_or(SettleReply::Gone);
            }
            AttemptEnd::Retry { delay, attempt, .. } => self.later(life, *delay, *attempt),
            AttemptEnd::Again { delay, arming } => {
                self.withdraw(life.arming);
                Life::new((*arming, self.moment.ceil + delay), 0)
            }
        };
        let settled = SettleReply::Settled(Some((next.deadline, next.arming)));
        self.entry(key).life = Some(next);
        settled
    }

    /// What is kept takes the place of what has ended.
    fn gave_way(&mut self, key: &Bytes) -> Option<SettleReply> {
        self.end(key, 0).map(|(arming, deadline)| SettleReply::ReplacedByQueued(deadline, arming))
    }

    /// A live holder has settled, so lost leases are forgiven.
    fn later(&self, life: Life, delay: u64, attempt: u32) -> Life {
        Life { holder: None, deadline: self.moment.ceil + delay, attempt, lost: 0, tried: true, ..life }
    }
}
