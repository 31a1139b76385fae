//! Pages of what a partition holds, in the order of time.

use bytes::Bytes;
use keylapse_connection::pipe;

use crate::error::Result;
use crate::run::Call;
use crate::time::ServerTime;
use crate::{MAX_BATCH, NAMES, PartitionNames, Reply, Store, scripts};

/// Bytes that the pages of one request read on the server, roughly: a record may have 8 MiB.
pub const PAGE_BYTES: usize = 1 << 20;

/// Bytes of a letter's name before its key: arming id and time of death.
pub const LETTER_NAME: usize = 16;

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
        let answers = Call::run_all(&made).await.into_iter().zip(calls);
        answers.map(|(answer, (_, call))| read(answer?, &call.from)).collect()
    }

    /// The letters of one key, each with its name and when it died, in ms.
    pub async fn letters_of_key(&self, at: &PartitionNames, key: &[u8]) -> Result<Vec<(Bytes, Bytes, u64)>> {
        const DOING: &str = "looking for dead letters";
        let (found, _) = self.named_with(DOING, at, ("dead", LETTER_NAME), key, usize::MAX).await?;
        if found.is_empty() {
            return Ok(Vec::new());
        }
        let mut fetch = pipe();
        found.iter().for_each(|(name, _)| _ = fetch.cmd("HGET").arg(at.key("letters")).arg(&name[..]));
        let letters = self.ask(at, DOING, &fetch).await?.each(Reply::maybe_bytes)?;
        let both = found.into_iter().zip(letters);
        Ok(both.filter_map(|((name, died), letter)| Some((name, letter?, died))).collect())
    }

    /// Whether each of these names stands in any of these places.
    pub async fn holds(&self, at: &PartitionNames, places: &[&str], names: &[Bytes]) -> Result<Vec<bool>> {
        let mut ask = pipe();
        for (name, place) in names.iter().flat_map(|name| places.iter().map(move |place| (name, *place))) {
            let by = if is_zset(place) { "ZSCORE" } else { "HEXISTS" };
            ask.cmd(by).arg(at.key(place)).arg(&name[..]);
        }
        let mut reply = self.ask(at, "comparing index and records", &ask).await?;
        let mut is_in = |place: &&str| -> Result<bool> {
            let found = reply.maybe_float()?;
            Ok(if is_zset(place) { found.is_some() } else { found == Some(1.0) })
        };
        let mut is_anywhere = |_| places.iter().try_fold(false, |any, place| Ok(is_in(place)? || any));
        names.iter().map(&mut is_anywhere).collect()
    }

    /// What is remembered of an attached topic's key that is to expire, and when it is looked at.
    pub async fn watch_of_key(&self, at: &PartitionNames, key: &[u8]) -> Result<Option<(Bytes, f64)>> {
        let mut fetch = pipe();
        fetch.cmd("HGET").arg(at.key("watch")).arg(key);
        fetch.cmd("ZSCORE").arg(at.key("checks")).arg(key);
        let mut reply = self.ask(at, "looking for an enrolled key", &fetch).await?;
        let (watch, score) = (reply.maybe_bytes()?, reply.maybe_float()?);
        Ok(watch.map(|watch| (watch, score.unwrap_or_default())))
    }

    fn page_call<'a>(&'a self, at: &'a PartitionNames, call: &PageCall) -> Call<'a> {
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

fn read(answer: keylapse_connection::Value, from: &PageFrom) -> Result<Page> {
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
