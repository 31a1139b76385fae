//! What a listener makes of what it hears.

use super::Attached;
use super::index::Noted;
use super::rules::Rule;
use super::seen::Seen;
use super::world::{Anchor, Event, Key, Listener, Look, NODES, Name, Place, Stream, World};

impl Attached {
    /// The next event of a server's stream.
    pub(super) fn hear(&self, world: &mut World, who: usize, node: usize) {
        let Some(event) = world.unread(who, node).first().copied() else { return };
        world.listeners[who].streams[node].read += 1;
        match event {
            Event::Canary { number, made } => {
                let anchor = Anchor { number, made, heard: world.clock(node) + 1 };
                self.hear_canary(world, who, node, anchor);
            }
            Event::Expired(life) => self.hear_expired(world, who, node, life),
            Event::Deleted => {
                let listener = &mut world.listeners[who];
                let stream = &mut listener.streams[node];
                if stream.anchor.is_some() && listener.flags {
                    stream.deleted = Some(stream.place);
                }
            }
            Event::Pause if self.rules.has(Rule::MissedIsGap) => {
                self.see(Seen::Missed);
                self.lose_anchor(world, who, node);
            }
            Event::Pause | Event::None => {}
        }
    }

    fn hear_canary(&self, world: &mut World, who: usize, node: usize, anchor: Anchor) {
        let number = anchor.number;
        let stream = &world.listeners[who].streams[node];
        let jump = number != stream.place.canary + 1 && self.rules.has(Rule::JumpIsGap);
        if jump && stream.anchor.is_some() {
            self.see(Seen::JumpNoticed);
            self.lose_anchor(world, who, node);
        }
        let stream = &mut world.listeners[who].streams[node];
        stream.name(number, self.rules.has(Rule::CountedBack));
        if stream.anchor.is_none() {
            stream.anchor = Some(anchor);
            stream.deaf = false;
        }
        stream.place = Place { node, canary: number, count: 0 };
    }

    fn hear_expired(&self, world: &mut World, who: usize, node: usize, life: u8) {
        let genuine = world.is_genuine(who, node);
        let listener = &mut world.listeners[who];
        let stream = &mut listener.streams[node];
        if stream.deaf {
            self.see(Seen::Deaf);
            if self.scope.nodes() == 1 {
                listener.missed.add(life);
            }
            return;
        }
        if stream.anchor.is_none() && self.rules.has(Rule::Anchored) {
            stream.unsure.add(life);
            if genuine {
                world.judge.unsure.add(life);
            }
            return self.release(world, who, node);
        }
        stream.place.count += 1;
        let (id, since) = (stream.place, stream.anchor.map_or(0, |anchor| anchor.number));
        if id.count > 1 {
            self.see(Seen::TwiceInAnInterval);
        }
        if let Some(look) = &mut listener.look {
            look.expired |= look.watch.is_some_and(|watch| watch.read.at.is_before(self.rules, id));
        }
        let id = if self.rules.has(Rule::Counted) { id } else { Place { count: 1, ..id } };
        if self.is_trusted(world, who, node) {
            return self.note(world, since, id, life);
        }
        let stream = &mut world.listeners[who].streams[node];
        stream.unsure.add(life);
        stream.names[usize::from(life)] = Name::At(id, since);
    }

    pub(super) fn note(&self, world: &mut World, since: u8, id: Place, life: u8) {
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
    pub(super) fn gap(&self, world: &mut World, who: usize, node: usize) {
        world.miss(who, node, usize::MAX);
        self.lose_anchor(world, who, node);
    }

    /// One hint finds no place in its queue.
    pub(super) fn drop_hint(&self, world: &mut World, who: usize, node: usize) {
        world.miss(who, node, 1);
        if self.rules.has(Rule::DropIsGap) {
            self.lose_anchor(world, who, node);
        }
    }

    /// It dies; another takes its place, knows nothing, and is deaf until its
    /// first anchor.
    pub(super) fn crash(&self, world: &mut World, who: usize) {
        let mut missed = world.listeners[who].missed;
        for node in 0..world.nodes {
            world.miss(who, node, usize::MAX);
            let unsure = world.listeners[who].streams[node].unsure;
            let heard = world.listeners[who].missed;
            (1..5).filter(|life| unsure.has(*life) || heard.has(*life)).for_each(|life| missed.add(life));
        }
        let dead = world.listeners[who];
        let Listener { flags, owner, .. } = dead;
        let mut streams = [Stream::default(); NODES];
        for (stream, Stream { read, replica, place, .. }) in
            streams.iter_mut().zip(dead.streams).take(world.nodes)
        {
            let place = Place::of(place.node);
            *stream = Stream { read, replica, place, deaf: true, ..Stream::default() };
        }
        world.listeners[who] = Listener { streams, missed, flags, owner, ..Listener::default() };
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
        let stream = &mut world.listeners[who].streams[0];
        stream.replica = false;
        if self.rules.has(Rule::ReplicaIgnored) {
            self.see(Seen::ReplicaIgnored);
        } else {
            stream.deleted = Some(Place { count: 7, ..stream.place });
        }
    }

    /// What it heard without one before has its name by now, or will never have one.
    fn lose_anchor(&self, world: &mut World, who: usize, node: usize) {
        let stream = &world.listeners[who].streams[node];
        let named = stream.names.iter().any(|name| *name != Name::None);
        if self.scope.nodes() == 1 && (named || self.rules.has(Rule::Torn)) {
            self.fire_unsure(world, who, node);
        }
        let listener = &mut world.listeners[who];
        let stream = &mut listener.streams[node];
        if self.rules.has(Rule::Torn) {
            stream.tear();
        }
        (stream.anchor, stream.confirmed) = (None, false);
        if self.rules.has(Rule::LookAnchored) {
            listener.look = listener.look.and_then(|look| look.after_gap(node, self.scope.late));
        }
        let stream = &mut listener.streams[node];
        if self.rules.has(Rule::DeletionsForgottenAtGap) {
            stream.deleted = None;
        }
    }
}

impl Look {
    /// What remains of a look when the stream of a server breaks. The listener may still write a deadline that it has
    /// found; it drops all else.
    fn after_gap(self, node: usize, may_be_late: bool) -> Option<Self> {
        if self.read.at.node != node {
            return Some(self);
        }
        let Key::Mortal { deadline, .. } = self.found else { return None };
        let same = self.watch.is_some_and(|watch| watch.read.at.node == node && watch.deadline == deadline);
        (may_be_late && !same).then_some(Self { watch: None, late: true, ..self })
    }
}

impl Stream {
    /// What was heard without an anchor is called by the first canary after it.
    fn name(&mut self, canary: u8, counted_back: bool) {
        let is_new = |life: &u8| self.unsure.has(*life) && self.names[usize::from(*life)] == Name::None;
        let mut lives: Vec<u8> = (1..5).filter(is_new).collect();
        if counted_back {
            lives.reverse();
        }
        for (life, back) in lives.into_iter().zip(1..) {
            self.names[usize::from(life)] = Name::Back(canary, back);
        }
    }

    /// More is lost: what has no name will never have one.
    fn tear(&mut self) {
        for life in (1..5).filter(|life| self.unsure.has(*life)) {
            let name = &mut self.names[usize::from(life)];
            *name = if *name == Name::None { Name::Torn } else { *name };
        }
    }
}

impl World {
    /// Whether what this listener hears now has happened: a server that was replaced announces what has not.
    fn is_genuine(&self, who: usize, node: usize) -> bool {
        !self.servers[node].stale || self.unread(who, node).contains(&Event::Pause)
    }

    /// So many of a listener's unread events are lost.
    pub(super) fn miss(&mut self, who: usize, node: usize, count: usize) {
        let mut missed = self.listeners[who].missed;
        let unread = self.unread(who, node);
        // What a server announces that was replaced has not happened.
        let pause = unread.iter().position(|event| *event == Event::Pause);
        let happened = if self.servers[node].stale { pause.unwrap_or_default() } else { unread.len() };
        for event in &unread[..happened.min(count)] {
            if let Event::Expired(life) = event {
                missed.add(*life);
            }
        }
        let count = self.unread(who, node).len().min(count);
        let listener = &mut self.listeners[who];
        listener.missed = missed;
        listener.streams[node].read += u8::try_from(count).unwrap_or(u8::MAX);
    }
}
