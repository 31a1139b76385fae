//! What attached topics ask of a store: keys that other programs write.
//!
//! [`ForeignKeys`] is a second seam beside [`Store`](super::Store), since the memory store has no
//! other programs. What is asked of a partition can be repeated after a lost answer.

use std::fmt::{self, Debug};

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::mpsc;

use crate::events::event::Event;
use crate::wire::names::Partition;
use crate::error::Result;
use crate::escape::Escaped;
use crate::id::{ArmingId, SlotId};
use crate::time::ServerTime;

/// Where something stands in a server's stream of expired keys. Permits of one key are compared, times
/// never: each listener hears the same events in the same order, each late in its own way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// The number of the last canary heard; 0 where none is heard at all.
    pub canary: u64,
    /// How many expiries of the key since.
    pub count: u32,
}

/// How attached keys are to be treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Treatment {
    /// Whether an expiry is fired that is not of a deadline that was read.
    pub unenrolled: bool,
    /// Whether keys are written back for their retries.
    pub restores: bool,
    /// How many keys a partition remembers.
    pub cap: usize,
    /// How long before its deadline a key is read again, in ms; 0: not.
    pub reread_ms: u64,
}

/// An expiry that was heard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Of which key.
    pub key: Bytes,
    /// Its identity; none where it was heard without an anchor.
    pub at: Option<Position>,
    /// The arming of the lapse to be.
    pub arming: ArmingId,
}

/// What became of a note.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Noted {
    /// Another listener was first.
    Known,
    /// It is a lapse now.
    Lapse,
    /// It was fired before, as a recovery.
    Recovered,
    /// Its deadline had not been read, and the topic ignores such keys.
    Ignored,
    /// It is older than the memory.
    Stale,
    /// It was the key that was written back for a retry.
    Returned,
    /// It is a lapse now, in place of a retry: the key's writer was first.
    Superseding,
}

/// A deadline that was read.
#[derive(Clone, Debug)]
pub struct Enrolment {
    /// Of which key.
    pub key: Bytes,
    /// In ms since 1970; 0 for a key that has none, or is known to be deleted.
    pub deadline: u64,
    /// Where in the stream.
    pub at: Position,
    /// When.
    pub stamp: ServerTime,
    /// A copy of the value, as touch.lua makes it; empty where none was asked for.
    pub copy: Bytes,
}

/// What became of an enrolment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Enrolled {
    /// Something later is known of the key: read it again.
    Stale,
    /// It is remembered now.
    New,
    /// It was remembered already.
    Known,
    /// The topic remembers as many keys as it may.
    Full,
    /// It is remembered, without a copy of the value, and one is wanted.
    Wanted,
    /// We have written it ourselves.
    Ours,
    /// It is not remembered any more.
    Forgotten,
}

/// What is remembered of a key's deadline, without the value.
#[derive(Clone, PartialEq, Eq)]
pub struct Watch {
    /// Of which key.
    pub key: Bytes,
    /// The bytes that a verdict has to name.
    pub head: Bytes,
    /// In ms since 1970.
    pub deadline: u64,
    /// Where in the stream it was read.
    pub at: Position,
}

impl Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Watch({}, {}, {:?})", Escaped(&self.key), self.deadline, self.at)
    }
}

/// Keys that are to be looked at.
#[derive(Clone, Debug)]
pub struct DueChecks {
    /// The server's time.
    pub stamp: ServerTime,
    /// When the next are, in ms since 1970.
    pub next: Option<u64>,
    /// Which.
    pub watches: Vec<Watch>,
    /// There are none, and another slot took the last.
    pub rival: bool,
}

/// Which looks are taken, and for whom.
#[derive(Clone, Copy, Debug)]
pub struct TakeChecks {
    /// By whom.
    pub slot: SlotId,
    /// How many at most, up to [`MAX_BATCH`](super::MAX_BATCH).
    pub limit: usize,
    /// For how long others are kept from them, in ms.
    pub hold_ms: u64,
    /// How long they must have been due, in ms.
    pub overdue_ms: u64,
}

/// What is done after a look, if the watch is still what was looked at.
#[derive(Clone, Debug)]
pub struct Judged {
    /// What was looked at.
    pub watch: Watch,
    /// Where in the stream the look was made.
    pub at: Position,
    /// When.
    pub stamp: ServerTime,
    /// What is done.
    pub deed: Deed,
}

/// What a verdict does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    /// The key is of no interest any more.
    Forget,
    /// It lapses, though nobody has heard it expire.
    Fire {
        /// The arming of the lapse.
        arming: ArmingId,
        /// Why, as the first byte of its payload says it.
        flags: u8,
    },
    /// It is looked at again.
    Again {
        /// In ms since 1970.
        at: u64,
    },
}

/// An answer that also says when the next look is due, in ms since 1970.
#[derive(Clone, Debug)]
pub struct Next<T> {
    /// When.
    pub next: Option<u64>,
    /// The answer.
    pub value: T,
}

/// What of a value is copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capture {
    /// Up to how many bytes; 0: nothing.
    pub cap: usize,
    /// Whether values that are not strings are copied, as DUMP writes them.
    pub dumps: bool,
}

/// A key as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// What there was.
    pub life: Life,
    /// A copy of the value, as touch.lua makes it; empty where none was asked for.
    pub copy: Bytes,
}

/// Whether a key lives, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// There is no such key.
    Gone,
    /// It has no deadline.
    Lasting,
    /// Its deadline, in ms since 1970.
    Until(u64),
}

/// Keys to be read on the connection of the subscription.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Touch {
    /// The asker's number for it.
    pub id: u64,
    /// Which.
    pub keys: Vec<Bytes>,
    /// What of their values is wanted.
    pub capture: Capture,
}

/// The answer to a touch, in the stream behind everything that was published before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Touched {
    /// The asker's number.
    pub id: u64,
    /// The server's time, and the keys in the order in which they were asked for; none where there was
    /// no answer.
    pub answer: Option<(ServerTime, Vec<Found>)>,
}

/// What becomes of a key that is to be written back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restored {
    /// It stands.
    Written,
    /// Its writer has created it again, and it was left alone.
    Taken,
    /// Its deadline has passed.
    Past,
}

/// A stream of events in which touches are answered.
#[derive(Debug)]
pub struct EventStream {
    /// What is heard.
    pub events: mpsc::Receiver<Event>,
    /// Where touches are asked for; those that find no connection are answered with nothing.
    pub touches: mpsc::Sender<Touch>,
}

/// What to listen for, beside what a listener of managed topics hears.
#[derive(Clone, Debug, Default)]
pub struct Prefixes {
    /// What the keys of attached topics begin with.
    pub prefixes: Vec<String>,
}

/// Keys that other programs write.
#[async_trait]
pub trait ForeignKeys: Send + Sync + Debug + 'static {
    /// Opens the stream of events, with changes of keys that begin with these prefixes.
    fn listen(&self, partitions: &[Partition], watched: &Prefixes) -> EventStream;

    /// Makes lapses of expiries that were heard.
    async fn note(&self, at: &Partition, how: Treatment, notes: &[Note]) -> Result<Vec<Noted>>;

    /// Remembers deadlines that were read.
    async fn enrol(&self, at: &Partition, how: Treatment, read: &[Enrolment]) -> Result<Next<Vec<Enrolled>>>;

    /// Takes looks that are due.
    async fn looks(&self, at: &Partition, take: TakeChecks) -> Result<DueChecks>;

    /// Does what looks have led to; whether the watches still stood.
    async fn judge(&self, at: &Partition, how: Treatment, all: &[Judged]) -> Result<Next<Vec<bool>>>;

    /// Becomes or stays the topic's scanner for so long; `patient`: only if there was none for as long.
    async fn keep(&self, at: &Partition, slot: SlotId, hold_ms: u64, patient: bool) -> Result<bool>;

    /// Is not the scanner any more.
    async fn leave(&self, at: &Partition, slot: SlotId) -> Result<()>;

    /// Reads keys, anywhere.
    async fn read(&self, keys: &[Bytes], capture: Capture) -> Result<(ServerTime, Vec<Found>)>;

    /// One step through all keys of the database: where to go on (0: the end), and those that begin with
    /// the prefix.
    async fn scan(&self, cursor: u64, prefix: &str, count: usize) -> Result<(u64, Vec<Bytes>)>;

    /// Writes a key back, if the name is free.
    async fn restore(&self, key: &[u8], deadline: u64, copy: &[u8]) -> Result<Restored>;

    /// A key was written back until this deadline, and has expired: its announcement is no lapse. Whether
    /// that is still to come.
    async fn lend(&self, at: &Partition, key: &[u8], deadline: u64) -> Result<bool>;

    /// How many keys a partition remembers.
    async fn enrolled(&self, at: &Partition) -> Result<u64>;
}
