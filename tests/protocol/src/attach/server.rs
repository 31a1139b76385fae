//! The server, and the writers that know nothing of us: redis-facts.md in a
//! few lines.

use super::step::Deed;
use super::world::{Event, Key, World};

impl World {
    /// What a read of the key finds; one whose deadline has passed is expired by it.
    pub(super) fn read_key(&mut self) -> Key {
        if self.is_due() {
            self.expire();
        }
        self.key
    }

    /// Whether the key's deadline has passed, deleted or not.
    pub(super) fn is_due(&self) -> bool {
        matches!(self.key, Key::Mortal { deadline, .. } if deadline <= self.now)
    }

    /// The server deletes what has expired, and says so.
    fn expire(&mut self) {
        let Key::Mortal { life, .. } = self.key else { return };
        self.key = Key::Absent;
        self.judge.expired.add(life);
        if self.index.watch.is_some_and(|watch| watch.life == life) {
            self.judge.enrolled.add(life);
        }
        self.publish(Event::Expired(life));
        let crowd = self.crowd;
        self.listeners[..crowd].iter_mut().for_each(|listener| listener.replica = self.replicated);
    }

    fn publish(&mut self, event: Event) {
        if let Some(swallowed) = &mut self.mute {
            *swallowed |= matches!(event, Event::Canary { .. });
            if let Event::Expired(life) = event {
                self.listeners[..self.crowd].iter_mut().for_each(|listener| listener.missed.add(life));
            }
            return;
        }
        self.stream[usize::from(self.published)] = event;
        self.published += 1;
    }

    /// What a writer does. Over a key that has expired, `expired` comes first.
    pub(super) fn act(&mut self, deed: Deed, flags: bool) {
        let found = self.read_key();
        let now = self.now;
        match (deed, found) {
            (Deed::Write | Deed::Overwrite, _) => {
                self.judge.write();
                self.life += 1;
                let life = self.life;
                let mortal = deed == Deed::Write;
                self.key =
                    if mortal { Key::Mortal { life, deadline: now + 1 } } else { Key::Lasting { life } };
            }
            (Deed::Extend, Key::Mortal { life, deadline }) => {
                self.key = Key::Mortal { life, deadline: deadline + 1 };
            }
            (Deed::Extend, Key::Lasting { life }) => self.key = Key::Mortal { life, deadline: now + 1 },
            (Deed::Shorten, Key::Mortal { life, .. }) => self.key = Key::Mortal { life, deadline: now + 1 },
            (Deed::Persist, Key::Mortal { life, .. }) => self.key = Key::Lasting { life },
            (Deed::Delete, Key::Mortal { .. } | Key::Lasting { .. }) => {
                self.key = Key::Absent;
                if flags {
                    self.publish(Event::Deleted);
                }
            }
            _ => {}
        }
    }

    /// A canary is made, if its predecessor is gone.
    pub(super) fn make_canary(&mut self) {
        self.canary = (self.canary.0 + 1, Some(self.now));
    }

    /// The canary expires.
    pub(super) fn end_canary(&mut self) {
        if let (number, Some(made)) = self.canary {
            self.canary.1 = None;
            // Counted from one: before the first there is no time.
            self.publish(Event::Canary { number, made: made + 1 });
        }
    }

    /// Active expiry has got round to the key; the replicas delete it, too.
    pub(super) fn reap(&mut self) {
        self.read_key();
    }

    /// Time goes by.
    pub(super) fn tick(&mut self) {
        self.now += 1;
    }
}
