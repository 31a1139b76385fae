//! Several servers: who owns the key, and which of them is believed.

use super::Attached;
use super::index::Trace;
use super::rules::Rule;
use super::scope::Second;
use super::seen::Seen;
use super::world::{Anchor, Key, Look, NODES, Name, Place, Stream, Watch, World};

impl Attached {
    /// What a listener has heard at first. A replica it hears, too, but nothing that numbers its stream.
    pub(super) fn begin(&self) -> [Stream; NODES] {
        let anchor = Some(Anchor::default());
        let anchored = Stream { anchor, confirmed: self.scope.nodes() > 1, ..Stream::default() };
        let place = Place::of(1);
        let second = match self.scope.second {
            Second::None => Stream::default(),
            Second::Primary => Stream { place, ..anchored },
            Second::Replica => {
                Stream { place, deaf: !self.rules.has(Rule::PromotionIsGap), ..Stream::default() }
            }
        };
        [anchored, second]
    }

    /// Where a touch is sent.
    pub(super) fn touched_at(&self, world: &World, who: usize, watch: Option<Watch>) -> usize {
        let moved = watch.filter(|_| !self.rules.has(Rule::TouchedAtOwner));
        moved.map_or(world.listeners[who].owner, |watch| watch.read.at.node)
    }

    /// Whether it is answered: by who does not own the slot any more only if it does not know so.
    pub(super) fn answers(&self, world: &World, node: usize) -> bool {
        node == world.owner || world.servers[node].stale || !self.rules.has(Rule::TouchedAtOwner)
    }

    /// Whether what a server announces is noted at once. After a gap, that it is a primary has to be said by
    /// another since.
    pub(super) fn is_trusted(&self, world: &World, who: usize, node: usize) -> bool {
        let stream = &world.listeners[who].streams[node];
        self.scope.nodes() == 1 || stream.confirmed || !self.rules.has(Rule::HeldForOther)
    }

    /// Another server tells who is a primary, and owns the key; one that is late tells how it was before.
    pub(super) fn learn(&self, world: &mut World, who: usize, late: bool) {
        world.listeners[who].owner = if late { 0 } else { world.owner };
        for node in 0..world.nodes {
            let primary = if late { node == 0 } else { world.is_primary(node) };
            let stream = &mut world.listeners[who].streams[node];
            // Whoever was not lost since is what it was.
            stream.confirmed = primary || stream.confirmed && stream.anchor.is_some();
            if primary {
                self.release(world, who, node);
            } else if world.servers[node].stale && !stream.confirmed && self.rules.has(Rule::HeldForOther) {
                self.drop_unsure(world, who, node);
            }
        }
    }

    /// What has its place is noted once its server is trusted. What was heard without an anchor waits for a look;
    /// without the rule, for nothing but that.
    pub(super) fn release(&self, world: &mut World, who: usize, node: usize) {
        let stream = &world.listeners[who].streams[node];
        let placed = stream.names.iter().any(|name| matches!(name, Name::At(..)));
        let early = !self.rules.has(Rule::HeldForCanary);
        if self.scope.nodes() > 1 && self.is_trusted(world, who, node) && (placed || early) {
            self.fire_unsure(world, who, node);
        }
    }

    /// Whether it waits for a look that another server has announced something without an anchor.
    pub(super) fn holds_elsewhere(&self, world: &World, who: usize, node: usize) -> bool {
        let releases = |other: usize| {
            let stream = &world.listeners[who].streams[other];
            other != node
                && stream.anchor.is_some()
                && !stream.unsure.is_empty()
                && self.is_trusted(world, who, other)
        };
        (0..world.nodes).any(releases)
    }

    /// What a server has announced that does not own the key any more: a look at its owner does not end what it
    /// has read of it.
    pub(super) fn fire_elsewhere(&self, world: &mut World, who: usize, look: Look) {
        if self.holds_elsewhere(world, who, look.read.at.node) {
            self.fire_unsure(world, who, 1 - look.read.at.node);
        }
    }

    fn drop_unsure(&self, world: &mut World, who: usize, node: usize) {
        let listener = &mut world.listeners[who];
        let stream = &mut listener.streams[node];
        stream.names = Stream::default().names;
        let unsure = std::mem::take(&mut stream.unsure);
        for life in (1..5).filter(|life| unsure.has(*life)) {
            self.see(Seen::Dropped);
            if self.rules.has(Rule::DroppedLooked) {
                listener.dropped.add(life);
            }
        }
    }

    /// What was dropped may have been said by the owner of then, which is not the owner any more. If the key is
    /// gone, and nothing is known of it from the present owner, it fires.
    pub(super) fn settle_dropped(&self, world: &mut World, who: usize, look: Look) {
        let node = look.read.at.node;
        let dropped = std::mem::take(&mut world.listeners[who].dropped);
        for life in (1..5).filter(|life| dropped.has(*life)) {
            let known = world.index.watch.is_some() || world.index.has_fired(self.rules, node);
            if look.found != Key::Absent {
                // It was written anew, or never expired: nobody can tell.
                world.listeners[who].missed.add(life);
            } else if known {
                self.see(Seen::DroppedKnown);
            } else {
                world.judge_recovery(life, true, false);
                let life = if world.judge.expired.has(life) { life } else { 0 };
                let trace = Trace { after: Place::of(1 - node), old: None, upto: look.read.at };
                world.index.recover(self.rules, life, trace);
            }
        }
    }
}
