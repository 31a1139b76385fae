//! What a listener makes of what it hears.

use super::Attached;
use super::index::Noted;
use super::rules::Rule;
use super::seen::Seen;
use super::world::{Anchor, Event, Few, Listener, Place, World};

impl Attached {
    /// The next event of the stream.
    pub(super) fn hear(&self, world: &mut World, who: usize) {
        let Some(event) = world.unread(who).first().copied() else { return };
        world.listeners[who].read += 1;
        match event {
            Event::Canary { number, made } => {
                let anchor = Anchor { number, made, heard: world.now + 1 };
                self.hear_canary(world, who, anchor);
            }
            Event::Expired(life) => self.hear_expired(world, who, life),
            Event::Deleted => {
                let listener = &mut world.listeners[who];
                if listener.anchor.is_some() && listener.flags {
                    listener.deleted = Some(listener.place);
                }
            }
            Event::None => {}
        }
    }

    fn hear_canary(&self, world: &mut World, who: usize, anchor: Anchor) {
        let number = anchor.number;
        let jump = number != world.listeners[who].place.canary + 1 && self.rules.has(Rule::JumpIsGap);
        if jump && world.listeners[who].anchor.is_some() {
            self.see(Seen::JumpNoticed);
            self.lose_anchor(world, who);
        }
        let listener = &mut world.listeners[who];
        if listener.anchor.is_none() {
            listener.named = (!listener.unsure.is_empty()).then_some(number);
            listener.anchor = Some(anchor);
            listener.deaf = false;
        }
        listener.place = Place { canary: number, count: 0 };
    }

    fn hear_expired(&self, world: &mut World, who: usize, life: u8) {
        let listener = &mut world.listeners[who];
        if listener.deaf {
            self.see(Seen::Deaf);
            return listener.missed.add(life);
        }
        if listener.anchor.is_none() && self.rules.has(Rule::Anchored) {
            listener.unsure.add(life);
            world.judge.unsure.add(life);
            return;
        }
        listener.place.count += 1;
        let id = listener.place;
        if id.count > 1 {
            self.see(Seen::TwiceInAnInterval);
        }
        if let Some(look) = &mut listener.look {
            look.expired |= look.watch.is_some_and(|watch| watch.read.at < id);
        }
        let id = if self.rules.has(Rule::Counted) { id } else { Place { count: 1, ..id } };
        let since = listener.anchor.map_or(0, |anchor| anchor.number);
        self.note(world, since, id, life);
    }

    fn note(&self, world: &mut World, since: u8, id: Place, life: u8) {
        let ran = world.index.running.is_some();
        match world.index.note(self.rules, since, id, life, self.scope.ranges) {
            Noted::Lapse => {
                world.judge.fire(life);
                if ran {
                    self.see(Seen::KeptBeside);
                }
            }
            Noted::Known => self.see(Seen::LateListener),
            Noted::Recovered => {
                world.judge.take(life);
                self.see(Seen::RecoveredBefore);
            }
        }
    }

    /// Its connection breaks; a new one is subscribed before anything else happens.
    pub(super) fn gap(&self, world: &mut World, who: usize) {
        world.miss(who, usize::MAX);
        self.lose_anchor(world, who);
    }

    /// One hint finds no place in its queue.
    pub(super) fn drop_hint(&self, world: &mut World, who: usize) {
        world.miss(who, 1);
        if self.rules.has(Rule::DropIsGap) {
            self.lose_anchor(world, who);
        }
    }

    /// It dies; another takes its place, knows nothing, and is deaf until its
    /// first anchor.
    pub(super) fn crash(&self, world: &mut World, who: usize) {
        world.miss(who, usize::MAX);
        let dead = world.listeners[who];
        let mut missed = dead.missed;
        (1..5).filter(|life| dead.unsure.has(*life)).for_each(|life| missed.add(life));
        let Listener { read, replica, flags, .. } = dead;
        world.listeners[who] = Listener { read, missed, replica, flags, deaf: true, ..Listener::default() };
        if world.index.running == Some(who) {
            world.index.running = None;
            self.see(Seen::RunAgain);
        }
        if dead.look.is_some_and(|look| look.watch.is_some()) && !self.rules.has(Rule::LookIsNoLease) {
            // As one that loses leases would be, it is buried.
            world.index.watch = None;
        }
    }

    /// A replica says that it has deleted the key.
    pub(super) fn hear_replica(&self, world: &mut World, who: usize) {
        let listener = &mut world.listeners[who];
        listener.replica = false;
        if self.rules.has(Rule::ReplicaIgnored) {
            self.see(Seen::ReplicaIgnored);
        } else {
            listener.deleted = Some(Place { count: 7, ..listener.place });
        }
    }

    /// What it heard without one before has its name by now, or will never have one.
    fn lose_anchor(&self, world: &mut World, who: usize) {
        let listener = &mut world.listeners[who];
        if listener.named.is_some() || self.rules.has(Rule::Torn) {
            self.fire_unsure(world, who);
        }
        let listener = &mut world.listeners[who];
        listener.anchor = None;
        listener.look = None;
        if self.rules.has(Rule::DeletionsForgottenAtGap) {
            listener.deleted = None;
        }
    }
}

impl World {
    /// So many of a listener's unread events are lost.
    pub(super) fn miss(&mut self, who: usize, count: usize) {
        let lost: Few =
            self.unread(who).iter().take(count).fold(self.listeners[who].missed, |mut all, event| {
                if let Event::Expired(life) = event {
                    all.add(*life);
                }
                all
            });
        let count = self.unread(who).len().min(count);
        let listener = &mut self.listeners[who];
        listener.missed = lost;
        listener.read += u8::try_from(count).unwrap_or(u8::MAX);
    }
}
