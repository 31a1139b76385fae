//! Claims, and the leases that they give.

use bytes::Bytes;
use keylapse_wire::record::{Record, State};
use keylapse_wire::{Claim, Claimed, ClaimedTimer, DEAD_AT, Index, LeaseRef, QUARANTINE_AT, TimerSnapshot};

use super::{Holder, Oracle, promise};
use crate::model::machine::clients::KEYS;
use crate::model::machine::driver::Verdict;
use crate::model::rig::LEASE;

impl Oracle {
    pub(super) fn claim(
        &mut self,
        call: &Claim,
        claimed: &Claimed,
        looks: &[Option<TimerSnapshot>],
    ) -> Verdict {
        promise!(claimed.orphans == 0 && claimed.parked == 0, "nothing was broken");
        promise!(claimed.paused.is_some() || !self.paused, "it was paused");
        let gives_out = claimed.paused.is_none() || call.repeat;
        promise!(gives_out || claimed.timers.is_empty(), "a paused partition gave something out");
        promise!(claimed.timers.len() <= call.limit || call.repeat, "that is more than was asked for");
        for timer in &claimed.timers {
            self.take(call, timer)?;
        }
        let mut lost =
            |timer: &ClaimedTimer| self.entry(&timer.key).life.as_ref().map_or(0, |life| life.lost);
        let worst = claimed.timers.iter().map(&mut lost).max().unwrap_or_default();
        let together =
            worst.checked_sub(QUARANTINE_AT).map(|level| call.group.sizes[usize::from(level.min(2))]);
        let fits = together.is_none_or(|most| claimed.timers.len() <= most);
        promise!(fits || call.repeat, "P6: a group of {} beside {worst} lost leases", claimed.timers.len());
        let mut buried = 0;
        for (key, look) in KEYS.iter().zip(looks) {
            buried += self.lose(call, &Bytes::from_static(key), look.as_ref())?;
        }
        promise!(claimed.dead_lettered == buried, "P1: {buried} were buried");
        Ok(())
    }

    /// A timer that the claim has given out.
    fn take(&mut self, call: &Claim, timer: &ClaimedTimer) -> Verdict {
        let now = self.moment.now;
        let record = Record::decode(timer.record.clone()).map_err(|_| "a broken record was given out")?;
        let Some(life) = &mut self.entry(&timer.key).life else {
            return Err("P7: a timer came out that is not there".to_owned());
        };
        promise!(record.arming == life.arming, "P7: another arming came out than {:?}", life.arming);
        let mut until = now + call.lease_ms;
        match life.holder {
            Some(holder) if holder.token == call.token => {
                promise!(call.repeat, "P4: claimed twice");
                until = until.max(holder.until); // it may have been renewed for longer
            }
            Some(holder) => {
                promise!(holder.until <= now, "P4: a live lease was taken");
                life.lost += u8::from(!holder.found_lost);
                promise!(life.lost < DEAD_AT, "P6: it was lost too often");
            }
            None => promise!(
                life.deadline <= now.saturating_add_signed(call.lookahead_ms),
                "P2: early by the clock"
            ),
        }
        let alone = life.lost >= QUARANTINE_AT;
        let from = if alone { Index::Quarantine } else { Index::Due };
        promise!(from == call.index || life.is_held_by(call.token), "P6: those in quarantine run apart");
        let told = timer.state.clone().map(State::decode).transpose().map_err(|_| "a broken state")?;
        let told = told.unwrap_or(State::first(call.token));
        promise!(
            (told.lost, told.attempt, told.token) == (life.lost, life.attempt, call.token),
            "the claimant was told something else"
        );
        life.holder = Some(Holder { token: call.token, until, found_lost: false });
        Ok(())
    }

    /// What a claim does with leases that are over, apart from giving the
    /// timers out again. Answers how many it has buried.
    fn lose(&mut self, call: &Claim, key: &Bytes, look: Option<&TimerSnapshot>) -> Verdict<u64> {
        let now = self.moment.now;
        let Some(life) = &mut self.entry(key).life else { return Ok(0) };
        let Some(holder) = &mut life.holder else { return Ok(0) };
        if holder.found_lost || holder.until > now || holder.token == call.token {
            return Ok(0);
        }
        let still = look.filter(|look| look.record.get(1..9) == Some(life.arming.as_bytes()));
        let Some(look) = still else {
            promise!(life.lost + 1 >= DEAD_AT, "P6: buried after {} lost leases", life.lost + 1);
            promise!(call.index == Index::Quarantine, "P6: buried without having run alone");
            let arming = life.arming;
            self.end(key, DEAD_AT - 1); // what follows has one to lose
            self.died(key, arming);
            return Ok(1);
        };
        let waits = look.state.as_ref().is_some_and(|state| state.get(1) == Some(&0));
        if waits {
            promise!(
                call.index == Index::Due && life.lost + 1 == QUARANTINE_AT,
                "P6: in quarantine too soon"
            );
            holder.found_lost = true;
            life.lost += 1;
        }
        Ok(0)
    }

    pub(super) fn renew(&mut self, held: &[LeaseRef], lost: &[usize]) -> Verdict {
        let until = self.moment.now + LEASE;
        for (place, one) in held.iter().enumerate() {
            let held = self.entry(&one.key).held_by(one.token);
            let holder = held.and_then(|life| life.holder.as_mut()).filter(|holder| !holder.found_lost);
            promise!(holder.is_none() == lost.contains(&place), "P4: a lease was kept or lost wrongly");
            if let Some(holder) = holder {
                holder.until = until;
            }
        }
        Ok(())
    }
}
