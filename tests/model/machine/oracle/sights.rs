//! What is seen must be what was promised.

use std::collections::BTreeSet;

use keylapse_wire::record::{Record, State};
use keylapse_wire::{QUARANTINE_AT, TimerSnapshot};

use super::{Entry, Life, Oracle, promise};
use crate::model::machine::clients::KEYS;
use crate::model::machine::driver::{Sight, Verdict};

impl Oracle {
    pub(crate) fn agrees(&mut self, sight: &Sight) -> Verdict {
        for (key, look) in KEYS.iter().zip(&sight.looks) {
            let entry = &self.keys[*key];
            entry.agrees(look.as_ref()).map_err(|why| format!("{why}\n  {entry:?}\n  {look:?}"))?;
        }
        self.letters_are(sight)
    }

    /// Takes note of the letters there are; those that have gone were trimmed.
    fn letters_are(&mut self, sight: &Sight) -> Verdict {
        let listed = BTreeSet::from_iter(sight.letters.iter().map(|letter| letter.id.clone()));
        let trimmed = sight.trimmed;
        promise!(listed.is_subset(&self.letters), "a letter came from nowhere: {listed:?}");
        let gone = (self.letters.len() - listed.len()) as u64;
        // One that died again may have been trimmed in between.
        let counts = self.trimmed + gone..=self.trimmed + gone + self.died_again;
        promise!(counts.contains(&trimmed), "P1: {gone} letters are missing, {trimmed} were trimmed");
        let within = self.bounds.pause_when_full || listed.len() as u64 <= self.bounds.count;
        promise!(within, "there are more letters than were asked for");
        (self.letters, self.trimmed) = (listed, trimmed);
        Ok(())
    }
}

impl Entry {
    fn agrees(&self, look: Option<&TimerSnapshot>) -> Verdict {
        let (life, look) = match (&self.life, look) {
            (Some(life), Some(look)) => (life, look),
            (None, None) => return Ok(()),
            (Some(_), None) => return Err("P1: an armed timer has vanished".to_owned()),
            (None, Some(_)) => return Err("P7: a timer came from nowhere".to_owned()),
        };
        let next = look.next.as_ref().map(|next| &next[1..9]);
        promise!(next == self.next.as_ref().map(|(arming, _)| &arming.as_bytes()[..]), "P1: what is kept");
        life.agrees(look)
    }
}

impl Life {
    fn agrees(&self, look: &TimerSnapshot) -> Verdict {
        let record = Record::decode(look.record.clone()).map_err(|_| "a broken record")?;
        let state = look.state.clone().map(State::decode).transpose().map_err(|_| "a broken state")?;
        let state = state.unwrap_or(State::waiting(1));
        let deadline = if state.deadline > 0 { state.deadline } else { record.deadline };
        promise!(record.arming == self.arming, "P1: another arming is there");
        promise!(deadline == self.deadline, "P2: another deadline is there");
        promise!(record.deadline == self.first_deadline, "its age is counted otherwise");
        promise!((state.attempt, state.lost) == (self.attempt, self.lost), "P6: it was counted otherwise");
        promise!(look.quarantined == (self.lost >= QUARANTINE_AT), "P6: it is in the wrong index");
        promise!(state.claimed == self.runs(), "P4: it is not clear whether it runs");
        match self.holder {
            Some(holder) if !holder.found_lost => {
                promise!(state.token == holder.token, "P4: another token holds it");
                promise!(look.score == Some(holder.until), "P1: its lease has no end");
            }
            // Due at once, or moved since.
            Some(_) => promise!(look.score.is_some(), "P1: it will never come out"),
            // What follows a pill waits behind those that are in quarantine already.
            None if look.quarantined && look.score > Some(self.deadline) => {
                promise!(look.score <= Some(look.stamp.ms()), "P1: it will not come out at once");
            }
            None => promise!(look.score == Some(self.deadline), "P1: it will not come out on time"),
        }
        Ok(())
    }
}
