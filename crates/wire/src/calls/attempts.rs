//! Calls of listeners: claim due timers, renew their leases, and settle their attempts.

use bytes::Bytes;

use crate::error::Result;
use crate::id::{ArmingId, SlotId, Token};
use crate::run::ScriptCall;
use crate::time::ServerTime;
use crate::{DeadLetterLimits, DeadReason, Ending, PartitionNames, Reply, Store, scripts};

/// A timer that has lost this many leases waits in quarantine and runs in a group. A test compares this with prelude.lua.
pub const QUARANTINE_AT: u8 = 2;
/// A timer that has lost this many leases becomes a dead letter. A test compares this with prelude.lua.
pub const DEAD_AT: u8 = 5;

/// The index from which a claim takes timers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Index {
    /// The index of all timers that are not in quarantine.
    Due,
    /// The index of the quarantine.
    Quarantine,
}

/// The parameters of a claim.
#[derive(Clone, Copy, Debug)]
pub struct Claim {
    /// The index to claim from.
    pub index: Index,
    /// The ID of the calling claimer.
    pub slot: SlotId,
    /// The token of the new claim.
    pub token: Token,
    /// True if this repeats an unanswered call with the same token.
    pub repeat: bool,
    /// The maximum number of timers, up to [`MAX_BATCH`](super::MAX_BATCH).
    pub limit: usize,
    /// The rough limit of records, in bytes: reading stops once it is reached.
    pub bytes: usize,
    /// How far ahead of their deadlines timers are claimed, in ms. If negative, how long they must have been due.
    pub lookahead_ms: i64,
    /// The length of the leases, in ms.
    pub lease_ms: u64,
    /// The limits of dead letters, which a claim may create.
    pub letters: DeadLetterLimits,
    /// The group in which timers from the quarantine will run.
    pub group: QuarantineGroup,
}

/// Timers from the quarantine that run together in a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuarantineGroup {
    /// How many run already.
    pub running: usize,
    /// The maximum size of the group if a timer has lost two, three, or four leases.
    pub sizes: [usize; 3],
}

impl QuarantineGroup {
    /// A group of one timer.
    pub const ALONE: Self = Self { running: 0, sizes: [1; 3] };
}

/// The result of a claim.
#[derive(Clone, Debug)]
pub struct Claimed {
    /// The server's time.
    pub stamp: ServerTime,
    /// The earliest scores after the claim.
    pub heads: Heads,
    /// Why the partition is paused.
    pub paused: Option<String>,
    /// The claimed timers.
    pub timers: Vec<ClaimedTimer>,
    /// The number of index entries without a record, which were removed.
    pub orphans: u64,
    /// The number of timers with a record or state of a newer version, which were put off by a minute.
    pub parked: u64,
    /// The number of timers that became dead letters.
    pub dead_lettered: u64,
    /// The number of dead letters that were removed because of the limits.
    pub trimmed: u64,
    /// When another claimer has made the last claim with timers, in ms, if this call claimed none.
    pub other_claimed_at: Option<u64>,
    /// True if a third claimer is the standby, this call claimed no timers, and its lookahead is negative.
    pub standby: bool,
}

/// A timer that was claimed.
#[derive(Clone, Debug)]
pub struct ClaimedTimer {
    /// The key.
    pub key: Bytes,
    /// The record's bytes.
    pub record: Bytes,
    /// The state's bytes; `None` for a first attempt.
    pub state: Option<Bytes>,
}

/// The earliest scores of a partition's indexes, in ms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Heads {
    /// The earliest score of `due`.
    pub due: Option<u64>,
    /// The earliest score of `quarantine`.
    pub quarantine: Option<u64>,
}

impl Heads {
    pub(super) fn read(reply: &mut Reply) -> Result<Self> {
        Ok(Self { due: reply.maybe_int()?, quarantine: reply.maybe_int()? })
    }
}

impl Store {
    /// Claims due timers.
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

/// Reads the reply of a claim.
///
/// # Errors
/// If the reply has another format.
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
        dead_lettered: reply.int()?,
        trimmed: reply.int()?,
        other_claimed_at: reply.maybe_int()?,
        standby: reply.one_of(&[false, true])?,
    })
}

/// A key and the token that holds it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LeaseRef {
    /// The key.
    pub key: Bytes,
    /// The token of the claim.
    pub token: Token,
}

/// The result of an ack.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AckReply {
    /// The server's time.
    pub stamp: ServerTime,
    /// The positions of timers that their tokens no longer hold.
    pub gone: Vec<usize>,
    /// The queued armings that took the places of the removed timers.
    pub followed: Vec<PromotedArming>,
    /// The results of writing marker keys.
    pub markers: MarkerWriteReport,
}

/// The result of a call that settles attempts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SettledAll {
    /// The results of writing marker keys.
    pub markers: MarkerWriteReport,
    /// The result of each end.
    pub each: Vec<SettleReply>,
    /// The number of dead letters that were removed because of the limits.
    pub trimmed: u64,
}

/// The results of the marker keys that a call has written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MarkerWriteReport {
    /// How many were left alone, because the key holds a value of another program.
    pub taken: u64,
    /// Why some could not be written.
    pub refused: Option<String>,
}

/// A queued arming that took the place of an ended timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PromotedArming {
    /// The position of the ended timer in the call.
    pub place: usize,
    /// The new deadline, in ms.
    pub deadline: u64,
    /// The new arming.
    pub arming: ArmingId,
}

/// An attempt to settle.
#[derive(Clone, Debug)]
pub struct Settle {
    /// The timer and its token.
    pub held: LeaseRef,
    /// How the attempt ended.
    pub end: AttemptEnd,
}

/// How an attempt ended, other than by an ack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttemptEnd {
    /// The next attempt runs after a delay.
    Retry {
        /// The delay, in ms.
        delay: u64,
        /// The number of the next attempt.
        attempt: u32,
        /// The number of snoozes so far.
        snoozes: u16,
        /// The failed attempts.
        history: Bytes,
    },
    /// The attempt runs again after a delay.
    Snooze {
        /// The delay, in ms.
        delay: u64,
        /// The number of the attempt.
        attempt: u32,
        /// The number of snoozes, including this one.
        snoozes: u16,
        /// The failed attempts.
        history: Bytes,
    },
    /// The timer is done, and runs again after a delay as a new arming.
    Again {
        /// The delay, in ms.
        delay: u64,
        /// The new arming.
        arming: ArmingId,
    },
    /// The timer becomes a dead letter.
    Dead {
        /// The reason.
        reason: DeadReason,
        /// The failed attempts.
        history: Bytes,
    },
    /// The attempt has not started or finished, and the timer is released.
    Release,
}

/// The result of settling an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettleReply {
    /// The token no longer holds the timer. After a lost reply this means that the attempt is settled.
    Gone,
    /// The attempt is settled. If the timer runs again: its next deadline in ms, and its arming.
    Settled(Option<(u64, ArmingId)>),
    /// A queued arming took the timer's place: its deadline in ms, and its ID.
    ReplacedByQueued(u64, ArmingId),
}

impl AttemptEnd {
    /// Returns the outcome, which has the names.
    pub fn ending(&self) -> Ending {
        match self {
            Self::Retry { .. } => Ending::Retry,
            Self::Snooze { .. } => Ending::Snoozed,
            Self::Again { .. } => Ending::Again,
            Self::Dead { .. } => Ending::Dead,
            Self::Release => Ending::Released,
        }
    }

    /// Returns the failed attempts that the timer keeps.
    pub fn history(&self) -> &[u8] {
        match self {
            Self::Retry { history, .. } | Self::Snooze { history, .. } | Self::Dead { history, .. } => {
                history
            }
            Self::Again { .. } | Self::Release => &[],
        }
    }
}

impl Store {
    /// Removes timers whose attempts have succeeded. Sets the marker keys of the armings that follow, if `marker_keys` is
    /// set and these need no calls of their own.
    pub async fn ack(&self, at: &PartitionNames, marker_keys: bool, held: &[LeaseRef]) -> Result<AckReply> {
        let mut call = self.call(&scripts::ACK, at);
        call.arg(i32::from(self.scripts_set_markers(marker_keys)));
        held.iter().for_each(|one| one.add_to(&mut call));
        let mut reply = call.reply().await?;
        let (gone, followed) = (read_places(reply.list()?)?, read_followed(reply.list()?)?);
        Ok(AckReply { stamp: reply.stamp, gone, followed, markers: read_marker_report(&mut reply)? })
    }

    /// Settles attempts in any other way. Sets the marker keys of the next attempts, if `marker_keys` is set and these need
    /// no calls of their own.
    pub async fn settle(
        &self,
        at: &PartitionNames,
        letters: DeadLetterLimits,
        marker_keys: bool,
        ends: &[Settle],
    ) -> Result<SettledAll> {
        let mut call = self.call(&scripts::SETTLE, at);
        letters.add_to(&mut call);
        call.arg(i32::from(self.scripts_set_markers(marker_keys)));
        ends.iter().for_each(|end| add_end(&mut call, end));
        let mut reply = call.reply().await?;
        let markers = read_marker_report(&mut reply)?;
        let each = ends.iter().map(|_| read_settled(&mut reply)).collect::<Result<_>>()?;
        Ok(SettledAll { markers, each, trimmed: reply.int()? })
    }

    /// Renews leases. Returns the positions of those that are lost.
    pub async fn renew(&self, at: &PartitionNames, lease_ms: u64, held: &[LeaseRef]) -> Result<Vec<usize>> {
        let mut call = self.call(&scripts::RENEW, at);
        call.arg(lease_ms);
        held.iter().for_each(|one| one.add_to(&mut call));
        read_places(call.reply().await?.list()?)
    }
}

impl LeaseRef {
    fn add_to(&self, call: &mut ScriptCall<'_>) {
        call.arg(&self.key[..]).arg(self.token.as_bytes());
    }
}

fn add_end(call: &mut ScriptCall<'_>, Settle { held, end }: &Settle) {
    let (delay, body) = match end {
        AttemptEnd::Retry { delay, attempt, snoozes, history }
        | AttemptEnd::Snooze { delay, attempt, snoozes, history } => {
            (*delay, [&attempt.to_be_bytes()[..], &snoozes.to_be_bytes(), history].concat())
        }
        AttemptEnd::Again { delay, arming } => (*delay, arming.as_bytes().to_vec()),
        AttemptEnd::Dead { reason, history } => (0, [&[reason.code()], &history[..]].concat()),
        AttemptEnd::Release => (0, Vec::new()),
    };
    call.arg(end.ending().row().lua.unwrap_or_default());
    held.add_to(call);
    call.arg(delay).arg(body);
}

/// Reads a position. Scripts count from 1.
fn read_place(reply: &mut Reply) -> Result<usize> {
    let place = usize::try_from(reply.int()?).ok().and_then(|place| place.checked_sub(1));
    place.ok_or_else(|| reply.unexpected())
}

/// Reads positions, counted from 0.
///
/// # Errors
/// If the reply has another format.
pub fn read_places(mut reply: Reply) -> Result<Vec<usize>> {
    reply.each(read_place)
}

/// Reads the queued armings that took the places of ended timers.
///
/// # Errors
/// If the reply has another format.
pub fn read_followed(mut reply: Reply) -> Result<Vec<PromotedArming>> {
    reply.each(|reply| {
        let (place, deadline) = (read_place(reply)?, reply.int()?);
        let arming = reply.arming()?.ok_or_else(|| reply.unexpected())?;
        Ok(PromotedArming { place, deadline, arming })
    })
}

fn read_marker_report(reply: &mut Reply) -> Result<MarkerWriteReport> {
    Ok(MarkerWriteReport { taken: reply.int()?, refused: reply.maybe_text()? })
}

/// Reads the result of settling an attempt.
///
/// # Errors
/// If the reply has another format.
pub fn read_settled(reply: &mut Reply) -> Result<SettleReply> {
    let (code, deadline, arming) = (reply.int()?, reply.int()?, reply.arming()?);
    match (code, arming) {
        (0, _) => Ok(SettleReply::Gone),
        (1, arming) => Ok(SettleReply::Settled(arming.map(|arming| (deadline, arming)))),
        (2, Some(arming)) => Ok(SettleReply::ReplacedByQueued(deadline, arming)),
        _ => Err(reply.unexpected()),
    }
}
