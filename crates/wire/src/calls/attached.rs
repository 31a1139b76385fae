//! Calls of attached topics: policies, deadlines of keys, checks and duties.

use bytes::{Buf, Bytes};
use keylapse_connection::pipe;

use super::expiries::{NodeId, Position};
use crate::error::Result;
use crate::id::{ArmingId, SlotId};
use crate::policy::Policy;
use crate::run::ScriptCall;
use crate::scripts::{self, Script};
use crate::time::ServerTime;
use crate::{PartitionNames, Store, items_per_call};

/// The maximum number of arguments of each key in a call: those of a server with a name.
const TRACK_ARGUMENTS: usize = 7;
const CHECK_ARGUMENTS: usize = 10;

/// The deadline of a key, as it was read.
#[derive(Clone, Debug)]
pub struct DeadlineReading {
    /// The key.
    pub key: Bytes,
    /// The deadline, in ms since 1970; 0 if the key has none, or is deleted.
    pub deadline: u64,
    /// The position of the reading in the event stream.
    pub at: Position,
    /// When the key was read, by the clock of its server.
    pub stamp: ServerTime,
    /// The last known time of the partition's server before the key was requested. It is used where servers have names.
    pub requested_at: ServerTime,
    /// A copy of the value in the format of read_keys.lua; empty if none was requested.
    pub copy: Bytes,
}

/// The result of tracking a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TrackResult {
    /// Redis has a later reading or event of the key, or the order is not known. Read the key again.
    Stale,
    /// The key is tracked now.
    New,
    /// The key was tracked already.
    Known,
    /// The topic already tracks as many keys as it may.
    Full,
    /// The key is tracked, and a copy of its value is wanted.
    CopyWanted,
    /// keylapse itself has written the key back.
    WrittenBack,
    /// The key is no longer tracked.
    Forgotten,
}

/// A tracked key, without the copy of its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrackedKey {
    /// The key.
    pub key: Bytes,
    /// The head of its entry in Redis, which a [`CheckResult`] must name.
    pub head: Bytes,
    /// The deadline, in ms since 1970.
    pub deadline: u64,
    /// The position in the event stream at which the deadline was read.
    pub at: Position,
    /// True if another server has announced an expiry of the key since.
    pub announced_elsewhere: bool,
}

/// The duty of a listener for an attached topic, in addition to receiving expiries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Duty {
    /// Other listeners have the duties.
    #[default]
    None,
    /// Track keys when their writes are announced.
    Track,
    /// Scan the database, and track keys when their writes are announced.
    Scan,
}

/// The contents of a partition of an attached topic, in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AttachedHoldings {
    /// The number of tracked keys.
    pub tracked: u64,
    /// When the next check is due, in ms since 1970.
    pub next_check: Option<u64>,
    /// The number of keys with a history of expiries, in both hashes.
    pub histories: u64,
    /// The number of lapses that have not ended.
    pub lapses: u64,
}

/// Keys whose checks are due.
#[derive(Clone, Debug)]
pub struct DueChecks {
    /// The server's time.
    pub stamp: ServerTime,
    /// When the next check is due, in ms since 1970.
    pub next: Option<u64>,
    /// The keys.
    pub watches: Vec<TrackedKey>,
    /// When another listener last took checks, in ms, if there are no keys.
    pub rival: Option<u64>,
}

/// The parameters of a call that takes checks.
#[derive(Clone, Copy, Debug)]
pub struct TakeChecks {
    /// The ID of the caller.
    pub slot: SlotId,
    /// The maximum number of keys, up to [`MAX_BATCH`](super::MAX_BATCH).
    pub limit: usize,
    /// How long no other listener can take these checks, in ms.
    pub hold_ms: u64,
    /// How long the checks must have been due, in ms.
    pub overdue_ms: u64,
}

/// The result of a check. It is applied only if the tracked key has not changed since.
#[derive(Clone, Debug)]
pub struct CheckResult {
    /// The key as it was checked.
    pub watch: TrackedKey,
    /// The position of the check in the event stream.
    pub at: Position,
    /// When the key was checked.
    pub stamp: ServerTime,
    /// The position of the server that `watch` names at that time, if it is another one and all its events were received.
    pub before: Option<Position>,
    /// The action to take.
    pub deed: CheckAction,
}

/// The action after a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckAction {
    /// Stop tracking the key.
    Forget,
    /// Make a lapse of the key, although no listener received its expiry.
    Fire {
        /// The arming of the lapse.
        arming: ArmingId,
        /// The reason, which becomes the first byte of its payload.
        flags: u8,
    },
    /// Check the key again.
    Again {
        /// When, in ms since 1970.
        at: u64,
    },
}

/// The policy that Redis holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredPolicy {
    /// The revision.
    pub revision: u32,
    /// The JSON text.
    pub text: Bytes,
}

impl Store {
    /// Sends the policy of a listener, and returns the policy of the topic, which is the one with the higher revision.
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

    /// Tracks keys with the deadlines that were read. Returns when the next check is due, in ms since 1970, and a result for
    /// each key. Sends one call for each server of the keys.
    pub async fn track_keys(
        &self,
        at: &PartitionNames,
        policy: &Policy,
        read: &[DeadlineReading],
    ) -> Result<(Option<u64>, Vec<TrackResult>)> {
        let (mut next, mut results) = (None, vec![TrackResult::Stale; read.len()]);
        for (node, places) in by_node(read, TRACK_ARGUMENTS, |one| one.at.node) {
            let some: Vec<&DeadlineReading> = places.iter().map(|place| &read[*place]).collect();
            let codes;
            (next, codes) = self.track_keys_of(at, policy, node, &some).await?;
            scatter(&mut results, &places, codes);
        }
        Ok((next, results))
    }

    async fn track_keys_of(
        &self,
        at: &PartitionNames,
        policy: &Policy,
        node: NodeId,
        read: &[&DeadlineReading],
    ) -> Result<(Option<u64>, Vec<TrackResult>)> {
        use TrackResult::{CopyWanted, Forgotten, Full, Known, New, Stale, WrittenBack};
        let numbers = read.iter().map(|one| rotation_number(one.at, one.stamp));
        let mut call = self.history_call(&scripts::TRACK_KEYS, at, numbers, policy.restores(), node);
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
        let watches = keys
            .each(|keys| read_tracked_key(keys.bytes()?, heads.bytes()?).ok_or_else(|| keys.unexpected()))?;
        Ok(DueChecks { stamp: reply.stamp, next, watches, rival: reply.maybe_int()? })
    }

    /// Applies the results of checks. Returns when the next check is due, in ms since 1970, and whether each result was
    /// applied. Sends one call for each server of the keys.
    pub async fn apply_checks(
        &self,
        at: &PartitionNames,
        policy: &Policy,
        all: &[CheckResult],
    ) -> Result<(Option<u64>, Vec<bool>)> {
        let (mut next, mut applied) = (None, vec![false; all.len()]);
        for (node, places) in by_node(all, CHECK_ARGUMENTS, |one| one.at.node) {
            let numbers = places.iter().map(|place| rotation_number(all[*place].at, all[*place].stamp));
            let mut call = self.history_call(&scripts::APPLY_CHECKS, at, numbers, policy.restores(), node);
            places.iter().for_each(|place| add_check(&mut call, &all[*place]));
            let mut reply = call.reply().await?;
            next = reply.maybe_int()?;
            scatter(&mut applied, &places, reply.codes(places.len(), &[false, true])?);
        }
        Ok((next, applied))
    }

    /// Takes or keeps a duty for `hold_ms`; 0 releases it. A `patient` caller receives no events. It takes only a duty that
    /// was free for `hold_ms`, and any caller that receives events can take it over.
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

    /// Records that a key that was written back until this deadline has expired, so that its announcement makes no lapse.
    /// Returns whether the announcement is still to come. A repeat returns false.
    pub async fn write_back_expired(&self, at: &PartitionNames, key: &[u8], deadline: u64) -> Result<bool> {
        let no_numbers = std::iter::empty();
        let mut call = self.history_call(&scripts::WRITE_BACK_EXPIRED, at, no_numbers, true, NodeId::NONE);
        Ok(call.arg(key).arg(deadline).reply().await?.int()? == 1)
    }

    /// Counts the contents of a partition of an attached topic. Writes nothing.
    pub async fn attached_holdings(&self, at: &PartitionNames) -> Result<AttachedHoldings> {
        let mut counts = pipe();
        for hash in ["tracked", "timers", "expiry_history", "expiry_history_old"] {
            counts.cmd("HLEN").arg(at.key(hash));
        }
        counts.cmd("ZRANGE").arg(at.key("checks")).arg(0).arg(0).arg("WITHSCORES");
        let mut reply = self.query_partition(at, "counting tracked keys", &counts).await?;
        let (tracked, lapses) = (reply.int()?, reply.int()?);
        let histories = reply.int()? + reply.int()?;
        Ok(AttachedHoldings { tracked, lapses, histories, next_check: reply.first_score()? })
    }

    /// Returns the entry of a tracked key, and when its check is due, in ms since 1970.
    pub async fn watch_of_key(&self, at: &PartitionNames, key: &[u8]) -> Result<Option<(Bytes, f64)>> {
        let mut fetch = pipe();
        fetch.cmd("HGET").arg(at.key("tracked")).arg(key);
        fetch.cmd("ZSCORE").arg(at.key("checks")).arg(key);
        let mut reply = self.query_partition(at, "looking for a tracked key", &fetch).await?;
        let (entry, score) = (reply.maybe_bytes()?, reply.maybe_float()?);
        Ok(entry.map(|entry| (entry, score.unwrap_or_default())))
    }

    /// Creates a call of a script that uses the expiry history, with the arguments that these scripts share. The highest of
    /// `numbers` rotates the history, see [`rotation_number`].
    pub(super) fn history_call<'a>(
        &'a self,
        script: &'static Script,
        at: &'a PartitionNames,
        numbers: impl Iterator<Item = u64>,
        restores: bool,
        node: NodeId,
    ) -> ScriptCall<'a> {
        let newest = numbers.max().unwrap_or_default();
        let mut call = self.call(script, at);
        call.arg(newest).arg(i32::from(restores)).arg(node.as_bytes());
        call
    }
}

/// Returns the number that rotates the expiry history: that of the last heartbeat key, or the time of a reading or check
/// without one. Both are in ms of the server's clock.
fn rotation_number(at: Position, stamp: ServerTime) -> u64 {
    if at.canary > 0 { at.canary } else { stamp.ms() }
}

fn add_check(call: &mut ScriptCall<'_>, one: &CheckResult) {
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

/// Writes the results of some items to their positions among all.
pub(super) fn scatter<T>(all: &mut [T], places: &[usize], some: Vec<T>) {
    for (place, one) in places.iter().zip(some) {
        all[*place] = one;
    }
}

/// Groups the positions of items by server, in order. Each group fits into one call.
pub(super) fn by_node<T>(
    all: &[T],
    arguments: usize,
    node: impl Fn(&T) -> NodeId,
) -> Vec<(NodeId, Vec<usize>)> {
    let mut groups: Vec<(NodeId, Vec<usize>)> = Vec::new();
    for (place, one) in all.iter().enumerate() {
        let node = node(one);
        let has_room = |(other, places): &&mut (NodeId, Vec<usize>)| {
            *other == node && places.len() < items_per_call(arguments)
        };
        match groups.iter_mut().find(has_room) {
            Some((_, places)) => places.push(place),
            None => groups.push((node, vec![place])),
        }
    }
    groups
}

/// In the first byte of a tracked key's entry, this is added to the length of the server's name, if it has one.
const NAMED: u8 = 128;

fn read_tracked_key(key: Bytes, head: Bytes) -> Option<TrackedKey> {
    let mut rest = head.clone();
    let named = head.first()?.checked_sub(NAMED).map(usize::from);
    let deadline = rest.try_get_u64().ok()? & if named.is_some() { u64::MAX >> 8 } else { u64::MAX };
    let (canary, count) = (rest.try_get_u64().ok()?, rest.try_get_u32().ok()?);
    let (mut node, mut announced_elsewhere) = (NodeId::NONE, false);
    if let Some(size) = named {
        let _stamp = rest.try_get_u64().ok()?;
        announced_elsewhere = rest.try_get_u8().ok()? > 0;
        let _written = rest.try_get_u64().ok()?;
        node = NodeId::new(rest.get(..size)?)?;
    }
    Some(TrackedKey { key, head, deadline, at: Position { node, canary, count }, announced_elsewhere })
}
