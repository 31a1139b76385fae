//! Reads the contents of partitions: in numbers, page by page, and single timers.

use std::time::Duration;

use bytes::Bytes;
use keylapse_connection::{Value, pipe};

use crate::error::Result;
use crate::escape::glob_ending;
use crate::run::ScriptCall;
use crate::time::{ServerTime, ms_ceil};
use crate::{MAX_BATCH, NAMES, PartitionNames, Reply, Store, scripts};

/// The contents of a partition, in numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartitionOverview {
    /// The server's time.
    pub stamp: ServerTime,
    /// The version field of `meta`: the wire version, or `destroying` or `repartitioning`. `None` without `meta`.
    pub version: Option<String>,
    /// The number of partitions in `meta`.
    pub of: Option<u64>,
    /// Why the partition is paused, if it is.
    pub paused: Option<String>,
    /// The number of dead letters that were trimmed.
    pub trimmed: u64,
    /// When a dead letter was last trimmed, in ms.
    pub trimmed_at: Option<u64>,
    /// The number of timers that wait or run, without those in quarantine.
    pub due: u64,
    /// The number of timers in quarantine.
    pub quarantined: u64,
    /// The number of dead letters.
    pub dead: u64,
    /// The number of tracked keys.
    pub tracked: u64,
    /// The earliest score of both indexes, in ms.
    pub first: Option<u64>,
    /// The number of timers outside of quarantine whose deadline, or whose lease, has passed.
    pub overdue: u64,
    /// For each requested span, the number of timers outside of quarantine whose deadline, or whose lease, is before its end.
    pub within: [u64; 2],
    /// The number of timers whose first deadline has passed, without those that run for the first time.
    pub undelivered: u64,
    /// The oldest of these deadlines, in ms.
    pub oldest: Option<u64>,
}

impl Store {
    /// Reads the overview of each partition. A partition that does not answer has its own error.
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

/// All data of a timer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimerSnapshot {
    /// The server's time.
    pub stamp: ServerTime,
    /// When the timer next needs attention, in ms.
    pub score: Option<u64>,
    /// True if the timer is in quarantine.
    pub quarantined: bool,
    /// The record's bytes.
    pub record: Bytes,
    /// The state's bytes.
    pub state: Option<Bytes>,
    /// The record of the queued arming.
    pub next: Option<Bytes>,
}

impl Store {
    /// Reads one timer.
    pub async fn get_timer(&self, at: &PartitionNames, key: &[u8]) -> Result<Option<TimerSnapshot>> {
        TimerSnapshot::read(self.call(&scripts::GET_TIMER, at).arg(key).reply().await?)
    }

    /// Reads one timer, and does not create a missing partition.
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

    /// Reads several timers of an existing partition, in one request.
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

/// The rough limit of bytes that the pages of one request read on the server. A single record may have 8 MiB.
pub const PAGE_BYTES: usize = 1 << 20;

/// The index to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageOf {
    /// Timers outside of quarantine, by when they need attention.
    Due,
    /// Timers in quarantine, by when they need attention.
    Quarantine,
    /// Dead letters, by time of death.
    Dead,
    /// Tracked keys, by when their checks are due.
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

/// The start of a page.
#[derive(Clone, Debug, PartialEq)]
pub enum PageFrom {
    /// At this score.
    At(f64),
    /// At the next higher score.
    Behind(f64),
    /// After this member, which was read last and had this score.
    After(f64, Bytes),
}

/// The parameters of a page.
#[derive(Clone, Debug)]
pub struct PageCall {
    /// The index.
    pub of: PageOf,
    /// The start.
    pub from: PageFrom,
    /// The maximum number of members.
    pub count: usize,
    /// The maximum number of bytes of each record.
    pub keep: usize,
    /// The limit of bytes that are read in all. The record that reaches it is the last.
    pub bytes: usize,
}

/// A page of an index.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// The server's time.
    pub stamp: ServerTime,
    /// True if there may be more after this page.
    pub more: bool,
    /// The members, without those before the start.
    pub members: Vec<PageMember>,
    /// The score and the name of the last member, after which the next page starts.
    pub last: Option<(f64, Bytes)>,
}

/// A member of a page.
#[derive(Clone, Debug)]
pub struct PageMember {
    /// The key, or the name of a dead letter.
    pub name: Bytes,
    /// The score.
    pub score: f64,
    /// The record, dead letter or entry of a tracked key, possibly cut.
    pub what: Option<Bytes>,
    /// The uncut length of `what`.
    pub size: u64,
    /// The state of a timer, if it has one. A dead letter has its state in `what`.
    pub state: Option<Bytes>,
}

impl Store {
    /// Reads a page of each partition, in one request to each server.
    pub async fn pages(&self, calls: &[(PartitionNames, PageCall)]) -> Vec<Result<Page>> {
        let made: Vec<_> = calls.iter().map(|(at, call)| self.page_call(at, call)).collect();
        let answers = ScriptCall::run_all(&made).await.into_iter().zip(calls);
        answers.map(|(answer, (_, call))| read_page(answer?, &call.from)).collect()
    }

    /// Returns for each name whether any of these indexes and hashes has it.
    pub async fn holds(&self, at: &PartitionNames, places: &[&str], names: &[Bytes]) -> Result<Vec<bool>> {
        let mut ask = pipe();
        for (name, place) in names.iter().flat_map(|name| places.iter().map(move |place| (name, *place))) {
            let by = if is_zset(place) { "ZSCORE" } else { "HEXISTS" };
            ask.cmd(by).arg(at.key(place)).arg(&name[..]);
        }
        let mut reply = self.query_partition(at, "comparing indexes and records", &ask).await?;
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
        // If the last member is gone, the page starts with all members of its score, some of which were read before.
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

/// The number of names that a step of a search examines. A step takes the server less than a millisecond.
const NAMES_PER_STEP: usize = 500;

impl Store {
    /// Returns up to `count` members after a position, by time and then by their bytes, and whether there may be more.
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
        // Some members of the same millisecond were read before.
        let is_fresh = |(time, member): &(u64, Bytes)| {
            behind
                .is_none_or(|behind| ((*time, member) < behind) == newest_first && (*time, member) != behind)
        };
        let mut fresh: Vec<_> = found.into_iter().filter(is_fresh).collect();
        let more = is_cut_short || fresh.len() > count;
        fresh.truncate(count);
        Ok((fresh, more))
    }

    /// Returns the members whose name is `head` bytes and then this key, with the whole parts of their scores. The search
    /// stops after about `most` members. Also returns whether the whole index was searched.
    pub(super) async fn named_with(
        &self,
        doing: &'static str,
        at: &PartitionNames,
        (index, head): (&str, usize),
        key: &[u8],
        most: usize,
    ) -> Result<(Vec<(Bytes, u64)>, bool)> {
        let (pattern, mut found, mut cursor) = (glob_ending(key), Vec::new(), 0_u64);
        for _ in 0..most.div_ceil(NAMES_PER_STEP) {
            let mut scan = pipe();
            scan.cmd("ZSCAN").arg(at.key(index)).arg(cursor);
            scan.arg("MATCH").arg(&pattern).arg("COUNT").arg(NAMES_PER_STEP);
            let mut page = self.query_partition(at, doing, &scan).await?.list()?;
            cursor = page.int()?;
            let members = page.list()?.each(|reply: &mut Reply| Ok((reply.bytes()?, reply.int()?)))?;
            found.extend(members.into_iter().filter(|(name, _)| name.get(head..) == Some(key)));
            if cursor == 0 {
                break;
            }
        }
        // ZSCAN may return a member twice.
        found.sort_unstable();
        found.dedup();
        Ok((found, cursor == 0))
    }
}
