//! A look at the key: the touch, what the stream says, the table, the script.

use std::mem::take;

use super::Attached;
use super::decision::{KeyState, StreamEvidence, Verdict, decide};
use super::index::Trace;
use super::rules::Rule;
use super::seen::Seen;
use super::world::{Anchor, Key, Look, Moment, Name, Place, Watch, World};

impl Attached {
    /// Touches the key, on the connection on which the stream is heard: what
    /// was published before has been read before the answer. A look at a
    /// deadline has taken what is remembered before; a scan has taken nothing.
    pub(super) fn touch(&self, world: &mut World, who: usize, watch: Option<Watch>) {
        let node = self.touched_at(world, who, watch);
        let read = Moment { at: Place::of(node), stamp: world.next_stamp() };
        let found = world.read_key(node);
        let look = Look { watch, found, read, expired: false, fresh: true, late: false, old: None };
        world.listeners[who].look = Some(look);
        let moved_from = watch.map(|watch| watch.read.at.node).filter(|from| *from != node);
        if let Some(from) = moved_from.filter(|_| self.rules.has(Rule::BothFenced)) {
            self.fence(world, who, from);
        }
        self.fence(world, who, node);
        // What it heard on the way to the answer may have cost it its anchor.
        let streams = world.listeners[who].streams;
        if let Some(look) = &mut world.listeners[who].look {
            look.read.at = streams[node].place;
            look.old =
                moved_from.filter(|from| streams[*from].anchor.is_some()).map(|from| streams[from].place);
        }
        if self.is_idle(world, who) {
            world.listeners[who].look = None;
        }
    }

    fn fence(&self, world: &mut World, who: usize, node: usize) {
        while self.rules.has(Rule::Fenced) && !world.unread(who, node).is_empty() {
            self.hear(world, who, node);
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
        let settled =
            listener.dropped.is_empty() && listener.streams.iter().all(|stream| stream.unsure.is_empty());
        settled && (not_yet || (look.watch.is_none() && !lives))
    }

    /// What the table says of a look, were it judged now.
    pub(super) fn verdict(&self, world: &World, who: usize) -> Option<Verdict> {
        let look = world.listeners[who].look?;
        let watch = look.watch?;
        let node = look.read.at.node;
        let here = watch.read.at.node == node;
        let touch = match look.found {
            Key::Mortal { deadline, .. } if here && deadline == watch.deadline => KeyState::SameDeadline,
            Key::Mortal { .. } => KeyState::OtherDeadline,
            Key::Lasting { .. } => KeyState::NoDeadline,
            Key::Absent if self.is_early(world, node, watch) => KeyState::GoneEarly,
            Key::Absent => KeyState::Gone,
        };
        let says =
            if here { self.stream(world, who, look, watch) } else { self.streams(world, who, look, watch) };
        Some(decide(touch, says))
    }

    fn is_early(&self, world: &World, node: usize, watch: Watch) -> bool {
        world.clock(node) < watch.deadline && self.rules.has(Rule::NotBeforeDeadline)
    }

    fn stream(&self, world: &World, who: usize, look: Look, watch: Watch) -> StreamEvidence {
        let stream = &world.listeners[who].streams[look.read.at.node];
        let Some(anchor) = stream.anchor else { return StreamEvidence::Broken };
        let from = Place { canary: anchor.number, ..Place::of(look.read.at.node) };
        let enrolled = watch.read.at;
        let later = stream.place.canary > look.read.at.canary;
        // Deletions do not count: one at the enrolment's place may be that of the life before it.
        let deleted = |place| {
            place > enrolled || (place == enrolled && (later || !self.rules.has(Rule::DeletionProven)))
        };
        if look.expired {
            StreamEvidence::Expired
        } else if stream.deleted.is_some_and(deleted) {
            StreamEvidence::Deleted
        } else if from > enrolled && self.anchored_at(anchor) > watch.deadline {
            StreamEvidence::Broken
        } else if later || !self.rules.has(Rule::CanaryAfterTouch) {
            StreamEvidence::Nothing
        } else {
            StreamEvidence::NothingYet
        }
    }

    /// The same of a key that another server had when its deadline was read: nothing was missed on either since
    /// that deadline. Of deletions nothing can be told, as the one that a move makes is one, too.
    fn streams(&self, world: &World, who: usize, look: Look, watch: Watch) -> StreamEvidence {
        let streams = &world.listeners[who].streams;
        let (here, there) = (&streams[look.read.at.node], &streams[watch.read.at.node]);
        let Some((anchor, old)) = here.anchor.zip(there.anchor) else {
            return if watch.answered { StreamEvidence::Expired } else { StreamEvidence::Broken };
        };
        let from = Place { canary: old.number, ..Place::of(watch.read.at.node) };
        let late = |anchor| self.anchored_at(anchor) > watch.deadline;
        if look.expired || watch.answered {
            StreamEvidence::Expired
        } else if late(anchor) || from > watch.read.at && late(old) {
            StreamEvidence::Broken
        } else if here.place.canary > look.read.at.canary {
            StreamEvidence::Nothing
        } else {
            StreamEvidence::NothingYet
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
        let Some(mut look) = world.listeners[who].look else { return };
        if verdict == Some(Verdict::Unproven) {
            return self.see(Seen::Row(Verdict::Unproven));
        }
        let place = world.listeners[who].streams[look.read.at.node].place;
        world.listeners[who].look = None;
        if look.late {
            return self.enrol(world, look);
        }
        let known = world.index.known();
        self.fire_unsure_at(world, who, look);
        self.fire_elsewhere(world, who, look);
        self.settle_dropped(world, who, look);
        look.fresh &= known == world.index.known();
        match (look.watch, verdict) {
            (Some(watch), Some(verdict)) => {
                self.see(Seen::Row(verdict));
                if self.still_stands(world, watch) || verdict == Verdict::Extended {
                    self.obey(world, look, (watch, place), verdict);
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

    fn obey(&self, world: &mut World, look: Look, (watch, place): (Watch, Place), verdict: Verdict) {
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
                let in_time = world.clock(look.read.at.node) >= watch.deadline;
                world.judge_recovery(watch.life, in_time, policy);
                let life = if world.judge.expired.has(watch.life) { watch.life } else { 0 };
                // Up to what this listener had heard when it touched the key.
                let upto = place.min(look.read.at);
                world.index.recover(self.rules, life, Trace { after: watch.read.at, old: look.old, upto });
            }
        }
    }

    fn enrol(&self, world: &mut World, look: Look) {
        let Key::Mortal { life, deadline } = look.found else { return };
        let watch = Watch { deadline, read: look.read, life, answered: false };
        if look.watch.is_some_and(|watch| watch.read.at.node != look.read.at.node) {
            self.see(Seen::TouchedAgain);
        }
        if !world.index.enrol(self.rules, watch, look.fresh) {
            self.see(Seen::StaleRefused);
        }
    }

    /// What was heard without an anchor is a lapse of which nobody can say
    /// whether another has noted it: but those who heard it so agree on its name.
    pub(super) fn fire_unsure(&self, world: &mut World, who: usize, node: usize) {
        let stream = &mut world.listeners[who].streams[node];
        let (unsure, names) = (take(&mut stream.unsure), take(&mut stream.names));
        if unsure.is_empty() || !self.rules.has(Rule::UnsureFires) {
            return;
        }
        self.see(Seen::UnsureFired);
        let upto = stream.place;
        let mut lives: Vec<u8> = (1..5).filter(|life| unsure.has(*life)).collect();
        lives.sort_by_key(|life| names[usize::from(*life)]);
        for life in lives {
            match names[usize::from(life)] {
                Name::At(id, since) => {
                    self.note(world, since, id, life);
                    continue;
                }
                Name::Back(canary, back)
                    if self.rules.has(Rule::Agreed) && !world.index.agree(self.rules, node, canary, back) =>
                {
                    self.see(Seen::AgreedBefore);
                    continue;
                }
                Name::Back(..) => {}
                Name::None | Name::Torn => world.judge.torn[usize::from(life)] += 1,
            }
            world.judge.fire(life);
            world.index.answer(self.rules, node);
            if self.rules.has(Rule::UnsureLeavesNoTrace) {
                world.index.push(self.rules, life);
            } else {
                let trace = Trace { after: Place::of(node), old: None, upto };
                world.index.recover(self.rules, life, trace);
            }
        }
    }

    /// The same, by one who has touched the key since: if it is gone, so is what
    /// was read of it before.
    fn fire_unsure_at(&self, world: &mut World, who: usize, look: Look) {
        let node = look.read.at.node;
        if world.listeners[who].streams[node].unsure.is_empty() {
            return;
        }
        let before = |watch: Watch| match watch.read.at.node == node {
            true => watch.read.is_before(self.rules, look.read),
            false => look.fresh,
        };
        let gone = look.found == Key::Absent;
        self.fire_unsure(world, who, node);
        let taken = match world.index.watch {
            Some(watch) if self.rules.has(Rule::FoundGone) => gone && before(watch),
            Some(watch) => watch.deadline <= world.clock(node),
            None => gone,
        };
        if taken && self.rules.has(Rule::UnsureFires) {
            world.index.forget(self.rules, look.read);
        }
    }
}
