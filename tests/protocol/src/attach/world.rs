//! A moment: the key, the streams of its servers, the listeners, the index.
//!
//! A life of the key begins with a write and can expire once, so its number is
//! also that of its expiry: the truth that no listener is shown.

pub(super) use crate::model::Few;

use super::index::Index;
use super::judge::Judge;
use super::rules::{Rule, Rules};
use super::scope::Purse;

/// The most listeners.
pub const LISTENERS: usize = 3;
/// The most servers.
pub const NODES: usize = 2;
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
    /// Nothing for so long that the server may have been replaced meanwhile.
    Pause,
}

/// A place in a server's stream: after so many expiries of the key since a
/// canary. That of an `expired` is its identity. The order of places of two
/// servers means nothing: see `Place::is_before`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place {
    /// Whose stream.
    pub node: usize,
    /// The last canary.
    pub canary: u8,
    /// Expiries of the key since.
    pub count: u8,
}

impl Place {
    /// Before the first canary of a server.
    pub(super) fn of(node: usize) -> Self {
        Self { node, ..Self::default() }
    }

    /// Whether the one can be told to come before the other.
    pub(super) fn is_before(self, rules: Rules, other: Self) -> bool {
        let apart = self.node != other.node && rules.has(Rule::PlacesApart);
        !apart && (self.canary, self.count) < (other.canary, other.count)
    }

    /// Whether they are of different servers, and so cannot be compared.
    pub(super) fn is_apart(self, rules: Rules, other: Self) -> bool {
        self.node != other.node && rules.has(Rule::PlacesApart)
    }
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

impl Moment {
    /// Whether the one can be told to come before the other.
    pub(super) fn is_before(self, rules: Rules, other: Self) -> bool {
        let (at, than) = (self.at, other.at);
        let same = !at.is_apart(rules, than) && (at.canary, at.count) == (than.canary, than.count);
        at.is_before(rules, than) || same && self.stamp < other.stamp
    }
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
    /// Whether an expiry was noted since that another server has announced.
    pub answered: bool,
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
    /// Whether nothing was written of the key since it was sent.
    pub fresh: bool,
    /// Whether the anchor was lost since: then only the deadline that was found is still written.
    pub late: bool,
    /// Where the listener was then in the stream of the server on which what is remembered was read.
    pub old: Option<Place>,
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

/// How an expiry that was heard without an anchor is called.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Name {
    /// No canary was heard since.
    #[default]
    None,
    /// By the canary after it, and how many expiries of the key come from there back to it.
    Back(u8, u8),
    /// Never: more was lost before the next canary.
    Torn,
    /// By its place, and the anchor of who has heard it: it only waits for another server's word.
    At(Place, u8),
}

/// What a listener has heard of one server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Stream {
    /// How much of what is unread by anybody it has read.
    pub read: u8,
    /// Nothing: it does not judge.
    pub anchor: Option<Anchor>,
    /// Where it was when last anchored.
    pub place: Place,
    /// Whether it never had an anchor, and ignores what expires.
    pub deaf: bool,
    /// Where it last heard of a deletion, if nothing was lost since.
    pub deleted: Option<Place>,
    /// What it heard without an anchor, or without another server's word, and has not noted.
    pub unsure: Few,
    /// What each of these is called.
    pub names: [Name; 5],
    /// Whether another server has named this one a primary since something was lost.
    pub confirmed: bool,
    /// Whether a replica has something to say.
    pub replica: bool,
}

/// A listener.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Listener {
    /// What it has heard of each server.
    pub streams: [Stream; NODES],
    /// Whether it subscribes to deletions.
    pub flags: bool,
    /// What it is looking at.
    pub look: Option<Look>,
    /// The key's owner, as another server has named it.
    pub owner: usize,
    /// What it heard of a server that turned out not to own the key: the owner is to be looked at.
    pub dropped: Few,
    /// What it will never hear of: for the judge alone.
    pub missed: Few,
}

/// A server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Server {
    /// Its copy of the key.
    pub key: Key,
    /// The last canary made, and whether it is still there, and since when.
    pub canary: (u8, Option<u8>),
    /// What somebody has not read yet.
    pub stream: [Event; UNREAD],
    /// How much that is.
    pub published: u8,
    /// Whether it was replaced, and does not know it.
    pub stale: bool,
    /// Whether it is a replica, and follows the owner.
    pub replica: bool,
}

/// All of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct World {
    /// The clock of the first server.
    pub now: u8,
    /// How far that of the second is ahead.
    pub ahead: u8,
    /// The last life.
    pub life: u8,
    /// Whether nothing is published, and whether a canary was among that.
    pub mute: Option<bool>,
    /// Whether a replica repeats each deletion.
    pub replicated: bool,
    /// How many servers there are.
    pub nodes: usize,
    /// The servers.
    pub servers: [Server; NODES],
    /// Which of them owns the key.
    pub owner: usize,
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
    pub(super) fn unread(&self, who: usize, node: usize) -> &[Event] {
        let server = &self.servers[node];
        &server.stream[usize::from(self.listeners[who].streams[node].read)..usize::from(server.published)]
    }

    /// The key, as its owner has it.
    pub(super) fn key(&self) -> Key {
        self.servers[self.owner].key
    }

    /// What a server's clock shows.
    pub(super) fn clock(&self, node: usize) -> u8 {
        if node == 0 { self.now } else { self.now + self.ahead }
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
        let mut stamps: Vec<&mut u8> = self.index.latest.iter_mut().map(|latest| &mut latest.stamp).collect();
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
        let mut late = [false; NODES];
        for look in self.listeners.iter_mut().filter_map(|listener| listener.look.as_mut()) {
            let node = look.read.at.node;
            late[node] |= look.read.stamp < latest[node].stamp;
            if let Some(overtaken) = look.watch.as_mut().filter(|watch| Some(**watch) != standing) {
                overtaken.read.stamp = 0;
            }
        }
        for (latest, late) in self.index.latest.iter_mut().zip(late) {
            latest.stamp = if late { latest.stamp } else { 0 };
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
        if self.nodes == 1 {
            self.index.seen = Default::default();
        }
        let crowd = self.crowd;
        for node in 0..self.nodes {
            let read =
                self.present().iter().map(|listener| listener.streams[node].read).min().unwrap_or_default();
            let server = &mut self.servers[node];
            server.stream.copy_within(usize::from(read).., 0);
            server.published -= read;
            server.stream[usize::from(server.published)..].fill(Event::None);
            self.listeners[..crowd].iter_mut().for_each(|listener| listener.streams[node].read -= read);
        }
        let mut order = [0, 1, 2];
        let runs = self.index.running;
        order[..crowd].sort_by_key(|who| (self.listeners[*who], runs == Some(*who)));
        self.listeners = order.map(|who| self.listeners[who]);
        self.index.running = order.iter().position(|who| runs == Some(*who));
        self
    }
}
