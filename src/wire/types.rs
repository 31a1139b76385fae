//! What is asked of a store, and what it answers.

use std::fmt;

use bytes::Bytes;

use crate::events::event::Touched;
use crate::wire::record::Reason;
use crate::escape::Escaped;
use crate::id::{ArmingId, CancelId, SlotId, Token};
use crate::time::{ServerTime, WireWhen};

/// An answer and the server's time when it was made.
#[derive(Clone, Debug)]
pub struct Stamped<T> {
    /// When the call was executed.
    pub stamp: ServerTime,
    /// What it answered.
    pub value: T,
}

/// An arm call.
#[derive(Clone, Copy, Debug)]
pub struct Arm<'a> {
    /// What to arm; no key twice, at most [`MAX_BATCH`](super::MAX_BATCH).
    pub timers: &'a [NewTimer],
    /// Whether to leave existing timers alone.
    pub only_if_absent: bool,
    /// Whether this repeats an unanswered call with the same arming ids.
    pub repeat: bool,
}

/// A timer to be.
#[derive(Clone)]
pub struct NewTimer {
    /// Its key.
    pub key: Bytes,
    /// When it is due.
    pub when: WireWhen,
    /// The arming's id.
    pub arming: ArmingId,
    /// What the handler gets.
    pub payload: Bytes,
}

impl fmt::Debug for NewTimer {
    /// Without the payload, which may hold secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewTimer")
            .field("key", &Escaped(&self.key))
            .field("when", &self.when)
            .field("arming", &self.arming)
            .finish_non_exhaustive()
    }
}

/// What became of one timer of an arm call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArmReply {
    /// Which case.
    pub code: ArmCode,
    /// The deadline in ms, where there is one.
    pub deadline: u64,
}

/// The cases of an arm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArmCode {
    /// There was none, now there is.
    Armed,
    /// It took the place of a waiting timer.
    Replaced,
    /// It is kept until the running attempt has ended.
    AfterRunning,
    /// There is one, and it was to be left alone.
    Exists,
    /// A repeat: the arming was made, and has been ended by hand since.
    Superseded,
}

/// A timer to withdraw.
#[derive(Clone, Debug)]
pub struct Cancel {
    /// Its key.
    pub key: Bytes,
    /// The id of this cancel.
    pub id: CancelId,
}

/// What became of one timer of a cancel call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CancelReply {
    /// Which case.
    pub code: CancelCode,
    /// When what ended was due, in ms, where this very call ended something:
    /// its trigger key is known by it.
    pub deadline: Option<u64>,
}

/// The cases of a cancel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CancelCode {
    /// There was nothing to withdraw.
    NotArmed,
    /// It will not run.
    Cancelled,
    /// An attempt is running; it has been fenced, and there will be no other.
    InFlight,
}

/// What became of a reschedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RescheduleReply {
    /// There is no timer.
    NotArmed,
    /// It is due then.
    Rescheduled {
        /// The new deadline in ms.
        deadline: u64,
        /// The arming, unchanged.
        arming: ArmingId,
        /// The attempt to come.
        attempt: u32,
    },
    /// An attempt is running; nothing was changed.
    InFlight,
}

/// Everything about a timer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Look {
    /// The server's time.
    pub stamp: ServerTime,
    /// When the timer next needs attention, in ms.
    pub score: Option<u64>,
    /// Whether it waits with the suspects.
    pub suspect: bool,
    /// The record's bytes.
    pub record: Bytes,
    /// The state's bytes.
    pub state: Option<Bytes>,
    /// The record of the arming kept for later.
    pub next: Option<Bytes>,
}

/// Which index a claim takes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Index {
    /// The ordinary one.
    Due,
    /// That of the suspects.
    Solo,
}

/// A claim call.
#[derive(Clone, Copy, Debug)]
pub struct Claim {
    /// From where.
    pub index: Index,
    /// On whose behalf.
    pub slot: SlotId,
    /// The new token.
    pub token: Token,
    /// Whether this repeats an unanswered call with the same token.
    pub repeat: bool,
    /// How many at most, up to [`MAX_BATCH`](super::MAX_BATCH).
    pub limit: usize,
    /// How many bytes of records, roughly: reading stops once this is reached.
    pub bytes: usize,
    /// How far ahead of their deadline timers may be taken, in ms.
    pub lookahead_ms: u64,
    /// For how long they are held, in ms.
    pub lease_ms: u64,
    /// Bounds of the dead letters, which a claim may have to write.
    pub letters: Letters,
}

/// Bounds of a topic's dead letters, per partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Letters {
    /// How many are kept.
    pub count: u64,
    /// For how long, in ms.
    pub age_ms: u64,
    /// Whether to pause the topic when they are full, rather than trim.
    pub pause_when_full: bool,
}

/// What a claim took.
#[derive(Clone, Debug)]
pub struct Claimed {
    /// The server's time.
    pub stamp: ServerTime,
    /// What is due next.
    pub heads: Heads,
    /// Why the partition gives nothing out.
    pub paused: Option<String>,
    /// What was taken.
    pub timers: Vec<ClaimedTimer>,
    /// Members of the index that had no record and were removed.
    pub orphans: u64,
    /// Records of a newer version that were put off by a minute.
    pub parked: u64,
    /// Timers that ended as dead letters.
    pub buried: u64,
    /// Dead letters that had to make room.
    pub trimmed: u64,
    /// Nothing was taken, and another slot made the last claim that took something.
    pub rival: bool,
}

/// A timer that was taken.
#[derive(Clone, Debug)]
pub struct ClaimedTimer {
    /// Its key.
    pub key: Bytes,
    /// The record's bytes.
    pub record: Bytes,
    /// The state's bytes; none for a first attempt.
    pub state: Option<Bytes>,
}

/// The earliest scores of a partition's indexes, in ms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Heads {
    /// Of the ordinary index.
    pub due: Option<u64>,
    /// Of the suspects.
    pub solo: Option<u64>,
}

/// A key and the token that holds it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Held {
    /// The key.
    pub key: Bytes,
    /// The claim that holds it.
    pub token: Token,
}

/// What became of an ack call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AckReply {
    /// Permits whose tokens hold nothing any more.
    pub gone: Vec<usize>,
    /// Armings that took the place of acked timers.
    pub followed: Vec<Followed>,
}

/// An arming that took the place of an ended timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Followed {
    /// The place of the ended timer in the call.
    pub place: usize,
    /// The new deadline in ms.
    pub deadline: u64,
    /// The new arming.
    pub arming: ArmingId,
}

/// One end of an attempt.
#[derive(Clone, Debug)]
pub struct Settle {
    /// The timer.
    pub held: Held,
    /// How its attempt ended.
    pub end: End,
}

/// How an attempt ended, other than well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// Try again after a delay.
    Retry {
        /// In ms.
        delay: u64,
        /// The attempt to come.
        attempt: u32,
        /// Snoozes so far.
        snoozes: u16,
        /// The failed attempts.
        history: Bytes,
    },
    /// The same attempt again after a delay.
    Snooze {
        /// In ms.
        delay: u64,
        /// The same attempt.
        attempt: u32,
        /// Snoozes, this one included.
        snoozes: u16,
        /// The failed attempts.
        history: Bytes,
    },
    /// Done, and to run again after a delay, as a new arming.
    Again {
        /// In ms.
        delay: u64,
        /// The new arming.
        arming: ArmingId,
    },
    /// Never again.
    Dead {
        /// Why.
        reason: Reason,
        /// The failed attempts.
        history: Bytes,
    },
    /// Not begun or not finished: hand it back.
    Release,
}

/// What became of one end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettleReply {
    /// The token holds nothing any more; a repeat reads this as done.
    Gone,
    /// So it is; with the next deadline in ms and its arming, if there is one.
    Settled(Option<(u64, ArmingId)>),
    /// The arming kept for later took the timer's place.
    GaveWay(u64, ArmingId),
}

/// A dead letter and its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawLetter {
    /// Arming id and key.
    pub id: Bytes,
    /// The letter's bytes.
    pub letter: Bytes,
}

/// What became of a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplayReply {
    /// There is no such letter.
    NoLetter,
    /// It is due then, in ms.
    Replayed(u64),
    /// The key has a timer; nothing was changed.
    Exists,
    /// The letter's record cannot be read; nothing was changed.
    Unreadable,
}

/// One step of the slow repair.
#[derive(Clone, Debug)]
pub struct RepairStep {
    /// What to scan.
    pub what: Scan,
    /// Where the last step ended; 0 to begin.
    pub cursor: u64,
    /// How many entries to look at, roughly.
    pub count: usize,
    /// The lease that a held record without an index entry gets, in ms.
    pub lease_ms: u64,
}

/// The hashes that the slow repair scans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scan {
    /// Records without an index entry.
    Records,
    /// States without a record.
    States,
    /// Kept armings without a timer before them.
    Next,
    /// Slots of listeners that are gone.
    Lanes,
}

/// What one step of the slow repair did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repaired {
    /// Where to go on; 0 at the end.
    pub cursor: u64,
    /// How many entries were put right.
    pub repaired: u64,
}

/// A trigger key to set.
#[derive(Clone, Debug)]
pub struct Trigger {
    /// The key.
    pub key: Bytes,
    /// When it expires, in ms since 1970.
    pub deadline: u64,
    /// The attempt to come.
    pub attempt: u32,
    /// Whether this moves the deadline of a timer that was there before: then a
    /// number that expires at another time is taken for its key.
    pub moved: bool,
}

impl Trigger {
    /// The largest number that a key holds: servers keep numbers up to it once
    /// for all keys.
    const MOST: u32 = 9999;

    /// What the key holds: the attempt to come.
    pub(crate) fn number(&self) -> u32 {
        self.attempt.clamp(1, Self::MOST)
    }

    /// Whether a value looks like one of ours.
    pub(crate) fn is_number(value: &[u8]) -> bool {
        matches!(value, [b'1'..=b'9', rest @ ..] if rest.len() < 4 && rest.iter().all(u8::is_ascii_digit))
    }
}

/// What became of a trigger key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TriggerReply {
    /// It stands.
    Set,
    /// The name holds what is not known to be ours, and was left alone.
    Foreign,
    /// The deadline has passed already.
    Past,
}

/// How far a write is to travel before an arm returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Durability {
    /// Replicas that are to have it (WAIT, or WAITAOF with `local`).
    pub replicas: u32,
    /// Whether it is to be in this server's append-only file, flushed (WAITAOF).
    pub local_fsync: bool,
    /// How long to wait for that, in ms.
    pub within_ms: u64,
}

/// How far a write has travelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reached {
    /// Replicas that have it.
    pub replicas: u32,
    /// Whether it is flushed to this server's append-only file.
    pub local_fsync: bool,
}

/// What the registry says of a topic.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct TopicEntry {
    /// Its name.
    pub name: String,
    /// Its pattern.
    pub pattern: String,
    /// How many partitions it has.
    pub partitions: u32,
    /// Whether its timers have trigger keys.
    pub triggers: bool,
    /// Whether other programs write its keys.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub attached: bool,
}

/// Something heard. Only a reason to look; never a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A partition's head may have moved to this ms.
    Wake {
        /// The place of the partition in the list given to [`Store::events`](super::Store::events).
        partition: usize,
        /// The new head.
        at: u64,
    },
    /// A cancel has fenced this claim of this key.
    Fence {
        /// The place of the partition in the list given to [`Store::events`](super::Store::events).
        partition: usize,
        /// What was fenced.
        held: Held,
    },
    /// The server says that this key has expired.
    Expired(Bytes),
    /// Something may have been missed.
    Gap(Gap),
    /// Hints flow again, as far as a canary can tell.
    Anchored,
    /// A canary, where touches are answered in the stream.
    Canary(Canary),
    /// From here on, events are missing.
    Lost,
    /// A key of an attached topic has changed.
    Changed(Bytes, Change),
    /// A touch was answered, or will not be.
    Touched(Touched),
}

/// A canary, heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Canary {
    /// Its number.
    pub number: u64,
    /// The number of the one before.
    pub before: u64,
    /// Whether its `set` was heard on its keyspace channel.
    pub writes: bool,
    /// Whether its `expire` was.
    pub expires: bool,
}

/// What a keyspace channel says of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Change {
    /// Its deadline may be another.
    Written,
    /// It was deleted or renamed.
    Gone,
}

/// Why something may have been missed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Gap {
    /// The connection is not there, or not there yet.
    Disconnected,
    /// Nobody heard the canary: flags cleared, a demoted master, a dead link.
    Silent,
    /// The queue was full, and events were dropped.
    Overflow,
    /// Wake-ups cannot be heard here: new heads are found by sweeps.
    NoWakeUps,
}

impl Gap {
    /// A word for logs and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Disconnected => "disconnected",
            Self::Silent => "silent",
            Self::Overflow => "overflow",
            Self::NoWakeUps => "no_wake_ups",
        }
    }
}
