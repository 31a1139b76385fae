//! A look at the key: the touch, what the stream says, the table, the script.

use super::Attached;
use super::decide::{Stream, Touch, Verdict, decide};
use super::rules::Rule;
use super::seen::Seen;
use super::world::{Anchor, Key, Look, Place, Watch, World};

impl Attached {
    /// Touches the key, on the connection on which the stream is heard: what
    /// was published before has been read before the answer.
    pub(super) fn touch(&self, world: &mut World, who: usize) {
        let watch = world.index.watch;
        let found = world.read_key();
        world.listeners[who].look = Some(Look { watch, found, at: Place::default(), expired: false });
        while self.rules.has(Rule::Fenced) && !world.unread(who).is_empty() {
            self.hear(world, who);
        }
        // What it heard on the way to the answer may have cost it its anchor.
        let place = world.listeners[who].place;
        if let Some(look) = &mut world.listeners[who].look {
            look.at = place;
        }
    }

    /// What the table says of a look, were it judged now.
    pub(super) fn verdict(&self, world: &World, who: usize) -> Option<Verdict> {
        let look = world.listeners[who].look?;
        let watch = look.watch?;
        let touch = match look.found {
            Key::Mortal { deadline, .. } if deadline == watch.deadline => Touch::SameDeadline,
            Key::Mortal { .. } => Touch::OtherDeadline,
            Key::Lasting { .. } => Touch::NoDeadline,
            Key::Absent if self.is_early(world, watch) => Touch::GoneEarly,
            Key::Absent => Touch::Gone,
        };
        Some(decide(touch, self.stream(world, who, watch)))
    }

    fn is_early(&self, world: &World, watch: Watch) -> bool {
        world.now < watch.deadline && self.rules.has(Rule::NotBeforeDeadline)
    }

    fn stream(&self, world: &World, who: usize, watch: Watch) -> Stream {
        let listener = &world.listeners[who];
        let Some(look) = listener.look else { return Stream::Broken };
        let Some(anchor) = listener.anchor else { return Stream::Broken };
        let from = Place { canary: anchor.number, count: 0 };
        if look.expired {
            Stream::Expired
        } else if listener.deleted.is_some_and(|place| place > watch.at) {
            Stream::Deleted
        } else if from > watch.at && self.anchored_at(anchor) > watch.deadline {
            Stream::Broken
        } else if listener.place.canary > look.at.canary || !self.rules.has(Rule::CanaryAfterTouch) {
            Stream::Nothing
        } else {
            Stream::NothingYet
        }
    }

    /// When the anchor was heard, or made, counted from one: before the first
    /// there is no time.
    fn anchored_at(&self, anchor: Anchor) -> u8 {
        if self.rules.has(Rule::HeardBeforeDeadline) { anchor.heard } else { anchor.made }
    }

    /// Does what the table says. A script does it, if what it looked at is
    /// still what is remembered.
    pub(super) fn judge(&self, world: &mut World, who: usize) {
        let verdict = self.verdict(world, who);
        let Some(look) = world.listeners[who].look else { return };
        if verdict == Some(Verdict::Unproven) {
            return self.see(Seen::Row(Verdict::Unproven));
        }
        let place = world.listeners[who].place;
        world.listeners[who].look = None;
        self.fire_unsure(world, who, look);
        match (look.watch, verdict) {
            (Some(watch), Some(verdict)) => {
                self.see(Seen::Row(verdict));
                if world.index.watch == look.watch || !self.rules.has(Rule::SameEnrolment) {
                    self.obey(world, who, look, (watch, place), verdict);
                }
            }
            _ => self.enrol(world, look),
        }
    }

    fn obey(
        &self,
        world: &mut World,
        who: usize,
        look: Look,
        (watch, place): (Watch, Place),
        verdict: Verdict,
    ) {
        match verdict {
            Verdict::Extended => self.enrol(world, look),
            Verdict::NotYet if self.rules.has(Rule::LookAgain) => {}
            Verdict::Unproven => {}
            Verdict::Persisted | Verdict::Deleted | Verdict::Lapsed => world.index.forget(place),
            Verdict::Vanished if !self.scope.vanished => world.index.forget(place),
            Verdict::Vanished | Verdict::Recovered | Verdict::NotYet => {
                world.index.forget(place);
                let policy = verdict == Verdict::Vanished;
                let in_time = world.now >= watch.deadline;
                world.judge.recover(world.key, watch.life, in_time, policy);
                let life = if world.judge.expired.has(watch.life) { watch.life } else { 0 };
                // Up to what this listener had heard when it touched the key.
                let upto = world.listeners[who].place.min(look.at);
                world.index.recover(self.rules, life, watch.at, upto);
            }
        }
    }

    fn enrol(&self, world: &mut World, look: Look) {
        if let Key::Mortal { life, deadline } = look.found
            && world.index.watch == look.watch
            && !world.index.enrol(self.rules, Watch { deadline, at: look.at, life })
        {
            self.see(Seen::StaleRefused);
        }
    }

    /// What was heard without an anchor is a lapse of which nobody can say
    /// whether another has noted it.
    fn fire_unsure(&self, world: &mut World, who: usize, look: Look) {
        let listener = &mut world.listeners[who];
        let unsure = std::mem::take(&mut listener.unsure);
        if unsure.is_empty() || !self.rules.has(Rule::UnsureFires) {
            return;
        }
        self.see(Seen::UnsureFired);
        for life in (1..5).filter(|life| unsure.has(*life)) {
            world.judge.fire(life);
            if self.rules.has(Rule::UnsureLeavesNoTrace) {
                world.index.push(self.rules, life);
            } else {
                world.index.recover(self.rules, life, Place::default(), look.at);
            }
        }
        if look.found == Key::Absent && look.watch == world.index.watch {
            world.index.forget(look.at);
        }
    }
}
