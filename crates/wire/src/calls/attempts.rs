//! Attempts: timers are claimed once they are due, kept by leases, and settled when their attempts end.

use bytes::Bytes;

use crate::error::Result;
use crate::id::{ArmingId, SlotId, Token};
use crate::run::ScriptCall;
use crate::time::ServerTime;
use crate::{DeadLetterLimits, DeadReason, Ending, PartitionNames, Reply, Store, scripts};

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
    pub letters: DeadLetterLimits,
    /// Beside whom what is taken from the quarantine is to run.
    pub group: QuarantineGroup,
}

/// Those of the quarantine that run together in a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuarantineGroup {
    /// How many there are already.
    pub running: usize,
    /// How many there may be where one has lost two leases, three, or four.
    pub sizes: [usize; 3],
}

impl QuarantineGroup {
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
    pub dead_lettered: u64,
    /// Dead letters that had to make room.
    pub trimmed: u64,
    /// When another slot last took something, in ms, where nothing was taken.
    pub other_claimed_at: Option<u64>,
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

/// Reads what a claim has answered.
///
/// # Errors
/// When it is something else.
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
    /// The claim that holds it.
    pub token: Token,
}

/// The answer to an ack call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AckReply {
    /// The server's time.
    pub stamp: ServerTime,
    /// Places whose tokens hold nothing any more.
    pub gone: Vec<usize>,
    /// Armings that took the place of acked timers.
    pub followed: Vec<PromotedArming>,
    /// What became of their trigger keys.
    pub triggers: MarkerWriteReport,
}

/// The answer to a call that settles.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SettledAll {
    /// What became of their trigger keys.
    pub triggers: MarkerWriteReport,
    /// What became of each end.
    pub each: Vec<SettleReply>,
    /// Dead letters that were trimmed.
    pub trimmed: u64,
}

/// What became of trigger keys that a call has set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MarkerWriteReport {
    /// How many were left alone, as the name holds what others have written.
    pub taken: u64,
    /// Why some could not be written.
    pub refused: Option<String>,
}

/// An arming that took the place of an ended timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PromotedArming {
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
    pub held: LeaseRef,
    /// How its attempt ended.
    pub end: AttemptEnd,
}

/// How an attempt ended, other than well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttemptEnd {
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
        reason: DeadReason,
        /// The failed attempts.
        history: Bytes,
    },
    /// Not begun or not finished: hand it back.
    Release,
}

/// The answer for one end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettleReply {
    /// The token holds nothing any more; a repeat reads this as done.
    Gone,
    /// So it is; with the next deadline in ms and its arming, if there is one.
    Settled(Option<(u64, ArmingId)>),
    /// The arming kept for later took the timer's place.
    ReplacedByQueued(u64, ArmingId),
}

impl AttemptEnd {
    /// What it is called.
    pub fn ending(&self) -> Ending {
        match self {
            Self::Retry { .. } => Ending::Retry,
            Self::Snooze { .. } => Ending::Snoozed,
            Self::Again { .. } => Ending::Again,
            Self::Dead { .. } => Ending::Dead,
            Self::Release => Ending::Released,
        }
    }

    /// The failed attempts that it leaves to be kept.
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
    /// Removes timers whose attempt is done. Where what follows them is to have trigger keys, these are set, unless they
    /// lie elsewhere.
    pub async fn ack(&self, at: &PartitionNames, triggers: bool, held: &[LeaseRef]) -> Result<AckReply> {
        let mut call = self.call(&scripts::ACK, at);
        call.arg(i32::from(self.scripts_set_markers(triggers)));
        held.iter().for_each(|one| one.add_to(&mut call));
        let mut reply = call.reply().await?;
        let (gone, followed) = (read_places(reply.list()?)?, read_followed(reply.list()?)?);
        Ok(AckReply { stamp: reply.stamp, gone, followed, triggers: read_triggers(&mut reply)? })
    }

    /// Ends attempts in any other way. Where what comes next is to have trigger keys, these are set, unless they lie
    /// elsewhere.
    pub async fn settle(
        &self,
        at: &PartitionNames,
        letters: DeadLetterLimits,
        triggers: bool,
        ends: &[Settle],
    ) -> Result<SettledAll> {
        let mut call = self.call(&scripts::SETTLE, at);
        letters.add_to(&mut call);
        call.arg(i32::from(self.scripts_set_markers(triggers)));
        ends.iter().for_each(|end| add_end(&mut call, end));
        let mut reply = call.reply().await?;
        let triggers = read_triggers(&mut reply)?;
        let each = ends.iter().map(|_| read_settled(&mut reply)).collect::<Result<_>>()?;
        Ok(SettledAll { triggers, each, trimmed: reply.int()? })
    }

    /// Extends leases; answers the places of those that are lost.
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

/// Scripts count from one.
fn read_place(reply: &mut Reply) -> Result<usize> {
    let place = usize::try_from(reply.int()?).ok().and_then(|place| place.checked_sub(1));
    place.ok_or_else(|| reply.unexpected())
}

/// Reads places, counted from 0.
///
/// # Errors
/// When they are something else.
pub fn read_places(mut reply: Reply) -> Result<Vec<usize>> {
    reply.each(read_place)
}

/// Reads the armings that took the places of ended timers.
///
/// # Errors
/// When they are something else.
pub fn read_followed(mut reply: Reply) -> Result<Vec<PromotedArming>> {
    reply.each(|reply| {
        let (place, deadline) = (read_place(reply)?, reply.int()?);
        let arming = reply.arming()?.ok_or_else(|| reply.unexpected())?;
        Ok(PromotedArming { place, deadline, arming })
    })
}

fn read_triggers(reply: &mut Reply) -> Result<MarkerWriteReport> {
    Ok(MarkerWriteReport { taken: reply.int()?, refused: reply.maybe_text()? })
}

/// Reads what became of one end.
///
/// # Errors
/// When it is something else.
pub fn read_settled(reply: &mut Reply) -> Result<SettleReply> {
    let (code, deadline, arming) = (reply.int()?, reply.int()?, reply.arming()?);
    match (code, arming) {
        (0, _) => Ok(SettleReply::Gone),
        (1, arming) => Ok(SettleReply::Settled(arming.map(|arming| (deadline, arming)))),
        (2, Some(arming)) => Ok(SettleReply::ReplacedByQueued(deadline, arming)),
        _ => Err(reply.unexpected()),
    }
}
