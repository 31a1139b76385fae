//! Each call of [`Store`] as a script or a pipeline.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use redis::{Cmd, Value, cmd, pipe};
use tokio::sync::mpsc;
use tracing::warn;

use crate::wire::reply::Reply;
use crate::wire::store::Store;
use crate::wire::scripts;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{ArmingId, SlotId};
use crate::wire::attached::ForeignKeys;
use crate::events::event::Prefixes;
use crate::wire::names;
use crate::wire::names::Partition;
use crate::wire::record::Record;
use crate::wire::types::{AckReply, Arm, ArmCode, ArmReply, Cancel, CancelCode, CancelReply, Claim, Claimed, ClaimedTimer, Durability, End, Followed, Heads, Held, Index, Letters, Look, RawLetter, Reached, ReplayReply, RescheduleReply, Scan, Settle, SettleReply, Stamped, RepairStep, Repaired, TopicEntry, Trigger, TriggerReply};
use crate::events::event::Event;
use crate::wire::Store;
use crate::time::{ServerTime, WireWhen};

#[async_trait]
impl Store for Store {
    async fn arm(&self, at: &Partition, call: Arm<'_>) -> Result<Stamped<Vec<ArmReply>>> {
        let reply = self.run_at(&scripts::ARM, at, &self.arm_command(at, call)).await?;
        read_armed(reply)
    }

    async fn arm_durably(
        &self,
        at: &Partition,
        call: Arm<'_>,
        ask: Durability,
    ) -> Result<(Stamped<Vec<ArmReply>>, Reached)> {
        // The wait speaks for its own connection only, so the arm goes there,
        // too; what may be missing is supplied beforehand.
        self.agree(at).await?;
        let command = self.arm_command(at, call);
        let armed = self.run_on(&self.0.waiting, &scripts::ARM, &command).await?;
        let armed = read_armed(Reply::new("arm", armed)?)?;
        let reached = self.0.waiting.call("waiting for replicas", &wait_command(ask)).await;
        Ok((armed, reached.map_or(NOWHERE, |answer| read_reached(&answer))))
    }

    async fn cancel(&self, at: &Partition, timers: &[Cancel], repeat: bool) -> Result<Vec<CancelReply>> {
        let keys = [&at.meta, &at.due, &at.solo, &at.rec, &at.run, &at.next, &at.tomb].map(String::as_str);
        let mut command = self.partition_script(&scripts::CANCEL, at, &keys);
        command.arg(i32::from(repeat));
        for timer in timers {
            command.arg(&timer.key[..]).arg(timer.id.as_bytes());
        }
        let mut reply = self.run_at(&scripts::CANCEL, at, &command).await?;
        reply.stamp()?;
        let mut out = Vec::with_capacity(timers.len());
        while !reply.is_empty() {
            let code = match reply.int()? {
                0 => CancelCode::NotArmed,
                1 => CancelCode::Cancelled,
                2 => CancelCode::InFlight,
                _ => return Err(reply.unexpected()),
            };
            out.push(CancelReply { code, deadline: reply.maybe_int()? });
        }
        Ok(out)
    }

    async fn reschedule(&self, at: &Partition, key: &[u8], when: WireWhen) -> Result<RescheduleReply> {
        let keys = [&at.meta, &at.due, &at.solo, &at.rec, &at.run].map(String::as_str);
        let mut command = self.partition_script(&scripts::RESCHEDULE, at, &keys);
        command.arg(key).arg(wire(when));
        let mut reply = self.run_at(&scripts::RESCHEDULE, at, &command).await?;
        reply.stamp()?;
        let (code, deadline, arming, attempt) = (reply.int()?, reply.int()?, reply.arming()?, reply.int()?);
        match (code, arming) {
            (0, _) => Ok(RescheduleReply::NotArmed),
            (1, Some(arming)) => {
                let attempt = u32::try_from(attempt).unwrap_or(u32::MAX);
                Ok(RescheduleReply::Rescheduled { deadline, arming, attempt })
            }
            (2, _) => Ok(RescheduleReply::InFlight),
            _ => Err(reply.unexpected()),
        }
    }

    async fn look(&self, at: &Partition, key: &[u8]) -> Result<Option<Look>> {
        let keys = [&at.meta, &at.due, &at.solo, &at.rec, &at.run, &at.next].map(String::as_str);
        let mut command = self.partition_script(&scripts::LOOK, at, &keys);
        command.arg(key);
        let mut reply = self.run_at(&scripts::LOOK, at, &command).await?;
        let stamp = reply.stamp()?;
        let (due, solo) = (reply.maybe_score()?, reply.maybe_score()?);
        let (record, state, next) = (reply.maybe_bytes()?, reply.maybe_bytes()?, reply.maybe_bytes()?);
        Ok(record.map(|record| Look {
            stamp,
            score: due.or(solo),
            suspect: due.is_none() && solo.is_some(),
            record,
            state,
            next,
        }))
    }

    async fn claim(&self, at: &Partition, call: Claim) -> Result<Claimed> {
        let reply = self.run_at(&scripts::CLAIM, at, &self.claim_command(at, call)).await?;
        read_claimed(reply)
    }

    async fn ack(&self, at: &Partition, held: &[Held]) -> Result<Stamped<AckReply>> {
        let keys = [&at.meta, &at.due, &at.solo, &at.rec, &at.run, &at.next, &at.tomb].map(String::as_str);
        let mut command = self.partition_script(&scripts::ACK, at, &keys);
        add_held(&mut command, held);
        let mut reply = self.run_at(&scripts::ACK, at, &command).await?;
        let stamp = reply.stamp()?;
        let gone = read_places(reply.list()?)?;
        let followed = read_followed(reply.list()?)?;
        Ok(Stamped { stamp, value: AckReply { gone, followed } })
    }

    async fn settle(&self, at: &Partition, letters: Letters, ends: &[Settle]) -> Result<Vec<SettleReply>> {
        let keys = [&at.meta, &at.due, &at.solo, &at.rec, &at.run, &at.next, &at.tomb, &at.dead, &at.grave];
        let mut command = self.partition_script(&scripts::SETTLE, at, &keys.map(String::as_str));
        add_letters(&mut command, letters);
        for end in ends {
            add_end(&mut command, end);
        }
        let mut reply = self.run_at(&scripts::SETTLE, at, &command).await?;
        reply.stamp()?;
        let mut out = Vec::with_capacity(ends.len());
        while !reply.is_empty() {
            out.push(read_settled(&mut reply)?);
        }
        Ok(out)
    }

    async fn renew(&self, at: &Partition, lease_ms: u64, held: &[Held]) -> Result<Vec<usize>> {
        let keys = [&at.meta, &at.due, &at.solo, &at.run].map(String::as_str);
        let mut command = self.partition_script(&scripts::RENEW, at, &keys);
        command.arg(lease_ms);
        add_held(&mut command, held);
        let mut reply = self.run_at(&scripts::RENEW, at, &command).await?;
        reply.stamp()?;
        read_places(reply.list()?)
    }

    async fn peek(&self, partitions: &[Partition]) -> Result<Stamped<Vec<Heads>>> {
        let (first, others) = partitions.split_at(partitions.len().min(PEEKED));
        let mut peeked = self.peek_at(first).await?;
        for some in others.chunks(PEEKED) {
            // The first stamp is the earliest, so it is true of all.
            peeked.value.extend(self.peek_at(some).await?.value);
        }
        Ok(peeked)
    }

    async fn pause(&self, at: &Partition, reason: Option<&str>) -> Result<Option<String>> {
        let mut command = self.partition_script(&scripts::PAUSE, at, &[&at.meta]);
        command.arg(reason.unwrap_or_default());
        let mut reply = self.run_at(&scripts::PAUSE, at, &command).await?;
        reply.stamp()?;
        reply.maybe_text()
    }

    async fn letters(&self, at: &Partition, skip: usize, count: usize) -> Result<Vec<RawLetter>> {
        if count == 0 {
            return Ok(Vec::new());
        }
        // Ranks are signed in Redis.
        let rank = |place: usize| i64::try_from(place).unwrap_or(i64::MAX);
        let mut range = cmd("ZRANGE");
        range.arg(&at.dead).arg(rank(skip)).arg(rank(skip.saturating_add(count - 1)));
        let ids = self.0.node.call("reading dead letters", &range).await;
        let mut reply = Reply::new("letters", self.named(at, ids).await?)?;
        let mut ids = Vec::new();
        while !reply.is_empty() {
            ids.push(reply.bytes()?);
        }
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let mut fetch = cmd("HMGET");
        fetch.arg(&at.grave);
        ids.iter().for_each(|id| {
            fetch.arg(&id[..]);
        });
        let letters = self.0.node.call("reading dead letters", &fetch).await;
        let mut reply = Reply::new("letters", self.named(at, letters).await?)?;
        let mut out = Vec::with_capacity(ids.len());
        for id in ids {
            // One that was dropped in between is simply not listed.
            if let Some(letter) = reply.maybe_bytes()? {
                out.push(RawLetter { id, letter });
            }
        }
        Ok(out)
    }

    async fn letter_counts(&self, at: &Partition) -> Result<(u64, u64)> {
        let mut counts = pipe();
        counts.cmd("ZCARD").arg(&at.dead);
        counts.cmd("HGET").arg(&at.meta).arg("trimmed");
        let answers = self.0.node.call_all("counting dead letters", &counts).await?;
        let mut reply = Reply::new("counting dead letters", Value::Array(answers))?;
        let kept = self.named(at, reply.int()).await?;
        let trimmed = self.named(at, reply.maybe_score()).await?;
        Ok((kept, trimmed.unwrap_or(0)))
    }

    async fn replay(&self, at: &Partition, letter: &[u8], arming: ArmingId) -> Result<ReplayReply> {
        let keys = [&at.meta, &at.due, &at.solo, &at.rec, &at.run, &at.dead, &at.grave].map(String::as_str);
        let mut command = self.partition_script(&scripts::REPLAY, at, &keys);
        command.arg(letter).arg(arming.as_bytes());
        let mut reply = self.run_at(&scripts::REPLAY, at, &command).await?;
        reply.stamp()?;
        match (reply.int()?, reply.int()?) {
            (0, _) => Ok(ReplayReply::NoLetter),
            (1, deadline) => Ok(ReplayReply::Replayed(deadline)),
            (2, _) => Ok(ReplayReply::Exists),
            (3, _) => Ok(ReplayReply::Unreadable),
            _ => Err(reply.unexpected()),
        }
    }

    async fn drop_letter(&self, at: &Partition, letter: &[u8]) -> Result<bool> {
        let mut both = pipe();
        both.atomic();
        both.cmd("ZREM").arg(&at.dead).arg(letter);
        both.cmd("HDEL").arg(&at.grave).arg(letter);
        let answers = self.0.node.call_all("dropping a dead letter", &both).await?;
        let mut reply = Reply::new("dropping a dead letter", Value::Array(answers))?;
        let mut both = self.named(at, reply.list()).await?;
        Ok(both.int()? == 1)
    }

    async fn tidy(&self, at: &Partition, step: RepairStep) -> Result<Repaired> {
        let keys = [&at.meta, &at.due, &at.solo, &at.rec, &at.run, &at.next, &at.tomb, &at.slots];
        let mut command = self.partition_script(&scripts::REPAIR, at, &keys.map(String::as_str));
        let what = match step.what {
            Scan::Records => "rec",
            Scan::States => "run",
            Scan::Next => "next",
            Scan::Lanes => "slots",
        };
        command.arg(what).arg(step.cursor).arg(step.count).arg(step.lease_ms);
        let mut reply = self.run_at(&scripts::REPAIR, at, &command).await?;
        reply.stamp()?;
        Ok(Repaired { cursor: reply.int()?, repaired: reply.int()? })
    }

    async fn set_triggers(&self, triggers: &[Trigger]) -> Result<Vec<TriggerReply>> {
        let mut command = self.script(&scripts::TRIGGER, triggers.iter().map(|trigger| &trigger.key[..]));
        for trigger in triggers {
            command.arg(trigger.deadline).arg(trigger.number()).arg(i32::from(trigger.moved));
        }
        let value = self.run_on(&self.0.node, &scripts::TRIGGER, &command).await?;
        let mut reply = Reply::new("trigger", value)?;
        let mut out = Vec::with_capacity(triggers.len());
        while !reply.is_empty() {
            out.push(match reply.int()? {
                1 => TriggerReply::Set,
                2 => TriggerReply::Past,
                _ => TriggerReply::Foreign,
            });
        }
        Ok(out)
    }

    async fn drop_trigger(&self, key: &[u8], deadline: u64) -> Result<bool> {
        let mut command = self.script(&scripts::UNTRIGGER, [key].into_iter());
        command.arg(deadline);
        let value = self.run_on(&self.0.node, &scripts::UNTRIGGER, &command).await?;
        Ok(value == Value::Int(1))
    }

    async fn touch(&self, keys: &[Bytes]) -> Result<()> {
        let mut exists = cmd("EXISTS");
        for key in keys {
            exists.arg(&key[..]);
        }
        self.0.node.call("touching", &exists).await?;
        Ok(())
    }

    async fn register(&self, topic: &TopicEntry, partitions: &[Partition]) -> Result<()> {
        for at in partitions {
            self.agree(at).await?;
        }
        match partitions.first() {
            Some(first) => self.list(&keys::registry(&first.namespace), topic).await,
            None => Ok(()),
        }
    }

    async fn check_settings(&self, manage_notifications: bool) -> Result<()> {
        Store::check_settings(self, manage_notifications).await
    }

    fn events(&self, partitions: &[Partition]) -> mpsc::Receiver<Event> {
        let (_, nothing_asked) = mpsc::channel(1);
        crate::events::open(self, partitions, &Prefixes::default(), nothing_asked)
    }

    fn foreign(&self) -> Option<Arc<dyn ForeignKeys>> {
        Some(Arc::new(self.clone()))
    }

    async fn close_lane(&self, at: &Partition, slot: SlotId) -> Result<()> {
        let mut forget = cmd("HDEL");
        forget.arg(&at.slots).arg(slot.as_bytes());
        self.0.node.call("closing a slot", &forget).await?;
        Ok(())
    }
}

impl Store {
    /// Lists a topic for others to find. Nothing is written where it stands
    /// already: a server that is full refuses writes, and has to be drained.
    async fn list(&self, registry: &str, topic: &TopicEntry) -> Result<()> {
        let entry = serde_json::to_string(topic).map_err(|error| {
            Error::new(ErrorKind::Invalid, format!("the topic cannot be registered: {error}"))
        })?;
        let doing = "registering the topic";
        let mut get = cmd("HGET");
        get.arg(registry).arg(&topic.name);
        match self.0.node.call(doing, &get).await {
            Ok(Value::BulkString(known)) if known == entry.as_bytes() => return Ok(()),
            Err(failed) if failed.error.kind() == ErrorKind::WrongType => {
                let error = failed.error.at_key(registry.as_bytes());
                warn!(%error, "the list of topics is for other programs to read; everything else works");
                return Ok(());
            }
            other => other?,
        };
        let mut set = cmd("HSET");
        set.arg(registry).arg(&topic.name).arg(entry);
        self.0.node.call(doing, &set).await?;
        Ok(())
    }

    async fn peek_at(&self, partitions: &[Partition]) -> Result<Stamped<Vec<Heads>>> {
        let indexes: Vec<_> = partitions.iter().flat_map(|at| [&*at.due, &*at.solo]).collect();
        let command = self.script(&scripts::PEEK, indexes.into_iter());
        let answer = self.run_on(&self.0.node, &scripts::PEEK, &command).await?;
        read_peeked(Reply::new("peek", answer)?)
    }

    fn arm_command(&self, at: &Partition, call: Arm<'_>) -> Cmd {
        let keys = [&at.meta, &at.due, &at.solo, &at.rec, &at.run, &at.next, &at.tomb].map(String::as_str);
        let mut command = self.partition_script(&scripts::ARM, at, &keys);
        command.arg(if call.only_if_absent { "absent" } else { "replace" }).arg(i32::from(call.repeat));
        for timer in call.timers {
            let head = Record::head(timer.arming);
            command.arg(&timer.key[..]).arg(wire(timer.when)).arg(&head).arg(&timer.payload[..]);
        }
        command
    }

    fn claim_command(&self, at: &Partition, call: Claim) -> Cmd {
        let keys = [
            &at.meta, &at.due, &at.solo, &at.rec, &at.run, &at.next, &at.tomb, &at.dead, &at.grave, &at.slots,
        ];
        let mut command = self.partition_script(&scripts::CLAIM, at, &keys.map(String::as_str));
        let index = match call.index {
            Index::Due => "due",
            Index::Solo => "solo",
        };
        command.arg(index).arg(call.slot.as_bytes()).arg(call.token.as_bytes());
        command.arg(i32::from(call.repeat)).arg(call.limit).arg(call.bytes);
        command.arg(call.lookahead_ms).arg(call.lease_ms);
        add_letters(&mut command, call.letters);
        command
    }
}

/// Partitions that one call peeks at.
const PEEKED: usize = 250;

const NOWHERE: Reached = Reached { replicas: 0, local_fsync: false };

fn wait_command(ask: Durability) -> Cmd {
    if ask.local_fsync {
        let mut wait = cmd("WAITAOF");
        wait.arg(1).arg(ask.replicas).arg(ask.within_ms);
        return wait;
    }
    let mut wait = cmd("WAIT");
    wait.arg(ask.replicas).arg(ask.within_ms);
    wait
}

fn read_reached(answer: &Value) -> Reached {
    let replicas = |n: &i64| u32::try_from(*n).unwrap_or(0);
    match answer {
        Value::Int(n) => Reached { replicas: replicas(n), local_fsync: false },
        Value::Array(both) => match &both[..] {
            [Value::Int(local), Value::Int(n)] => Reached { replicas: replicas(n), local_fsync: *local > 0 },
            _ => NOWHERE,
        },
        _ => NOWHERE,
    }
}

fn wire(when: WireWhen) -> String {
    match when {
        WireWhen::In(ms) => format!("+{ms}"),
        WireWhen::At(ms) => ms.to_string(),
    }
}

fn add_held(command: &mut Cmd, held: &[Held]) {
    for one in held {
        command.arg(&one.key[..]).arg(one.token.as_bytes());
    }
}

fn add_letters(command: &mut Cmd, letters: Letters) {
    let full = if letters.pause_when_full { "pause" } else { "trim" };
    command.arg(letters.count).arg(letters.age_ms).arg(full);
}

fn add_end(command: &mut Cmd, settle: &Settle) {
    let (what, delay, body) = match &settle.end {
        End::Retry { delay, attempt, snoozes, history } => {
            ("retry", *delay, waiting(*attempt, *snoozes, history))
        }
        End::Snooze { delay, attempt, snoozes, history } => {
            ("snooze", *delay, waiting(*attempt, *snoozes, history))
        }
        End::Again { delay, arming } => ("again", *delay, arming.as_bytes().to_vec()),
        End::Dead { reason, history } => ("dead", 0, [&[reason.code()], &history[..]].concat()),
        End::Release => ("release", 0, Vec::new()),
    };
    command.arg(what).arg(&settle.held.key[..]).arg(settle.held.token.as_bytes()).arg(delay).arg(body);
}

fn waiting(attempt: u32, snoozes: u16, history: &[u8]) -> Vec<u8> {
    [&attempt.to_be_bytes()[..], &snoozes.to_be_bytes(), history].concat()
}

pub(crate) fn read_armed(mut reply: Reply) -> Result<Stamped<Vec<ArmReply>>> {
    let stamp = reply.stamp()?;
    let mut armed = Vec::with_capacity(reply.len() / 2);
    while !reply.is_empty() {
        let code = match reply.int()? {
            0 => ArmCode::Armed,
            1 => ArmCode::Replaced,
            2 => ArmCode::AfterRunning,
            3 => ArmCode::Exists,
            4 => ArmCode::Superseded,
            _ => return Err(reply.unexpected()),
        };
        armed.push(ArmReply { code, deadline: reply.int()? });
    }
    Ok(Stamped { stamp, value: armed })
}

pub(crate) fn read_claimed(mut reply: Reply) -> Result<Claimed> {
    let stamp: ServerTime = reply.stamp()?;
    let heads = Heads { due: reply.maybe_score()?, solo: reply.maybe_score()? };
    let paused = reply.maybe_text()?;
    let (mut keys, mut records, mut states) = (reply.list()?, reply.list()?, reply.list()?);
    let mut timers = Vec::with_capacity(keys.len());
    while !keys.is_empty() {
        timers.push(ClaimedTimer {
            key: keys.bytes()?,
            record: records.bytes()?,
            state: states.maybe_bytes()?,
        });
    }
    Ok(Claimed {
        stamp,
        heads,
        paused,
        timers,
        orphans: reply.int()?,
        parked: reply.int()?,
        buried: reply.int()?,
        trimmed: reply.int()?,
        rival: reply.int()? == 1,
    })
}

/// Scripts count from one.
fn read_place(reply: &mut Reply) -> Result<usize> {
    usize::try_from(reply.int()?)
        .ok()
        .and_then(|place| place.checked_sub(1))
        .ok_or_else(|| reply.unexpected())
}

pub(crate) fn read_places(mut reply: Reply) -> Result<Vec<usize>> {
    let mut places = Vec::with_capacity(reply.len());
    while !reply.is_empty() {
        places.push(read_place(&mut reply)?);
    }
    Ok(places)
}

pub(crate) fn read_followed(mut reply: Reply) -> Result<Vec<Followed>> {
    let mut followed = Vec::with_capacity(reply.len() / 3);
    while !reply.is_empty() {
        let (place, deadline) = (read_place(&mut reply)?, reply.int()?);
        let arming = reply.arming()?.ok_or_else(|| reply.unexpected())?;
        followed.push(Followed { place, deadline, arming });
    }
    Ok(followed)
}

pub(crate) fn read_settled(reply: &mut Reply) -> Result<SettleReply> {
    let (code, deadline, arming) = (reply.int()?, reply.int()?, reply.arming()?);
    match (code, arming) {
        (0, _) => Ok(SettleReply::Gone),
        (1, arming) => Ok(SettleReply::Settled(arming.map(|arming| (deadline, arming)))),
        (2, Some(arming)) => Ok(SettleReply::GaveWay(deadline, arming)),
        _ => Err(reply.unexpected()),
    }
}

pub(crate) fn read_peeked(mut reply: Reply) -> Result<Stamped<Vec<Heads>>> {
    let stamp = reply.stamp()?;
    let mut value = Vec::with_capacity(reply.len() / 2);
    while !reply.is_empty() {
        value.push(Heads { due: reply.maybe_score()?, solo: reply.maybe_score()? });
    }
    Ok(Stamped { stamp, value })
}
