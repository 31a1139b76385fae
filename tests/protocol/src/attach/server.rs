//! The servers, and the writers that know nothing of us: redis-facts.md in a
//! few lines.

use super::step::Deed;
use super::world::{Event, Key, World};

impl World {
    /// What a read of the key finds; one whose deadline has passed is expired by it.
    pub(super) fn read_key(&mut self, node: usize) -> Key {
        if self.is_due(node) {
            self.expire(node);
        }
        self.servers[node].key
    }

    /// Whether the key's deadline has passed there, deleted or not.
    pub(super) fn is_due(&self, node: usize) -> bool {
        let now = self.clock(node);
        matches!(self.servers[node].key, Key::Mortal { deadline, .. } if deadline <= now)
    }

    /// The server deletes what has expired, and says so. A server that was
    /// replaced does so, too, and nothing has happened.
    fn expire(&mut self, node: usize) {
        let Key::Mortal { life, .. } = self.servers[node].key else { return };
        self.servers[node].key = Key::Absent;
        if !self.servers[node].stale {
            self.judge.expired.add(life);
            if self.index.watch.is_some_and(|watch| watch.life == life) {
                self.judge.enrolled.add(life);
            }
        }
        self.publish(node, Event::Expired(life));
        self.replicate();
        let replicated = self.replicated;
        let crowd = self.crowd;
        self.listeners[..crowd].iter_mut().for_each(|listener| listener.streams[node].replica = replicated);
    }

    fn publish(&mut self, node: usize, event: Event) {
        if let Some(swallowed) = &mut self.mute {
            *swallowed |= matches!(event, Event::Canary { .. });
            if let Event::Expired(life) = event {
                self.listeners[..self.crowd].iter_mut().for_each(|listener| listener.missed.add(life));
            }
            return;
        }
        let server = &mut self.servers[node];
        server.stream[usize::from(server.published)] = event;
        server.published += 1;
    }

    /// What a writer does. Over a key that has expired, `expired` comes first.
    pub(super) fn act(&mut self, deed: Deed, flags: bool) {
        let node = self.owner;
        let (found, now) = (self.read_key(node), self.clock(node));
        let key = match (deed, found) {
            (Deed::Write | Deed::Overwrite, _) => {
                self.judge.write();
                self.life += 1;
                let (life, deadline) = (self.life, now + 1);
                if deed == Deed::Write { Key::Mortal { life, deadline } } else { Key::Lasting { life } }
            }
            (Deed::Extend, Key::Mortal { life, deadline }) => Key::Mortal { life, deadline: deadline + 1 },
            (Deed::Extend, Key::Lasting { life }) => Key::Mortal { life, deadline: now + 1 },
            (Deed::Shorten, Key::Mortal { life, .. }) => Key::Mortal { life, deadline: now + 1 },
            (Deed::Persist, Key::Mortal { life, .. }) => Key::Lasting { life },
            (Deed::Delete, Key::Mortal { .. } | Key::Lasting { .. }) => {
                if flags {
                    self.publish(node, Event::Deleted);
                }
                Key::Absent
            }
            (_, found) => found,
        };
        self.servers[node].key = key;
        self.replicate();
    }

    /// A replica has what its primary has, at once.
    fn replicate(&mut self) {
        let key = self.key();
        self.servers.iter_mut().filter(|server| server.replica).for_each(|server| server.key = key);
    }

    /// A canary is made, if its predecessor is gone.
    pub(super) fn make_canary(&mut self, node: usize) {
        self.servers[node].canary = (self.servers[node].canary.0 + 1, Some(self.clock(node)));
    }

    /// The canary expires. That of a server which was replaced is not
    /// announced: by then it has learned so, unless it is `loud`.
    pub(super) fn end_canary(&mut self, node: usize, loud: bool) {
        if let (number, Some(made)) = self.servers[node].canary {
            self.servers[node].canary.1 = None;
            if !self.servers[node].stale || loud {
                // Counted from one: before the first there is no time.
                self.publish(node, Event::Canary { number, made: made + 1 });
            }
        }
    }

    /// The slot of the key moves to the other server, with the key, unless that has expired.
    pub(super) fn move_slot(&mut self) {
        let (from, to) = (self.owner, 1 - self.owner);
        self.servers[to].key = self.read_key(from);
        self.servers[from].key = Key::Absent;
        self.owner = to;
    }

    /// The first server is stopped, its replica takes its place, and it is
    /// continued. By then everybody has missed a canary of it.
    pub(super) fn promote(&mut self) {
        self.servers[0].stale = true;
        self.servers[1].replica = false;
        self.owner = 1;
        self.publish(0, Event::Pause);
    }

    /// Whether it is known as a primary to the others.
    pub(super) fn is_primary(&self, node: usize) -> bool {
        node < self.nodes && !self.servers[node].stale && !self.servers[node].replica
    }

    /// Time goes by.
    pub(super) fn tick(&mut self) {
        self.now += 1;
    }
}
