//! A look at the key: the touch, what the stream says, the table, the script.

use super::Attached;
use super::decision::{KeyState, StreamSays, Verdict, decide};
use super::rules::Rule;
use super::seen::Seen;
use super::world::{Anchor, Key, Look, Moment, Place, Watch, World};

impl Attached {
    /// Touches the key, on the connection on which the stream is heard: what
    /// was published before has been read before the answer. A look at a
    /// deadline has taken what is remembered before; a scan has taken nothing.
    pub(super) fn touch(&self, world: &mut World, who: usize, watch: Option<Watch>) {
        let read = Moment { at: Place::default(), stamp: world.next_stamp() };
        let found = world.read_key();
        world.listeners[who].look = Some(Look { watch, found, read, expired: false });
        while self.rules.has(Rule::Fenced) && !world.unread(who).is_empty() {
            self.hear(world, who);
        }
        // What it heard on the way to the answer may have cost it its anchor.
        let place = world.listeners[who].place;
        if let Some(look) = &mut world.listeners[who].look {
            look.read.at = place;
        }
        if self.is_idle(world, who) {
            world.listeners[who].look = None;
        }
    }

    /// Whether a look has nothing to do, whatever is still heard: it is over at
    /// once, and the states are half as many.
    fn is_idle(&self, world: &World, who: usize) -> bool {
        let listener = &world.listeners[who];
        let Some(look) = listener.look else { return false };
        let verdict = self.verdict(world, who);
        let lives = matches!(look.found, Key::Mortal { .. });
        let not_yet = lives && verdict == Some(Verdict::NotYet) && self.rules.has(Rule::LookAgain);
        if not_yet {
            self.see(Seen::Row(Verdict::NotYet));
        }
        listener.unsure.is_empty() && (not_yet || (look.watch.is_none() && !lives))
    }

    /// What the table says of a look, were it judged now.
    pub(super) fn verdict(&self, world: &World, who: usize) -> Option<Verdict> {
        let look = world.listeners[who].look?;
        let watch = look.watch?;
        let touch = match look.found {
            Key::Mortal { deadline, .. } if deadline == watch.deadline => KeyState::SameDeadline,
            Key::Mortal { .. } => KeyState::OtherDeadline,
            Key::Lasting { .. } => KeyState::NoDeadline,
            Key::Absent if self.is_early(world, watch) => KeyState::GoneEarly,
            Key::Absent => KeyState::Gone,
        };
        Some(decide(touch, self.stream(world, who, watch)))
    }

    fn is_early(&self, world: &World, watch: Watch) -> bool {
        world.now < watch.deadline && self.rules.has(Rule::NotBeforeDeadline)
    }

    fn stream(&self, world: &World, who: usize, watch: Watch) -> StreamSays {
        let listener = &world.listeners[who];
        let Some(look) = listener.look else { return StreamSays::Broken };
        let Some(anchor) = listener.anchor else { return StreamSays::Broken };
        let from = Place { canary: anchor.number, count: 0 };
        let enrolled = watch.read.at;
        let later = listener.place.canary > look.read.at.canary;
        // Deletions do not count: one at the enrolment's place may be that of the life before it.
        let deleted = |place| {
            place > enrolled || (place == enrolled && (later || !self.rules.has(Rule::DeletionProven)))
        };
        if look.expired {
            StreamSays::Expired
        } else if listener.deleted.is_some_and(deleted) {
            StreamSays::Deleted
        } else if from > enrolled && self.anchored_at(anchor) > watch.deadline {
            StreamSays::Broken
        } else if later || !self.rules.has(Rule::CanaryAfterTouch) {
            StreamSays::Nothing
        } else {
            StreamSays::NothingYet
        }
    }

    /// When the anchor was heard, or made, counted from one: before the first
    /// there is no time.
    fn anchored_at(&self, anchor: Anchor) -> u8 {
        if self.rules.has(Rule::HeardBeforeDeadline) { anchor.heard } else { anchor.made }
    }

    /// Does what the table says. A script does it, if what it looked at is
    /// still what is remembered; whether a deadline is newer, its enrolment says.
    pub(super) fn judge(&self, world: &mut World, who: usize) {
        let verdict = self.verdict(world, who);
        let Some(look) = world.listeners[who].look else { return };
        if verdict == Some(Verdict::Unproven) {
            return self.see(Seen::Row(Verdict::Unproven));
        }
        let place = world.listeners[who].place;
        world.listeners[who].look = None;
        self.fire_unsure_at(world, who, look);
        match (look.watch, verdict) {
            (Some(watch), Some(verdict)) => {
                self.see(Seen::Row(verdict));
                if self.still_stands(world, watch) || verdict == Verdict::Extended {
                    self.obey(world, who, look, (watch, place), verdict);
                }
            }
            _ => self.enrol(world, look),
        }
    }

    /// Whether what was looked at is still what is remembered.
    fn still_stands(&self, world: &World, watch: Watch) -> bool {
        let Some(standing) = world.index.watch else { return !self.rules.has(Rule::SameEnrolment) };
        let like = (standing.deadline, standing.read.at) == (watch.deadline, watch.read.at);
        let same = standing == watch || (like && !self.rules.has(Rule::SameTouch));
        same || !self.rules.has(Rule::SameEnrolment)
    }

    fn obey(
        &self,
        world: &mut World,
        who: usize,
        look: Look,
        (watch, place): (Watch, Place),
        verdict: Verdict,
    ) {
        let read = Moment { at: place, stamp: look.read.stamp };
        match verdict {
            Verdict::Extended => self.enrol(world, look),
            Verdict::NotYet if self.rules.has(Rule::LookAgain) => {}
            Verdict::Unproven => {}
            Verdict::Persisted | Verdict::Deleted | Verdict::Lapsed => {
                world.index.forget(self.rules, read);
            }
            Verdict::Vanished if !self.scope.vanished => world.index.forget(self.rules, read),
            Verdict::Vanished | Verdict::Recovered | Verdict::NotYet => {
                world.index.forget(self.rules, read);
                let policy = verdict == Verdict::Vanished;
                let in_time = world.now >= watch.deadline;
                world.judge.recover(world.key, watch.life, in_time, policy);
                let life = if world.judge.expired.has(watch.life) { watch.life } else { 0 };
                // Up to what this listener had heard when it touched the key.
                let upto = world.listeners[who].place.min(look.read.at);
                world.index.recover(self.rules, life, watch.read.at, upto);
            }
        }
    }

    fn enrol(&self, world: &mut World, look: Look) {
        if let Key::Mortal { life, deadline } = look.found
            && !world.index.enrol(self.rules, Watch { deadline, read: look.read, life })
        {
            self.see(Seen::StaleRefused);
        }
    }

    /// What was heard without an anchor is a lapse of which nobody can say
    /// whether another has noted it: but those who heard it so agree on its name.
    pub(super) fn fire_unsure(&self, world: &mut World, who: usize) {
        let listener = &mut world.listeners[who];
        let (unsure, named) = (std::mem::take(&mut listener.unsure), listener.named.take());
        if unsure.is_empty() || !self.rules.has(Rule::UnsureFires) {
            return;
        }
        self.see(Seen::UnsureFired);
        let mut lives: Vec<u8> = (1..5).filter(|life| unsure.has(*life)).collect();
        if self.rules.has(Rule::CountedBack) {
            lives.reverse();
        }
        for (life, back) in lives.into_iter().zip(1..) {
            match named {
                Some(canary) if self.rules.has(Rule::Agreed) && !world.index.agree(canary, back) => {
                    self.see(Seen::AgreedBefore);
                    continue;
                }
                Some(_) => {}
                None => world.judge.torn[usize::from(life)] += 1,
            }
            world.judge.fire(life);
            if self.rules.has(Rule::UnsureLeavesNoTrace) {
                world.index.push(self.rules, life);
            } else {
                world.index.recover(self.rules, life, Place::default(), world.listeners[who].place);
            }
        }
    }

    /// The same, by one who has touched the key since: if it is gone, so is what
    /// was read of it before.
    fn fire_unsure_at(&self, world: &mut World, who: usize, look: Look) {
        if world.listeners[who].unsure.is_empty() {
            return;
        }
        self.fire_unsure(world, who);
        let taken = match world.index.watch {
            Some(watch) if self.rules.has(Rule::FoundGone) => {
                look.found == Key::Absent && watch.read < look.read
            }
            Some(watch) => watch.deadline <= world.now,
            None => look.found == Key::Absent,
        };
        if taken && self.rules.has(Rule::UnsureFires) {
            world.index.forget(self.rules, look.read);
        }
    }
}
