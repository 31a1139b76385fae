//! A moment: what the server keeps, what everybody else believes.
//!
//! Everything is small and copied: the checker makes millions of these. Ids are
//! small numbers; that they are never used twice while anybody remembers them
//! is what randomness gives the real ones.

use super::judge::Judge;

/// The most workers.
pub const WORKERS: usize = 3;
/// The most keys.
pub const KEYS: usize = 2;

/// A few small numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Few(u8);

impl Few {
    /// Adds one, below eight.
    pub fn add(&mut self, number: u8) {
        self.0 |= 1 << number;
    }

    pub(crate) fn remove(&mut self, number: u8) {
        self.0 &= !(1 << number);
    }

    /// Whether this is one of them.
    pub fn has(self, number: u8) -> bool {
        self.0 >> number & 1 == 1
    }

    /// How many.
    pub fn count(self) -> u64 {
        self.0.count_ones().into()
    }

    /// Whether there are others.
    pub(crate) fn without(self, number: u8) -> bool {
        self.0 & !(1 << number) != 0
    }

    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(crate) fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    pub(crate) fn is_within(self, other: Self) -> bool {
        self.0 & !other.0 == 0
    }
}

/// Which sorted set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Index {
    /// The ordinary one.
    Due,
    /// That of timers that run alone.
    Quarantine,
}

/// How far a score is from now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Phase {
    /// Beyond the lookahead.
    #[default]
    Far,
    /// Within the lookahead.
    Near,
    /// Reached.
    Past,
}

/// What claims and failures have added to a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Run {
    /// Whether somebody holds it.
    pub claimed: bool,
    /// Whose it is; 0 where nobody's.
    pub token: u8,
    /// The attempt, from 1.
    pub attempt: u8,
    /// Leases lost since a live holder settled.
    pub lost: u8,
}

impl Run {
    /// Nobody has touched it, or nobody has left a trace.
    pub const UNTOUCHED: Self = Self { claimed: false, token: 0, attempt: 1, lost: 0 };
}

/// How many deaths of one key have letters.
pub const DEATHS: usize = 8;

/// The dead letters of one key. A letter is named by its arming and its death: by its place here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Grave {
    /// The armings that have died, one after the other.
    pub died: [u8; DEATHS],
    /// How many.
    pub count: u8,
    /// Which of the letters are there.
    pub kept: Few,
}

impl Grave {
    /// An arming has died; what comes after too many deaths leaves no trace.
    pub(crate) fn bury(&mut self, arming: u8) {
        if let Some(place) = self.died.get_mut(usize::from(self.count)) {
            *place = arming;
            self.kept.add(self.count);
            self.count += 1;
        }
    }
}

/// What the server keeps of one key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Timer {
    /// The arming of its record.
    pub rec: Option<u8>,
    /// The state beside the record.
    pub run: Option<Run>,
    /// The arming that is kept for later.
    pub next: Option<u8>,
    /// Whether an attempt of this timer has armed that.
    pub own: bool,
    /// In which index it is.
    pub place: Option<Index>,
    /// How far its score is.
    pub score: Phase,
    /// Whether the deadline of a timer that was claimed has been reached.
    pub passed: bool,
    /// Armings that were withdrawn or followed, and left a tombstone.
    pub tomb: Few,
    /// Armings that have replaced a waiting timer.
    pub replaced: Few,
    /// Cancels that ended a waiting timer.
    pub cancelled: Few,
    /// Cancels that ended a running attempt.
    pub fenced: Few,
    /// Replays that brought something back.
    pub revived: Few,
    /// Its dead letters.
    pub grave: Grave,
}

impl Timer {
    pub(crate) fn state(&self) -> Run {
        self.run.unwrap_or(Run::UNTOUCHED)
    }

    pub(crate) fn is_held_by(&self, token: u8) -> bool {
        self.run.is_some_and(|run| run.token == token)
    }

    pub(crate) fn is_claimed(&self) -> bool {
        self.run.is_some_and(|run| run.claimed)
    }

    /// Whether anything of it differs but its score and tombstones.
    pub(crate) fn differs(&self, other: &Self) -> bool {
        let parts = |timer: &Self| (timer.rec, timer.run, timer.next, timer.place, timer.grave.kept);
        parts(self) != parts(other)
    }

    /// Set if nobody holds it any more, and all else is as it was.
    pub(crate) fn is_handed_back(&self, before: &Self) -> bool {
        let run = Run { claimed: false, token: 0, ..before.state() };
        self.place.is_some() && !self.differs(&Self { run: Some(run), place: self.place, ..*before })
    }
}

/// What a lane's last claim took.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Slot {
    pub(crate) token: u8,
    pub(crate) keys: Few,
}

/// How an attempt ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum End {
    /// Well.
    Ack,
    /// With another attempt.
    Retry,
    /// With the same attempt later.
    Snooze,
    /// With a new arming.
    Again(u8),
    /// For good.
    Dead,
    /// It is handed back.
    Release,
}

/// Where an attempt is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Stage {
    /// Claimed ahead of its deadline.
    Held,
    /// In its handler.
    Running,
    /// Ended, but nobody has answered that: what the server did, if it did.
    Settling(End, Option<bool>),
}

/// An attempt, as its worker knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Attempt {
    /// The claim's token.
    pub token: u8,
    /// What it is an attempt of.
    pub arming: u8,
    /// Which attempt.
    pub attempt: u8,
    /// From quarantine: how many leases it had lost.
    pub quarantined: Option<u8>,
    /// Where it is.
    pub stage: Stage,
}

/// An unanswered claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Asking {
    /// From where.
    pub index: Index,
    /// The new token.
    pub token: u8,
    /// Of two in quarantine the one whose score is lower.
    pub foremost: usize,
    /// What the first execution took, if there was one.
    pub(crate) first: Option<Few>,
}

/// A listener.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Worker {
    /// Its attempt of each key.
    pub attempts: [Option<Attempt>; KEYS],
    /// Its unanswered claim.
    pub asking: Option<Asking>,
}

/// What a producer does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Deed {
    /// Arms, perhaps only if there is nothing.
    Arm {
        /// The arming's id.
        id: u8,
        /// Only if there is nothing.
        absent: bool,
        /// The arming whose attempt arms.
        by: Option<u8>,
    },
    /// Cancels.
    Cancel {
        /// The cancel's id.
        id: u8,
    },
    /// Replays a dead letter.
    Replay {
        /// The replay's id.
        id: u8,
        /// Which death left it.
        place: u8,
    },
}

/// What became of a producer's deed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs, reason = "the names are those of the real replies")]
pub enum Told {
    Armed,
    Replaced,
    AfterRunning,
    Exists,
    Superseded,
    NotArmed,
    Cancelled,
    InFlight,
    Replayed,
    Occupied,
    Gone,
}

/// A deed that nobody has answered, and what it did, if it was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Pending {
    /// What it was.
    pub deed: Deed,
    /// What its latest execution said.
    pub(crate) told: Option<Told>,
}

/// What may still happen, and how often.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Purse {
    pub arms: u8,
    pub cancels: u8,
    /// Requests and replies that are lost.
    pub losses: u8,
    pub retries: u8,
    pub snoozes: u8,
    pub releases: u8,
    pub deaths: u8,
    pub agains: u8,
}

/// All of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct World {
    /// What the server keeps of each key.
    pub timers: [Timer; KEYS],
    /// What each worker is up to.
    pub workers: [Worker; WORKERS],
    /// Each worker's slot on the server.
    pub lanes: [Option<Slot>; WORKERS],
    /// Each key's unanswered producer.
    pub pending: [Option<Pending>; KEYS],
    /// The next arming of each key.
    pub fresh: [u8; KEYS],
    /// What may still happen.
    pub purse: Purse,
    /// And how many replays.
    pub replays: u8,
    /// What the specification makes of all this.
    pub judge: Judge,
}

impl World {
    /// The smallest token that nobody remembers.
    pub fn unused_token(&self) -> u8 {
        let kept = self.timers.iter().filter_map(|timer| timer.run).map(|run| run.token);
        let held = self.workers.iter().flat_map(|worker| worker.attempts).flatten().map(|one| one.token);
        let asked = self.workers.iter().filter_map(|worker| worker.asking).map(|asking| asking.token);
        let named = self.lanes.iter().flatten().map(|slot| slot.token);
        let used = kept.chain(held).chain(asked).chain(named).fold(1_u32, |used, token| used | 1 << token);
        u8::try_from(used.trailing_ones()).unwrap_or(u8::MAX)
    }
}
