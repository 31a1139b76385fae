//! Claiming what is due.

use bytes::Bytes;

use crate::error::Result;
use crate::id::{SlotId, Token};
use crate::time::ServerTime;
use crate::{LetterBounds, PartitionNames, Reply, Store, scripts};

/// Leases lost before a timer runs in a group, from the quarantine. As in prelude.lua, which a test compares.
pub const QUARANTINE_AT: u8 = 2;
/// Leases lost before a timer ends as a dead letter. As in prelude.lua.
pub const DEAD_AT: u8 = 5;

/// Which index a claim takes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Index {
    /// The ordinary one.
    Due,
    /// That of the quarantine.
    Quarantine,
}

/// A claim call.
#[derive(Clone, Copy, Debug)]
pub struct Claim {
    /// From where.
    pub index: Index,
    /// The claim slot that it is made with.
    pub slot: SlotId,
    /// The new token.
    pub token: Token,
    /// Whether this repeats an unanswered call with the same token.
    pub repeat: bool,
    /// How many at most, up to [`MAX_BATCH`](super::MAX_BATCH).
    pub limit: usize,
    /// How many bytes of records, roughly: reading stops once this is reached.
    pub bytes: usize,
    /// How far ahead of their deadline timers may be taken, in ms; negative: how long they must have been due.
    pub lookahead_ms: i64,
    /// For how long they are held, in ms.
    pub lease_ms: u64,
    /// Bounds of the dead letters, which a claim may have to write.
    pub letters: LetterBounds,
    /// Beside whom what is taken from the quarantine is to run.
    pub group: Group,
}

/// Those of the quarantine that run together in a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    /// How many there are already.
    pub running: usize,
    /// How many there may be where one has lost two leases, three, or four.
    pub sizes: [usize; 3],
}

impl Group {
    /// Each by itself.
    pub const ALONE: Self = Self { running: 0, sizes: [1; 3] };
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
    /// When another slot last took something, in ms, where nothing was taken.
    pub rival: Option<u64>,
    /// Whether another slot is the standby, where nothing was taken and the lookahead is negative.
    pub standby: bool,
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
    /// Of the quarantine.
    pub quarantine: Option<u64>,
}

impl Heads {
    pub(super) fn read(reply: &mut Reply) -> Result<Self> {
        Ok(Self { due: reply.maybe_int()?, quarantine: reply.maybe_int()? })
    }
}

impl Store {
    /// Takes what is due.
    pub async fn claim(&self, at: &PartitionNames, claim: Claim) -> Result<Claimed> {
        let index = if claim.index == Index::Due { "due" } else { "quarantine" };
        let mut call = self.call(&scripts::CLAIM, at);
        call.arg(index).arg(claim.slot.as_bytes()).arg(claim.token.as_bytes());
        call.arg(i32::from(claim.repeat)).arg(claim.limit).arg(claim.bytes);
        call.arg(claim.lookahead_ms).arg(claim.lease_ms);
        claim.letters.add_to(&mut call);
        if claim.index == Index::Quarantine {
            let [two, three, four] = claim.group.sizes;
            call.arg(claim.group.running).arg(two).arg(three).arg(four);
        }
        read_claimed(call.reply().await?)
    }
}

pub fn read_claimed(mut reply: Reply) -> Result<Claimed> {
    let (heads, paused) = (Heads::read(&mut reply)?, reply.maybe_text()?);
    let (mut keys, mut records, mut states) = (reply.list()?, reply.list()?, reply.list()?);
    let timers = keys.each(|keys| {
        Ok(ClaimedTimer { key: keys.bytes()?, record: records.bytes()?, state: states.maybe_bytes()? })
    })?;
    Ok(Claimed {
        stamp: reply.stamp,
        heads,
        paused,
        timers,
        orphans: reply.int()?,
        parked: reply.int()?,
        buried: reply.int()?,
        trimmed: reply.int()?,
        rival: reply.maybe_int()?,
        standby: reply.one_of(&[false, true])?,
    })
}
