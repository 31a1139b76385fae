//! The specification: watches every call, and knows nothing of how it is done.
//!
//! It is told what the server kept before and after, and what it answered. Some
//! promises can be read off a world; what cannot is remembered here as a breach.

use super::scope::Scope;
use super::server::{Claim, Taken};
use super::world::{DEATHS, Deed, End, Few, Index, KEYS, Phase, Timer, Told};

/// A broken promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Breach {
    Early,
    Stale,
    LiveLease,
    Repeat,
    Next,
    Crowd,
    Company,
    Endless,
    Bystander,
    Letters,
    Heir,
}

/// What the specification remembers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Judge {
    /// Armings that were taken on, and not yet handled, buried or withdrawn.
    pub(super) owed: [Few; KEYS],
    /// Armings that were cancelled, replaced or followed by another.
    pub(super) withdrawn: [Few; KEYS],
    /// Armings of an attempt's own key that said so, and are kept behind it.
    pub(super) own: [Few; KEYS],
    /// Leases lost since somebody who lived has settled.
    losses: [u8; KEYS],
    /// A bit for each.
    broken: u16,
}

/// A producer's deed and its answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Heard {
    pub(super) deed: Deed,
    pub(super) told: Told,
    pub(super) repeat: bool,
    /// What the execution before this one said.
    pub(super) before: Option<Told>,
}

/// An end and its answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ended {
    pub(super) token: u8,
    pub(super) end: End,
    pub(super) done: bool,
    pub(super) repeat: bool,
    pub(super) first: Option<bool>,
    pub(super) buried: Option<u8>,
}

impl Judge {
    pub(super) fn kept(&self, promise: Breach) -> bool {
        self.broken >> promise as u8 & 1 == 0
    }

    fn demand(&mut self, promise: Breach, kept: bool) {
        if !kept {
            self.broken |= 1 << promise as u8;
        }
    }

    fn withdraw(&mut self, key: usize, arming: Option<u8>) {
        if let Some(arming) = arming {
            self.owed[key].remove(arming);
            self.withdrawn[key].add(arming);
        }
    }

    /// A handler has returned well.
    pub(super) fn handled(&mut self, key: usize, arming: u8) {
        self.owed[key].remove(arming);
    }

    pub(super) fn start(&mut self, in_time: bool) {
        self.demand(Breach::Early, in_time);
    }

    pub(super) fn deed(&mut self, key: usize, before: &Timer, after: &Timer, heard: Heard) {
        if let Some(told) = self.what_a_repeat_says(key, before, heard) {
            return self.demand(Breach::Repeat, told == heard.told && !after.differs(before));
        }
        match (heard.told, heard.deed) {
            (Told::Armed, Deed::Arm { id, .. }) => {
                self.owed[key].add(id);
                self.losses[key] = 0;
            }
            (Told::Replaced, Deed::Arm { id, .. }) => {
                self.withdraw(key, before.rec);
                self.withdraw(key, before.next);
                self.owed[key].add(id);
            }
            (Told::AfterRunning, Deed::Arm { id, by, .. }) => {
                self.withdraw(key, before.next);
                self.owed[key].add(id);
                if by == before.rec {
                    self.own[key].add(id);
                }
            }
            // Only what was withdrawn is superseded.
            (Told::Superseded, _) => self.demand(Breach::Repeat, false),
            (told, Deed::Replay { place, .. }) => self.replay(key, before, after, (told, place)),
            (Told::Cancelled | Told::InFlight, _) => {
                self.withdraw(key, before.rec);
                self.withdraw(key, before.next);
                self.losses[key] = 0;
            }
            _ => {}
        }
    }

    /// A letter that was there, of a key without a timer, is one again; else nothing changes.
    fn replay(&mut self, key: usize, before: &Timer, after: &Timer, (told, place): (Told, u8)) {
        let arming = before.grave.died[usize::from(place)];
        let comes_back = before.rec.is_none() && before.grave.kept.has(place);
        let came_back = after.rec == Some(arming) && !after.grave.kept.has(place);
        let same = !after.differs(before);
        let as_said = if told == Told::Replayed { comes_back && came_back } else { !comes_back && same };
        self.demand(Breach::Letters, as_said);
        if told == Told::Replayed {
            self.withdrawn[key].remove(arming);
            self.owed[key].add(arming);
            self.losses[key] = 0;
        }
    }

    /// Returns the answer of a repeat that must not act, as docs/internals/wire.md defines it. An
    /// arming that has ended well may be made again, with its own id.
    fn what_a_repeat_says(&self, key: usize, before: &Timer, heard: Heard) -> Option<Told> {
        match heard.deed {
            _ if !heard.repeat => None,
            Deed::Arm { id, .. } if self.withdrawn[key].has(id) => Some(Told::Superseded),
            // What was kept at first may have become the timer since.
            Deed::Arm { id, .. } if before.rec == Some(id) => {
                Some(heard.before.filter(|told| *told == Told::Replaced).unwrap_or(Told::Armed))
            }
            Deed::Arm { id, .. } if before.next == Some(id) => Some(Told::AfterRunning),
            Deed::Arm { .. } => None,
            Deed::Cancel { .. } => heard.before.filter(|told| *told != Told::NotArmed),
            Deed::Replay { .. } => heard.before.filter(|told| *told == Told::Replayed),
        }
    }

    pub(super) fn claim(
        &mut self,
        scope: &Scope,
        (before, after): (&[Timer; KEYS], &[Timer; KEYS]),
        (call, first): (Claim, Option<Taken>),
        taken: Taken,
        buried: [Option<u8>; KEYS],
    ) {
        let first = first.filter(|first| call.repeat && !first.is_empty());
        for (key, number) in (0..KEYS).zip(0..) {
            let (before, after) = (&before[key], &after[key]);
            if let Some(first) = first {
                let holds = first.has(number) && before.is_claimed() && before.is_held_by(call.token);
                let kept = call.only.is_none_or(|only| only == key);
                let right =
                    if holds && !kept { after.is_handed_back(before) } else { !after.differs(before) };
                self.demand(Breach::Repeat, taken.has(number) == (holds && kept) && right);
                continue;
            }
            let lost = before.is_claimed() && after.differs(before);
            self.losses[key] = (self.losses[key] + u8::from(lost)).min(scope.poison + 1);
            self.demand(Breach::LiveLease, !lost || before.score == Phase::Past);
            if taken.has(number) {
                let among_others = call.index == Index::Due;
                self.demand(Breach::Crowd, !among_others || self.losses[key] < scope.quarantine_at);
                let last = self.losses[key] + 1 >= scope.poison;
                let company = taken.without(number) || call.beside.iter().any(Option::is_some);
                self.demand(Breach::Company, among_others || !last || !company);
                self.demand(Breach::Endless, !lost || self.losses[key] < scope.poison);
            }
            if let Some(arming) = buried[key] {
                self.demand(Breach::Bystander, scope.pill.is_none_or(|pill| pill == key));
                let heir = before.next.filter(|own| self.own[key].has(*own));
                self.letters(before, after, 1 + u8::from(heir.is_some()));
                if let Some(own) = heir {
                    self.demand(Breach::Heir, after.rec.is_none());
                    self.withdraw(key, Some(own));
                }
                self.end_in_grave(key, arming, after);
            }
        }
    }

    /// A death leaves a letter, beside those of earlier ones.
    fn letters(&mut self, before: &Timer, after: &Timer, died: u8) {
        let (before, after) = (&before.grave, &after.grave);
        let are_new = after.count == before.count + died && before.kept.is_within(after.kept);
        self.demand(Breach::Letters, are_new || usize::from(before.count + died) > DEATHS);
    }

    fn end_in_grave(&mut self, key: usize, arming: u8, after: &Timer) {
        self.owed[key].remove(arming);
        if after.rec.is_some() {
            self.withdrawn[key].add(arming);
        } else {
            self.losses[key] = 0;
        }
    }

    pub(super) fn settle(&mut self, key: usize, before: &Timer, after: &Timer, ended: Ended) {
        let changed = after.differs(before);
        let holds = before.is_held_by(ended.token);
        self.demand(Breach::Stale, holds || !changed);
        let twice = ended.repeat && ended.first.is_some() && (ended.done || changed);
        self.demand(Breach::Repeat, !twice);
        if ended.done && holds && !twice {
            self.settled(key, before, after, ended);
        }
    }

    fn settled(&mut self, key: usize, before: &Timer, after: &Timer, ended: Ended) {
        let followed = (after.rec, after.next) == (before.next, None);
        let waits = (after.rec, after.next) == (before.rec, before.next);
        let kept = before.next.is_some();
        match ended.end {
            End::Snooze | End::Release => self.demand(Breach::Next, waits),
            _ if kept => self.demand(Breach::Next, followed),
            _ => {}
        }
        match (ended.end, before.rec) {
            (End::Retry, rec) if kept => self.withdraw(key, rec),
            (End::Ack | End::Dead, Some(rec)) if kept => self.withdrawn[key].add(rec),
            (End::Again(_), Some(rec)) => self.withdrawn[key].add(rec),
            _ => {}
        }
        if let (End::Again(id), false) = (ended.end, kept) {
            self.owed[key].add(id);
        }
        if let Some(arming) = ended.buried {
            self.letters(before, after, 1);
            self.owed[key].remove(arming);
        }
        if ended.end != End::Release {
            self.losses[key] = 0;
        }
    }
}

impl Judge {
    /// The same with the names of the keys exchanged.
    pub(super) fn swap_keys(&mut self) {
        self.owed.reverse();
        self.withdrawn.reverse();
        self.own.reverse();
        self.losses.reverse();
    }
}
