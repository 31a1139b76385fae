//! What attached topics ask of a server: how their keys are treated, deadlines that were read, and checks.

use bytes::{Buf, Bytes};
use keylapse_connection::pipe;

use super::expiries::{NodeId, Position};
use crate::error::Result;
use crate::id::{ArmingId, SlotId};
use crate::policy::Policy;
use crate::run::ScriptCall;
use crate::scripts::{self, Script};
use crate::time::ServerTime;
use crate::{PartitionNames, Store, most};

/// Arguments of each enrolment and verdict in a call.
const ENROL_ARGUMENTS: usize = 7;
const JUDGE_ARGUMENTS: usize = 10;

/// A deadline that was read.
#[derive(Clone, Debug)]
pub struct DeadlineReading {
    /// Of which key.
    pub key: Bytes,
    /// In ms since 1970; 0 for a key that has none, or is known to be deleted.
    pub deadline: u64,
    /// Where in the stream.
    pub at: Position,
    /// When.
    pub stamp: ServerTime,
    /// The last that was heard of the key's partition before the key was asked for, by that one's clock; of use
    /// where servers have names.
    pub requested_at: ServerTime,
    /// A copy of the value, as touch.lua makes it; empty where none was asked for.
    pub copy: Bytes,
}

/// The result of an enrolment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TrackResult {
    /// Something later is known of the key: read it again.
    Stale,
    /// It is remembered now.
    New,
    /// It was remembered already.
    Known,
    /// The topic remembers as many keys as it may.
    Full,
    /// It is remembered, without a copy of the value, and one is wanted.
    CopyWanted,
    /// We have written it ourselves.
    WrittenBack,
    /// It is not remembered any more.
    Forgotten,
}

/// What is remembered of a key's deadline, without the value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrackedKey {
    /// Of which key.
    pub key: Bytes,
    /// The bytes that a verdict has to name.
    pub head: Bytes,
    /// In ms since 1970.
    pub deadline: u64,
    /// Where in the stream it was read.
    pub at: Position,
    /// Whether another server has announced an expiry of the key since.
    pub announced_elsewhere: bool,
}

/// What a listener does for a topic's keys, beside hearing them expire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Duty {
    /// Others do.
    #[default]
    None,
    /// It enrols what it hears written.
    Track,
    /// It scans, too.
    Scan,
}

/// What a partition holds of the keys of others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AttachedHoldings {
    /// Keys that are enrolled.
    pub tracked: u64,
    /// When the next is looked at, in ms since 1970.
    pub next_check: Option<u64>,
    /// Keys whose expiries are remembered, on both pages.
    pub histories: u64,
    /// Lapses that have not ended.
    pub lapses: u64,
}

/// Keys that are to be looked at.
#[derive(Clone, Debug)]
pub struct DueChecks {
    /// The server's time.
    pub stamp: ServerTime,
    /// When the next are, in ms since 1970.
    pub next: Option<u64>,
    /// Which.
    pub watches: Vec<TrackedKey>,
    /// When another slot took the last, in ms, where there are none.
    pub rival: Option<u64>,
}

/// Which checks are taken, and for whom.
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

/// What is done after a check, if the watch is still what was looked at.
#[derive(Clone, Debug)]
pub struct CheckResult {
    /// What was looked at.
    pub watch: TrackedKey,
    /// Where in the stream the check was made.
    pub at: Position,
    /// When.
    pub stamp: ServerTime,
    /// Where the server of the watch was by then, if that is another, and all was heard of it.
    pub before: Option<Position>,
    /// What is done.
    pub deed: CheckAction,
}

/// What a verdict does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckAction {
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

/// The policy that stands in Redis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredPolicy {
    /// Its revision.
    pub revision: u32,
    /// Its text.
    pub text: Bytes,
}

impl Store {
    /// Says what a listener's policy is, and answers what the topic's is: of both that of the higher revision.
    pub async fn agree_on_policy(
        &self,
        first: &PartitionNames,
        revision: u32,
        text: &str,
    ) -> Result<StoredPolicy> {
        let mut reply = self.call(&scripts::SYNC_POLICY, first).arg(revision).arg(text).reply().await?;
        let revision = u32::try_from(reply.int()?).unwrap_or(u32::MAX);
        Ok(StoredPolicy { revision, text: reply.bytes()? })
    }

    /// Remembers deadlines that were read; and says when the next check is due, in ms since 1970. One call for each
    /// server of which they were.
    pub async fn track_keys(
        &self,
        at: &PartitionNames,
        policy: &Policy,
        read: &[DeadlineReading],
    ) -> Result<(Option<u64>, Vec<TrackResult>)> {
        let (mut next, mut enrolled) = (None, vec![TrackResult::Stale; read.len()]);
        for (node, places) in by_node(read, ENROL_ARGUMENTS, |one| one.at.node) {
            let some: Vec<&DeadlineReading> = places.iter().map(|place| &read[*place]).collect();
            let codes;
            (next, codes) = self.enrol_of(at, policy, node, &some).await?;
            scatter(&mut enrolled, &places, codes);
        }
        Ok((next, enrolled))
    }

    async fn enrol_of(
        &self,
        at: &PartitionNames,
        policy: &Policy,
        node: NodeId,
        read: &[&DeadlineReading],
    ) -> Result<(Option<u64>, Vec<TrackResult>)> {
        use TrackResult::{CopyWanted, Forgotten, Full, Known, New, Stale, WrittenBack};
        let heard = read.iter().map(|one| number(one.at, one.stamp));
        let mut call = self.history_call(&scripts::TRACK_KEYS, at, heard, policy.restores(), node);
        call.arg(policy.cap_of_partition(at.partitions)).arg(policy.reread_ms());
        for one in read {
            call.arg(&one.key[..]).arg(one.deadline).arg(one.at.canary).arg(one.at.count);
            call.arg(one.stamp.0).arg(&one.copy[..]);
            if node.is_named() {
                call.arg(one.requested_at.ms());
            }
        }
        let mut reply = call.reply().await?;
        let codes = [Stale, New, Known, Full, CopyWanted, WrittenBack, Forgotten];
        Ok((reply.maybe_int()?, reply.codes(read.len(), &codes)?))
    }

    /// Takes checks that are due.
    pub async fn take_checks(&self, at: &PartitionNames, take: TakeChecks) -> Result<DueChecks> {
        let mut call = self.call(&scripts::TAKE_CHECKS, at);
        call.arg(take.limit).arg(take.hold_ms).arg(take.overdue_ms).arg(take.slot.as_bytes());
        let mut reply = call.reply().await?;
        let next = reply.maybe_int()?;
        let (mut keys, mut heads) = (reply.list()?, reply.list()?);
        let watches =
            keys.each(|keys| read_watch(keys.bytes()?, heads.bytes()?).ok_or_else(|| keys.unexpected()))?;
        Ok(DueChecks { stamp: reply.stamp, next, watches, rival: reply.maybe_int()? })
    }

    /// Does what checks have led to; when the next is due, and whether the watches still stood. One call for each
    /// server that was asked.
    pub async fn apply_checks(
        &self,
        at: &PartitionNames,
        policy: &Policy,
        all: &[CheckResult],
    ) -> Result<(Option<u64>, Vec<bool>)> {
        let (mut next, mut stood) = (None, vec![false; all.len()]);
        for (node, places) in by_node(all, JUDGE_ARGUMENTS, |one| one.at.node) {
            let heard = places.iter().map(|place| number(all[*place].at, all[*place].stamp));
            let mut call = self.history_call(&scripts::APPLY_CHECKS, at, heard, policy.restores(), node);
            places.iter().for_each(|place| add_judged(&mut call, &all[*place]));
            let mut reply = call.reply().await?;
            next = reply.maybe_int()?;
            scatter(&mut stood, &places, reply.codes(places.len(), &[false, true])?);
        }
        Ok((next, stood))
    }

    /// Takes or keeps a duty for so long; `patient`: only if that was nobody's for as long, and until somebody comes
    /// who hears. For no time: gives it up.
    pub async fn take_duty(
        &self,
        at: &PartitionNames,
        slot: SlotId,
        hold_ms: u64,
        patient: bool,
    ) -> Result<Duty> {
        let what = if hold_ms > 0 { "hold" } else { "release" };
        let mut call = self.call(&scripts::TAKE_DUTY, at);
        call.arg(slot.as_bytes()).arg(what).arg(hold_ms).arg(i32::from(patient));
        call.reply().await?.one_of(&[Duty::None, Duty::Track, Duty::Scan])
    }

    /// A key was written back until this deadline, and has expired: its announcement is no lapse. Whether
    /// that is still to come.
    pub async fn write_back_expired(&self, at: &PartitionNames, key: &[u8], deadline: u64) -> Result<bool> {
        let nobody = std::iter::empty();
        let mut call = self.history_call(&scripts::WRITE_BACK_EXPIRED, at, nobody, true, NodeId::NONE);
        Ok(call.arg(key).arg(deadline).reply().await?.int()? == 1)
    }

    /// What a partition holds of the keys of others. Nothing is written.
    pub async fn attached_holdings(&self, at: &PartitionNames) -> Result<AttachedHoldings> {
        let mut counts = pipe();
        for hash in ["tracked", "timers", "expiry_history", "expiry_history_old"] {
            counts.cmd("HLEN").arg(at.key(hash));
        }
        counts.cmd("ZRANGE").arg(at.key("checks")).arg(0).arg(0).arg("WITHSCORES");
        let mut reply = self.query_partition(at, "counting what is enrolled", &counts).await?;
        let (enrolled, lapses) = (reply.int()?, reply.int()?);
        let histories = reply.int()? + reply.int()?;
        Ok(AttachedHoldings { tracked: enrolled, lapses, histories, next_check: reply.first_score()? })
    }

    /// What is remembered of an attached topic's key that is to expire, and when it is looked at.
    pub async fn watch_of_key(&self, at: &PartitionNames, key: &[u8]) -> Result<Option<(Bytes, f64)>> {
        let mut fetch = pipe();
        fetch.cmd("HGET").arg(at.key("tracked")).arg(key);
        fetch.cmd("ZSCORE").arg(at.key("checks")).arg(key);
        let mut reply = self.query_partition(at, "looking for an enrolled key", &fetch).await?;
        let (watch, score) = (reply.maybe_bytes()?, reply.maybe_float()?);
        Ok(watch.map(|watch| (watch, score.unwrap_or_default())))
    }

    /// A script with the history of a key's expiries, and what each of these takes.
    pub(super) fn history_call<'a>(
        &'a self,
        script: &'static Script,
        at: &'a PartitionNames,
        heard: impl Iterator<Item = u64>,
        restores: bool,
        node: NodeId,
    ) -> ScriptCall<'a> {
        let newest = heard.max().unwrap_or_default();
        let mut call = self.call(script, at);
        call.arg(newest).arg(i32::from(restores)).arg(node.as_bytes());
        call
    }
}

/// The number by which pages of the history turn: that of the last canary, or the time of a reading or a check without
/// one. Both are ms of the server's clock.
fn number(at: Position, stamp: ServerTime) -> u64 {
    if at.canary > 0 { at.canary } else { stamp.ms() }
}

fn add_judged(call: &mut ScriptCall<'_>, one: &CheckResult) {
    let (what, arming, number) = match &one.deed {
        CheckAction::Forget => ("forget", &[][..], 0),
        CheckAction::Fire { arming, flags } => ("fire", &arming.as_bytes()[..], (*flags).into()),
        CheckAction::Again { at } => ("again", &[][..], *at),
    };
    call.arg(what).arg(&one.watch.key[..]).arg(&one.watch.head[..]).arg(one.at.canary).arg(one.at.count);
    call.arg(one.stamp.0).arg(arming).arg(number);
    if one.at.node.is_named() {
        let before = one.before.unwrap_or_default();
        call.arg(before.canary).arg(before.count);
    }
}

/// Puts what was answered of some back to their places among all.
pub(super) fn scatter<T>(all: &mut [T], places: &[usize], some: Vec<T>) {
    for (place, one) in places.iter().zip(some) {
        all[*place] = one;
    }
}

/// The places of those of each server, in their order, as many as go in one call.
pub(super) fn by_node<T>(
    all: &[T],
    arguments: usize,
    node: impl Fn(&T) -> NodeId,
) -> Vec<(NodeId, Vec<usize>)> {
    let mut groups: Vec<(NodeId, Vec<usize>)> = Vec::new();
    for (place, one) in all.iter().enumerate() {
        let node = node(one);
        let has_room =
            |(other, places): &&mut (NodeId, Vec<usize>)| *other == node && places.len() < most(arguments);
        match groups.iter_mut().find(has_room) {
            Some((_, places)) => places.push(place),
            None => groups.push((node, vec![place])),
        }
    }
    groups
}

/// The length of a server's name stands in the first byte of a watch, with this, where it has one.
const NAMED: u8 = 128;

fn read_watch(key: Bytes, head: Bytes) -> Option<TrackedKey> {
    let mut rest = head.clone();
    let named = head.first()?.checked_sub(NAMED).map(usize::from);
    let deadline = rest.try_get_u64().ok()? & if named.is_some() { u64::MAX >> 8 } else { u64::MAX };
    let (canary, count) = (rest.try_get_u64().ok()?, rest.try_get_u32().ok()?);
    let (mut node, mut answered) = (NodeId::NONE, false);
    if let Some(size) = named {
        let _stamp = rest.try_get_u64().ok()?;
        answered = rest.try_get_u8().ok()? > 0;
        let _written = rest.try_get_u64().ok()?;
        node = NodeId::new(rest.get(..size)?)?;
    }
    Some(TrackedKey {
        key,
        head,
        deadline,
        at: Position { node, canary, count },
        announced_elsewhere: answered,
    })
}
