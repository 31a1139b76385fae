//! Reading what partitions hold: how much, page by page, one timer.

use std::time::Duration;

use bytes::Bytes;
use keylapse_connection::{Value, pipe};

use crate::error::Result;
use crate::escape::glob_ending;
use crate::run::ScriptCall;
use crate::time::{ServerTime, ms_ceil};
use crate::{MAX_BATCH, NAMES, PartitionNames, Reply, Store, scripts};

/// What a partition holds, in numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartitionOverview {
    /// The server's time.
    pub stamp: ServerTime,
    /// What stands in the place of the wire version: its number, what is being done to the topic, or nothing.
    pub version: Option<String>,
    /// The number of partitions that it says.
    pub of: Option<u64>,
    /// Why it is paused.
    pub paused: Option<String>,
    /// Dead letters trimmed.
    pub trimmed: u64,
    /// When the last of these was, in ms.
    pub trimmed_at: Option<u64>,
    /// Timers that wait or run, without those in quarantine.
    pub due: u64,
    /// Timers in quarantine.
    pub quarantined: u64,
    /// Dead letters.
    pub dead: u64,
    /// Keys that are enrolled.
    pub tracked: u64,
    /// When the first of all needs attention, in ms.
    pub first: Option<u64>,
    /// Timers whose time has come.
    pub overdue: u64,
    /// Timers whose time comes within each of the spans that were asked for.
    pub within: [u64; 2],
    /// Timers whose first deadline has passed and which have neither ended nor run for the first time.
    pub undelivered: u64,
    /// The oldest of these deadlines, in ms.
    pub oldest: Option<u64>,
}

impl Store {
    /// Counts, of each partition. One that does not answer is an error by itself.
    pub async fn overviews(
        &self,
        partitions: &[PartitionNames],
        ahead: [Duration; 2],
    ) -> Vec<Result<PartitionOverview>> {
        let call = |at| {
            let mut call = self.bare_call(&scripts::OVERVIEW, at);
            ahead.iter().for_each(|span| _ = call.arg(ms_ceil(*span)));
            call
        };
        let calls: Vec<_> = partitions.iter().map(call).collect();
        let read = |answer| PartitionOverview::read(Reply::new(scripts::OVERVIEW.name, answer?)?.stamped()?);
        ScriptCall::run_all(&calls).await.into_iter().map(read).collect()
    }
}

impl PartitionOverview {
    fn read(mut reply: Reply) -> Result<Self> {
        Ok(Self {
            stamp: reply.stamp,
            version: reply.maybe_text()?,
            of: reply.maybe_int()?,
            paused: reply.maybe_text()?,
            trimmed: reply.int()?,
            due: reply.int()?,
            quarantined: reply.int()?,
            dead: reply.int()?,
            tracked: reply.int()?,
            first: reply.maybe_int()?,
            overdue: reply.int()?,
            within: [reply.int()?, reply.int()?],
            undelivered: reply.int()?,
            oldest: reply.maybe_int()?,
            trimmed_at: reply.maybe_int()?,
        })
    }
}

/// Everything about a timer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimerSnapshot {
    /// The server's time.
    pub stamp: ServerTime,
    /// When the timer next needs attention, in ms.
    pub score: Option<u64>,
    /// Whether it waits in quarantine.
    pub quarantined: bool,
    /// The record's bytes.
    pub record: Bytes,
    /// The state's bytes.
    pub state: Option<Bytes>,
    /// The record of the arming kept for later.
    pub next: Option<Bytes>,
}

impl Store {
    /// Reads one timer.
    pub async fn get_timer(&self, at: &PartitionNames, key: &[u8]) -> Result<Option<TimerSnapshot>> {
        TimerSnapshot::read(self.call(&scripts::GET_TIMER, at).arg(key).reply().await?)
    }

    /// The same for who only looks: a partition that is not there has no timer, and is not made for it.
    pub async fn get_timer_without_init(
        &self,
        at: &PartitionNames,
        key: &[u8],
    ) -> Result<Option<TimerSnapshot>> {
        match self.call(&scripts::GET_TIMER, at).arg(key).reply_if_made().await? {
            Some(reply) => TimerSnapshot::read(reply),
            None => Ok(None),
        }
    }

    /// Reads several timers of a partition that is there, in one request.
    pub async fn get_timers(
        &self,
        at: &PartitionNames,
        keys: &[Bytes],
    ) -> Vec<Result<Option<TimerSnapshot>>> {
        let call = |key: &Bytes| {
            let mut call = self.call(&scripts::GET_TIMER, at);
            call.arg(&key[..]);
            call
        };
        let calls: Vec<_> = keys.iter().map(call).collect();
        let read = |answer| TimerSnapshot::read(Reply::new(scripts::GET_TIMER.name, answer?)?.stamped()?);
        ScriptCall::run_all(&calls).await.into_iter().map(read).collect()
    }
}

impl TimerSnapshot {
    fn read(mut reply: Reply) -> Result<Option<Self>> {
        let (due, quarantine) = (reply.maybe_int()?, reply.maybe_int()?);
        let (record, state, next) = (reply.maybe_bytes()?, reply.maybe_bytes()?, reply.maybe_bytes()?);
        Ok(record.map(|record| Self {
            stamp: reply.stamp,
            score: due.or(quarantine),
            quarantined: due.is_none() && quarantine.is_some(),
            record,
            state,
            next,
        }))
    }
}

/// Bytes that the pages of one request read on the server, roughly: a record may have 8 MiB.
pub const PAGE_BYTES: usize = 1 << 20;

/// Which index is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageOf {
    /// Timers, by when they need attention.
    Due,
    /// The same of those in quarantine.
    Quarantine,
    /// Dead letters, by when they died.
    Dead,
    /// Enrolled keys, by when they are looked at.
    Checks,
}

impl PageOf {
    fn as_str(self) -> &'static str {
        match self {
            Self::Due => "due",
            Self::Quarantine => "quarantine",
            Self::Dead => "dead",
            Self::Checks => "checks",
        }
    }
}

/// Where a page begins.
#[derive(Clone, Debug, PartialEq)]
pub enum PageFrom {
    /// With whoever has this score, or a higher one.
    At(f64),
    /// With the next higher score.
    Behind(f64),
    /// After the member that was read last, which had this score.
    After(f64, Bytes),
}

/// What is asked for.
#[derive(Clone, Debug)]
pub struct PageCall {
    /// The index.
    pub of: PageOf,
    /// Where it begins.
    pub from: PageFrom,
    /// How many members.
    pub count: usize,
    /// How many bytes of each record.
    pub keep: usize,
    /// How many bytes are read in all: the record that reaches it is the last.
    pub bytes: usize,
}

/// A page.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// The server's time.
    pub stamp: ServerTime,
    /// Whether there may be more behind it.
    pub more: bool,
    /// What stands on it; without those that come before the place where it was to begin.
    pub members: Vec<PageMember>,
    /// Where the next one begins.
    pub last: Option<(f64, Bytes)>,
}

/// One line of a page.
#[derive(Clone, Debug)]
pub struct PageMember {
    /// The key; of a letter its name.
    pub name: Bytes,
    /// The score.
    pub score: f64,
    /// Record, letter or watch, perhaps cut.
    pub what: Option<Bytes>,
    /// How long that is uncut.
    pub size: u64,
    /// The state, where it stands by itself.
    pub state: Option<Bytes>,
}

impl Store {
    /// Reads a page of each of these partitions, in one request to each server.
    pub async fn pages(&self, calls: &[(PartitionNames, PageCall)]) -> Vec<Result<Page>> {
        let made: Vec<_> = calls.iter().map(|(at, call)| self.page_call(at, call)).collect();
        let answers = ScriptCall::run_all(&made).await.into_iter().zip(calls);
        answers.map(|(answer, (_, call))| read_page(answer?, &call.from)).collect()
    }

    /// Whether each of these names stands in any of these places.
    pub async fn holds(&self, at: &PartitionNames, places: &[&str], names: &[Bytes]) -> Result<Vec<bool>> {
        let mut ask = pipe();
        for (name, place) in names.iter().flat_map(|name| places.iter().map(move |place| (name, *place))) {
            let by = if is_zset(place) { "ZSCORE" } else { "HEXISTS" };
            ask.cmd(by).arg(at.key(place)).arg(&name[..]);
        }
        let mut reply = self.query_partition(at, "comparing index and records", &ask).await?;
        let mut is_in = |place: &&str| -> Result<bool> {
            let found = reply.maybe_float()?;
            Ok(if is_zset(place) { found.is_some() } else { found == Some(1.0) })
        };
        let mut is_anywhere = |_| places.iter().try_fold(false, |any, place| Ok(is_in(place)? || any));
        names.iter().map(&mut is_anywhere).collect()
    }

    fn page_call<'a>(&'a self, at: &'a PartitionNames, call: &PageCall) -> ScriptCall<'a> {
        let (score, how, member) = match &call.from {
            PageFrom::At(score) => (score, "at", &[][..]),
            PageFrom::Behind(score) => (score, "behind", &[][..]),
            PageFrom::After(score, member) => (score, "after", &member[..]),
        };
        let mut made = self.bare_call(&scripts::PAGE, at);
        made.arg(call.of.as_str()).arg(score.to_string()).arg(how).arg(member);
        made.arg(call.count.clamp(1, MAX_BATCH)).arg(call.keep).arg(call.bytes);
        made
    }
}

fn read_page(answer: Value, from: &PageFrom) -> Result<Page> {
    let mut reply = Reply::new(scripts::PAGE.name, answer)?.stamped()?;
    let (stamp, more) = (reply.stamp, reply.int()? == 1);
    let mut members = reply.each(PageMember::read)?;
    let last = members.last().map(|last| (last.score, last.name.clone()));
    if let PageFrom::After(score, member) = from {
        // The member was gone, and this begins with its peers: some were read before it.
        members.retain(|one| one.score > *score || one.score == *score && one.name > *member);
    }
    Ok(Page { stamp, more, members, last })
}

impl PageMember {
    fn read(reply: &mut Reply) -> Result<Self> {
        Ok(Self {
            name: reply.bytes()?,
            score: reply.float()?,
            what: reply.maybe_bytes()?,
            size: reply.int()?,
            state: reply.maybe_bytes()?,
        })
    }
}

fn is_zset(place: &str) -> bool {
    NAMES.iter().any(|(name, kind)| *name == place && *kind == "zset")
}

/// Names that are gone through in a step, which takes the server less than a millisecond.
const STEP: usize = 500;

impl Store {
    /// Up to `count` members by time and then by their bytes, behind this place; and whether there may be more.
    pub(super) async fn by_time(
        &self,
        doing: &'static str,
        at: &PartitionNames,
        index: &str,
        behind: Option<(u64, &Bytes)>,
        count: usize,
        newest_first: bool,
    ) -> Result<(Vec<(u64, Bytes)>, bool)> {
        let key = at.key(index);
        let (mut from, mut passed) = (if newest_first { "+inf" } else { "-inf" }.to_owned(), 0);
        if let Some((time, _)) = behind {
            from = time.to_string();
            let mut same = pipe();
            same.cmd("ZCOUNT").arg(key).arg(&from).arg(&from);
            passed = self.query_partition(at, doing, &same).await?.int()?;
        }
        let limit = passed.saturating_add(count as u64).min(i64::MAX as u64);
        let mut range = pipe();
        match newest_first {
            true => range.cmd("ZRANGE").arg(key).arg(from).arg("-inf").arg("BYSCORE").arg("REV"),
            false => range.cmd("ZRANGEBYSCORE").arg(key).arg(from).arg("+inf"),
        };
        range.arg("WITHSCORES").arg("LIMIT").arg(0).arg(limit);
        let found = self.query_partition(at, doing, &range).await?.list()?.each(|reply| {
            let member = reply.bytes()?;
            Ok((reply.int()?, member))
        })?;
        let is_cut_short = found.len() as u64 == limit;
        // Of those of the same millisecond, some were read before.
        let is_fresh = |(time, member): &(u64, Bytes)| {
            behind
                .is_none_or(|behind| ((*time, member) < behind) == newest_first && (*time, member) != behind)
        };
        let mut fresh: Vec<_> = found.into_iter().filter(is_fresh).collect();
        let more = is_cut_short || fresh.len() > count;
        fresh.truncate(count);
        Ok((fresh, more))
    }

    /// Those behind `head` bytes of whose names nothing but this key stands, each with the whole part of its score; and
    /// whether all were gone through, which are no more than about so many.
    pub(super) async fn named_with(
        &self,
        doing: &'static str,
        at: &PartitionNames,
        (index, head): (&str, usize),
        key: &[u8],
        most: usize,
    ) -> Result<(Vec<(Bytes, u64)>, bool)> {
        let (pattern, mut found, mut cursor) = (glob_ending(key), Vec::new(), 0_u64);
        for _ in 0..most.div_ceil(STEP) {
            let mut scan = pipe();
            scan.cmd("ZSCAN").arg(at.key(index)).arg(cursor);
            scan.arg("MATCH").arg(&pattern).arg("COUNT").arg(STEP);
            let mut page = self.query_partition(at, doing, &scan).await?.list()?;
            cursor = page.int()?;
            let members = page.list()?.each(|reply: &mut Reply| Ok((reply.bytes()?, reply.int()?)))?;
            found.extend(members.into_iter().filter(|(name, _)| name.get(head..) == Some(key)));
            if cursor == 0 {
                break;
            }
        }
        // What is added or goes meanwhile may be named twice.
        found.sort_unstable();
        found.dedup();
        Ok((found, cursor == 0))
    }
}
