//! A moment: the key, the stream of its server, the listeners, the index.
//!
//! A life of the key begins with a write and can expire once, so its number is
//! also that of its expiry: the truth that no listener is shown.

pub(super) use crate::model::Few;

use super::index::Index;
use super::judge::Judge;
use super::scope::Purse;

/// The most listeners.
pub const LISTENERS: usize = 3;
/// What may be unread at once.
const UNREAD: usize = 14;

/// What the server keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Key {
    /// Nothing.
    #[default]
    Absent,
    /// A value with a deadline, which may be past.
    Mortal {
        /// Which life.
        life: u8,
        /// When it ends.
        deadline: u8,
    },
    /// A value without one.
    Lasting {
        /// Which life.
        life: u8,
    },
}

/// What the server publishes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Event {
    /// Nothing yet.
    #[default]
    None,
    /// `expired`, of this life.
    Expired(u8),
    /// `del` or `rename_from`, where the operator granted it.
    Deleted,
    /// A canary's end.
    Canary {
        /// Its number.
        number: u8,
        /// When it was made.
        made: u8,
    },
}

/// A place in the stream: after so many expiries of the key since a canary. That
/// of an `expired` is its identity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place {
    /// The last canary.
    pub canary: u8,
    /// Expiries of the key since.
    pub count: u8,
}

/// When the key was touched: its place in the stream, and a stamp of its
/// server, which is another for each touch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Moment {
    /// Where in the stream.
    pub at: Place,
    /// Which of the touches that still matter, counted from one.
    pub stamp: u8,
}

/// The memory of a key's deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Watch {
    /// The deadline that was read.
    pub deadline: u8,
    /// When it was read.
    pub read: Moment,
    /// Whose it is: for the judge alone.
    pub life: u8,
}

/// A touch, and what it was about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Look {
    /// What was remembered of the key; a scan does not ask.
    pub watch: Option<Watch>,
    /// What the touch found.
    pub found: Key,
    /// When.
    pub read: Moment,
    /// Whether `expired` was heard since the enrolment.
    pub expired: bool,
}

/// From where on everything was heard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Anchor {
    /// The first canary heard.
    pub number: u8,
    /// When it was made, counted from one.
    pub made: u8,
    /// When it was heard, counted from one.
    pub heard: u8,
}

/// A listener.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Listener {
    /// How much of what is unread by anybody it has read.
    pub read: u8,
    /// Nothing: it does not judge.
    pub anchor: Option<Anchor>,
    /// Where it was when last anchored.
    pub place: Place,
    /// Whether it never had an anchor, and ignores what expires.
    pub deaf: bool,
    /// Whether it subscribes to deletions.
    pub flags: bool,
    /// Where it last heard of a deletion, if nothing was lost since.
    pub deleted: Option<Place>,
    /// What it heard without an anchor since it last lost something.
    pub unsure: Few,
    /// The canary that it heard next.
    pub named: Option<u8>,
    /// What it is looking at.
    pub look: Option<Look>,
    /// Whether a replica has something to say.
    pub replica: bool,
    /// What it will never hear of: for the judge alone.
    pub missed: Few,
}

/// All of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct World {
    /// The server's clock.
    pub now: u8,
    /// The key.
    pub key: Key,
    /// The last life.
    pub life: u8,
    /// Whether nothing is published, and whether a canary was among that.
    pub mute: Option<bool>,
    /// Whether a replica repeats each deletion.
    pub replicated: bool,
    /// The last canary made, and whether it is still there, and since when.
    pub canary: (u8, Option<u8>),
    /// What somebody has not read yet.
    pub stream: [Event; UNREAD],
    /// How much that is.
    pub published: u8,
    /// How many listeners there are.
    pub crowd: usize,
    /// The listeners.
    pub listeners: [Listener; LISTENERS],
    /// What keylapse keeps.
    pub index: Index,
    /// What may still happen.
    pub purse: Purse,
    /// What the specification makes of all this.
    pub judge: Judge,
}

impl World {
    pub(super) fn unread(&self, listener: usize) -> &[Event] {
        &self.stream[usize::from(self.listeners[listener].read)..usize::from(self.published)]
    }

    /// Those that there are.
    pub(super) fn present(&self) -> &[Listener] {
        &self.listeners[..self.crowd]
    }

    /// A stamp for a touch, later than all others.
    pub(super) fn next_stamp(&mut self) -> u8 {
        self.stamps().into_iter().map(|stamp| *stamp).max().unwrap_or_default() + 1
    }

    /// All stamps.
    fn stamps(&mut self) -> Vec<&mut u8> {
        let mut stamps = vec![&mut self.index.latest.stamp];
        stamps.extend(self.index.watch.as_mut().map(|watch| &mut watch.read.stamp));
        for look in self.listeners.iter_mut().filter_map(|listener| listener.look.as_mut()) {
            stamps.push(&mut look.read.stamp);
            stamps.extend(look.watch.as_mut().map(|watch| &mut watch.read.stamp));
        }
        stamps
    }

    /// Of the stamps, only their order matters, and of those only that may yet
    /// be compared.
    fn renumber(&mut self) {
        let (standing, latest) = (self.index.watch, self.index.latest);
        let mut late = false;
        for look in self.listeners.iter_mut().filter_map(|listener| listener.look.as_mut()) {
            late |= look.read.at == latest.at && look.read < latest;
            if let Some(overtaken) = look.watch.as_mut().filter(|watch| Some(**watch) != standing) {
                overtaken.read.stamp = 0;
            }
        }
        if !late {
            self.index.latest.stamp = 0;
        }
        let mut order: Vec<u8> = self.stamps().into_iter().map(|stamp| *stamp).collect();
        order.push(0);
        order.sort_unstable();
        order.dedup();
        for stamp in self.stamps() {
            let rank = order.partition_point(|other| *other < *stamp);
            *stamp = u8::try_from(rank).unwrap_or(u8::MAX);
        }
    }

    /// The world that stands for all that are like it: what everybody has read
    /// is forgotten, and listeners have no names.
    pub(super) fn canonical(mut self) -> Self {
        self.renumber();
        let read = self.present().iter().map(|listener| listener.read).min().unwrap_or_default();
        self.stream.copy_within(usize::from(read).., 0);
        self.published -= read;
        self.stream[usize::from(self.published)..].fill(Event::None);
        let crowd = self.crowd;
        self.listeners[..crowd].iter_mut().for_each(|listener| listener.read -= read);
        let mut order = [0, 1, 2];
        let runs = self.index.running;
        order[..crowd].sort_by_key(|who| (self.listeners[*who], runs == Some(*who)));
        self.listeners = order.map(|who| self.listeners[who]);
        self.index.running = order.iter().position(|who| runs == Some(*who));
        self
    }
}
