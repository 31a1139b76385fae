//! Each call of [`ForeignKeys`] as a script or a command.

use async_trait::async_trait;
use bytes::{Buf, Bytes};
use redis::{Cmd, Value, cmd};
use tokio::sync::mpsc;

use crate::wire::reply::Reply;
use crate::wire::scripts::Script;
use crate::wire::store::Store;
use crate::wire::scripts;
use crate::error::Result;
use crate::escape::glob;
use crate::id::SlotId;
use crate::wire::attached::{Capture, Deed, Enrolled, Enrolment, ForeignKeys, Found, Judged, Life, DueChecks, Next, Note, Noted, Position, Restored, TakeChecks, Treatment, Watch};
use crate::events::event::{EventStream, Prefixes};
use crate::wire::names::Partition;
use crate::time::ServerTime;

/// Touches that may wait for the connection.
const TOUCHES: usize = 1024;

#[async_trait]
impl ForeignKeys for Store {
    fn listen(&self, partitions: &[Partition], watched: &Prefixes) -> EventStream {
        let (touches, asked) = mpsc::channel(TOUCHES);
        EventStream { events: crate::events::open(self, partitions, watched, asked), touches }
    }

    async fn note(&self, at: &Partition, how: Treatment, notes: &[Note]) -> Result<Vec<Noted>> {
        let newest = notes.iter().filter_map(|note| note.at).map(|at| at.canary).max();
        let mut command = self.memory_script(&scripts::NOTE, at, newest, how.restores);
        command.arg(if how.unenrolled { "fire" } else { "ignore" });
        for note in notes {
            let at = note.at.unwrap_or_default();
            command.arg(&note.key[..]).arg(at.canary).arg(at.count).arg(note.arming.as_bytes());
        }
        let mut reply = self.run_at(&scripts::NOTE, at, &command).await?;
        reply.stamp()?;
        read_all(reply, notes.len(), |code| {
            Some(match code {
                0 => Noted::Known,
                1 => Noted::Lapse,
                2 => Noted::Recovered,
                3 => Noted::Ignored,
                4 => Noted::Stale,
                5 => Noted::Returned,
                6 => Noted::Superseding,
                _ => return None,
            })
        })
    }

    async fn enrol(&self, at: &Partition, how: Treatment, read: &[Enrolment]) -> Result<Next<Vec<Enrolled>>> {
        let newest = read.iter().map(|one| one.at.canary).max();
        let mut command = self.memory_script(&scripts::ENROL, at, newest, how.restores);
        command.arg(how.cap).arg(how.reread_ms);
        for one in read {
            let (key, stamp) = (&one.key[..], one.stamp.0);
            command
                .arg(key)
                .arg(one.deadline)
                .arg(one.at.canary)
                .arg(one.at.count)
                .arg(stamp)
                .arg(&one.copy[..]);
        }
        let mut reply = self.run_at(&scripts::ENROL, at, &command).await?;
        reply.stamp()?;
        let next = reply.maybe_score()?;
        let value = read_all(reply, read.len(), |code| {
            Some(match code {
                0 => Enrolled::Stale,
                1 => Enrolled::New,
                2 => Enrolled::Known,
                3 => Enrolled::Full,
                4 => Enrolled::Wanted,
                5 => Enrolled::Ours,
                6 => Enrolled::Forgotten,
                _ => return None,
            })
        })?;
        Ok(Next { next, value })
    }

    async fn looks(&self, at: &Partition, take: TakeChecks) -> Result<DueChecks> {
        let keys = [&at.meta, &at.looks, &at.watch, &at.scanner].map(String::as_str);
        let mut command = self.partition_script(&scripts::CHECKS, at, &keys);
        command.arg(take.limit).arg(take.hold_ms).arg(take.overdue_ms).arg(take.slot.as_bytes());
        let mut reply = self.run_at(&scripts::CHECKS, at, &command).await?;
        let (stamp, next) = (reply.stamp()?, reply.maybe_score()?);
        let (mut keys, mut heads) = (reply.list()?, reply.list()?);
        let mut watches = Vec::with_capacity(keys.len());
        while !keys.is_empty() {
            let watch = read_watch(keys.bytes()?, heads.bytes()?);
            watches.push(watch.ok_or_else(|| keys.unexpected())?);
        }
        Ok(DueChecks { stamp, next, watches, rival: reply.int()? == 1 })
    }

    async fn judge(&self, at: &Partition, how: Treatment, all: &[Judged]) -> Result<Next<Vec<bool>>> {
        let newest = all.iter().map(|one| one.at.canary).max();
        let mut command = self.memory_script(&scripts::JUDGE, at, newest, how.restores);
        for one in all {
            add_judgement(&mut command, one);
        }
        let mut reply = self.run_at(&scripts::JUDGE, at, &command).await?;
        reply.stamp()?;
        let next = reply.maybe_score()?;
        Ok(Next { next, value: read_all(reply, all.len(), |code| Some(code == 1))? })
    }

    async fn keep(&self, at: &Partition, slot: SlotId, hold_ms: u64, patient: bool) -> Result<bool> {
        self.scanner(at, slot, "hold", hold_ms, patient).await
    }

    async fn leave(&self, at: &Partition, slot: SlotId) -> Result<()> {
        self.scanner(at, slot, "release", 0, false).await.map(drop)
    }

    async fn read(&self, keys: &[Bytes], capture: Capture) -> Result<(ServerTime, Vec<Found>)> {
        if keys.is_empty() {
            return Ok((ServerTime::default(), Vec::new()));
        }
        let command = touch_command(keys, capture);
        read_touched(self.run_on(&self.0.node, &scripts::TOUCH, &command).await?, keys.len())
    }

    async fn scan(&self, cursor: u64, prefix: &str, count: usize) -> Result<(u64, Vec<Bytes>)> {
        let mut scan = cmd("SCAN");
        scan.arg(cursor).arg("MATCH").arg(format!("{}*", glob(prefix))).arg("COUNT").arg(count);
        let mut reply = Reply::new("scan", self.0.node.call("scanning for keys", &scan).await?)?;
        let (cursor, mut page) = (reply.int()?, reply.list()?);
        let mut keys = Vec::with_capacity(page.len());
        while !page.is_empty() {
            keys.push(page.bytes()?);
        }
        Ok((cursor, keys))
    }

    async fn restore(&self, key: &[u8], deadline: u64, copy: &[u8]) -> Result<Restored> {
        let mut command = self.script(&scripts::WRITE_BACK, [key].into_iter());
        let (kind, value) = copy.split_first().map_or((0, copy), |(kind, value)| (*kind, value));
        command.arg(deadline).arg(if kind == 3 { "dump" } else { "string" }).arg(value);
        Ok(match self.run_on(&self.0.node, &scripts::WRITE_BACK, &command).await? {
            Value::Int(1) => Restored::Written,
            Value::Int(2) => Restored::Past,
            _ => Restored::Taken,
        })
    }

    async fn lend(&self, at: &Partition, key: &[u8], deadline: u64) -> Result<bool> {
        let mut command = self.memory_script(&scripts::RETURNED, at, None, true);
        command.arg(key).arg(deadline);
        let mut reply = self.run_at(&scripts::RETURNED, at, &command).await?;
        reply.stamp()?;
        Ok(reply.int()? == 1)
    }

    async fn enrolled(&self, at: &Partition) -> Result<u64> {
        let mut count = cmd("HLEN");
        count.arg(&at.watch);
        let count = self.0.node.call("counting enrolled keys", &count).await;
        Reply::new("enrolled", Value::Array(vec![self.named(at, count).await?]))?.int()
    }
}

impl Store {
    /// A script with a key's memory, and what each of these takes.
    fn memory_script(
        &self,
        script: &'static Script,
        at: &Partition,
        newest: Option<u64>,
        restores: bool,
    ) -> Cmd {
        let keys = [
            &at.meta, &at.due, &at.solo, &at.rec, &at.run, &at.next, &at.tomb, &at.past, &at.elder,
            &at.looks, &at.watch,
        ];
        let mut command = self.partition_script(script, at, &keys.map(String::as_str));
        command.arg(newest.unwrap_or_default()).arg(i32::from(restores));
        command
    }

    async fn scanner(
        &self,
        at: &Partition,
        slot: SlotId,
        what: &str,
        hold_ms: u64,
        patient: bool,
    ) -> Result<bool> {
        let mut command = self.partition_script(&scripts::SCANNER, at, &[&at.meta, &at.scanner]);
        command.arg(slot.as_bytes()).arg(what).arg(hold_ms).arg(i32::from(patient));
        let mut reply = self.run_at(&scripts::SCANNER, at, &command).await?;
        reply.stamp()?;
        Ok(reply.int()? == 1)
    }
}

fn add_judgement(command: &mut Cmd, one: &Judged) {
    let (what, arming, number) = match one.deed {
        Deed::Forget => ("forget", None, 0),
        Deed::Fire { arming, flags } => ("fire", Some(arming), flags.into()),
        Deed::Again { at } => ("again", None, at),
    };
    command.arg(what).arg(&one.watch.key[..]).arg(&one.watch.head[..]).arg(one.at.canary).arg(one.at.count);
    command
        .arg(one.stamp.0)
        .arg(arming.as_ref().map_or(&[][..], |arming| &arming.as_bytes()[..]))
        .arg(number);
}

/// The touch of keys, as it is sent on the connection of the subscription.
pub(crate) fn touch_command(keys: &[Bytes], capture: Capture) -> Cmd {
    let mut command = cmd("EVALSHA");
    command.arg(&scripts::TOUCH.sha).arg(keys.len());
    keys.iter().for_each(|key| {
        command.arg(&key[..]);
    });
    command.arg(capture.cap).arg(i32::from(capture.dumps));
    command
}

/// What touch.lua answers.
pub(crate) fn read_touched(answer: Value, count: usize) -> Result<(ServerTime, Vec<Found>)> {
    let mut reply = Reply::new("touch", answer)?;
    let stamp = reply.stamp()?;
    let mut found = Vec::with_capacity(count);
    while !reply.is_empty() {
        let life = match reply.signed()? {
            -2 => Life::Gone,
            deadline => u64::try_from(deadline).map_or(Life::Lasting, Life::Until),
        };
        found.push(Found { life, copy: reply.bytes()? });
    }
    if found.len() != count {
        return Err(reply.unexpected());
    }
    Ok((stamp, found))
}

fn read_watch(key: Bytes, head: Bytes) -> Option<Watch> {
    let mut numbers = head.clone();
    if numbers.len() < 20 {
        return None;
    }
    let deadline = numbers.get_u64();
    let at = Position { canary: numbers.get_u64(), count: numbers.get_u32() };
    Some(Watch { key, head, deadline, at })
}

fn read_all<T>(mut reply: Reply, count: usize, read: impl Fn(u64) -> Option<T>) -> Result<Vec<T>> {
    let mut out = Vec::with_capacity(count);
    while !reply.is_empty() {
        out.push(read(reply.int()?).ok_or_else(|| reply.unexpected())?);
    }
    if out.len() != count {
        return Err(reply.unexpected());
    }
    Ok(out)
}
