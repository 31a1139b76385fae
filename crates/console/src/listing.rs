//! Pages of a topic's entries, over all its partitions, by time; and where a page has ended.

use std::collections::VecDeque;
use std::fmt;
use std::str::FromStr;
use std::time::SystemTime;

use bytes::Bytes;

use crate::entry::{Entry, EntryState, HEADS, read, read_letter, read_watch};
use crate::error::{Error, ErrorKind, Result};
use crate::time::{ServerTime, system_time};
use crate::wire::PAGE_BYTES;
use crate::wire::{Listing, MAX_BATCH, PageCall, PageFrom, PageMember, PageOf};
use crate::{Filter, KnownTopic, text};
use keylapse::limits::MAX_PAYLOAD;

/// Entries that a page has at most.
const MAX_PAGE: usize = MAX_BATCH;
/// A request that reads so few bytes is not made smaller after a lost answer.
const LEAST: usize = 1 << 10;
/// Entries that one call reads: each costs the server about 5 µs.
const MAX_CHUNK: usize = 250;
/// Entries that are looked at for one page, at most, where a filter leaves most of them out.
const LOOKED_AT: usize = 20_000;
/// States of running attempts that one step goes through, roughly.
const STEP: usize = 250;

/// A page of entries.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Page {
    /// The server's time.
    pub now: SystemTime,
    /// The entries, by time.
    pub entries: Vec<Entry>,
    /// Where the next page begins; none at the end. A page may be empty and not the last: where a filter leaves much out,
    /// no more than 20,000 entries are looked at for one.
    pub next: Option<Cursor>,
    /// How many entries were looked at.
    pub looked_at: usize,
}

/// What is asked of a listing.
#[derive(Clone, Debug)]
struct Wanted<'a> {
    state: EntryState,
    filter: &'a Filter,
    count: usize,
    /// How much of the payloads.
    payload: Option<usize>,
}

impl KnownTopic {
    /// A page of the topic's entries in a state, by time, behind where another has ended. At most 1,000, and of running
    /// ones up to 250 more; pages of these come in no order.
    ///
    /// The work for a page is bounded, however much there is, and no keys of other programs are looked at. What moves
    /// meanwhile may be seen twice or not at all; all else is seen once.
    ///
    /// # Errors
    /// When a server cannot be reached or refuses.
    pub async fn page(&self, state: EntryState, after: Option<&Cursor>, count: usize) -> Result<Page> {
        self.filtered(state, &Filter::default(), after, count, None).await
    }

    /// The same of those that a filter lets pass, with up to so many bytes of their payloads.
    ///
    /// # Errors
    /// As for [`page`](Self::page).
    pub async fn filtered(
        &self,
        state: EntryState,
        filter: &Filter,
        after: Option<&Cursor>,
        count: usize,
        payload: Option<usize>,
    ) -> Result<Page> {
        let wanted = Wanted { state, filter, count: count.clamp(1, MAX_PAGE), payload };
        match state {
            EntryState::Running => running(self, &wanted, after).await,
            _ => Merge::new(self, &wanted, after).page().await,
        }
    }
}

/// One partition's part of a page.
struct Part {
    from: PageFrom,
    /// Read and not yet taken.
    read: VecDeque<PageMember>,
    more: bool,
}

/// Puts the parts of all partitions in order.
struct Merge<'a> {
    topic: &'a KnownTopic,
    wanted: &'a Wanted<'a>,
    parts: Vec<Part>,
    /// Members that one request reads of each partition.
    chunk: usize,
    /// Bytes that one request reads of all of them.
    bytes: usize,
    now: ServerTime,
    last: Option<Cursor>,
}

impl<'a> Merge<'a> {
    fn new(topic: &'a KnownTopic, wanted: &'a Wanted<'a>, after: Option<&Cursor>) -> Self {
        let part = |at: u32| Part {
            from: after.map_or(PageFrom::At(0.0), |after| after.place_in(at)),
            read: VecDeque::new(),
            more: true,
        };
        let parts: Vec<_> = (0..topic.partitions()).map(part).collect();
        let share = if wanted.filter.is_empty() { wanted.count.max(16) } else { MAX_CHUNK };
        let chunk = share.saturating_mul(2).div_ceil(parts.len() + 1).clamp(8, MAX_CHUNK);
        Self {
            topic,
            wanted,
            parts,
            chunk,
            bytes: PAGE_BYTES,
            now: ServerTime::default(),
            last: after.cloned(),
        }
    }

    async fn page(mut self) -> Result<Page> {
        let (mut entries, mut looked_at) = (Vec::new(), 0);
        let ended = loop {
            if entries.len() >= self.wanted.count || looked_at >= LOOKED_AT {
                break false;
            }
            self.fill().await?;
            let Some((partition, member)) = self.take() else { break true };
            looked_at += 1;
            let (score, name) = (member.score, member.name.clone());
            if let Some(entry) = self.entry(partition, member) {
                entries.push(entry);
            }
            self.last = Some(Cursor { score, partition, name });
        };
        let next = self.last.filter(|_| !ended);
        Ok(Page { now: system_time(self.now.ms()), entries, next, looked_at })
    }

    /// Reads on wherever nothing is left of what was read.
    async fn fill(&mut self) -> Result<()> {
        loop {
            let empty: Vec<_> = self.parts.iter().enumerate().filter(|(_, part)| part.is_empty()).collect();
            if empty.is_empty() {
                return Ok(());
            }
            // An attached topic's payload says before the value what kind it is.
            let keep = HEADS + self.wanted.payload.map_or(0, |most| most.min(MAX_PAYLOAD) + 64);
            let of = self.index();
            let (count, bytes) = (self.chunk, (self.bytes / empty.len()).max(1));
            let call = |part: &Part| PageCall { of, from: part.from.clone(), count, keep, bytes };
            let calls: Vec<_> =
                empty.iter().map(|(at, part)| (self.topic.parts()[*at].clone(), call(part))).collect();
            let places: Vec<_> = empty.iter().map(|(at, _)| *at).collect();
            let pages: Result<Vec<_>> = self.topic.console.store().pages(&calls).await.into_iter().collect();
            let pages = match pages {
                // The answer may have been too large for the server to send.
                Err(error)
                    if error.maybe_done() && error.kind() != ErrorKind::Timeout && self.bytes > LEAST =>
                {
                    self.bytes /= 4;
                    continue;
                }
                pages => pages?,
            };
            for (at, page) in places.into_iter().zip(pages) {
                self.now = self.now.max(page.stamp);
                let part = &mut self.parts[at];
                part.more = page.more;
                if let Some((score, name)) = page.last {
                    part.from = PageFrom::After(score, name);
                }
                part.read.extend(page.members);
            }
        }
    }

    /// The first of all that were read.
    fn take(&mut self) -> Option<(u32, PageMember)> {
        let heads =
            self.parts.iter().enumerate().filter_map(|(at, part)| Some((part.read.front()?.score, at)));
        let (_, at) = heads.min_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)))?;
        let member = self.parts[at].read.pop_front()?;
        Some((u32::try_from(at).ok()?, member))
    }

    fn index(&self) -> PageOf {
        match self.wanted.state {
            // Running ones have pages of their own.
            EntryState::Waiting | EntryState::Running => PageOf::Due,
            EntryState::Quarantined => PageOf::Quarantine,
            EntryState::Dead => PageOf::Dead,
            EntryState::Enrolled => PageOf::Checks,
        }
    }

    fn entry(&self, partition: u32, member: PageMember) -> Option<Entry> {
        let Wanted { state, filter, payload, .. } = *self.wanted;
        let entry = match state {
            EntryState::Dead => read_letter(self.topic, partition, member, payload)?,
            EntryState::Enrolled => read_watch(self.topic, partition, member),
            EntryState::Quarantined => Entry { state, ..read(self.topic, partition, member, payload) },
            EntryState::Waiting | EntryState::Running => {
                read(self.topic, partition, member, payload).judged_at(self.now.ms())
            }
        };
        (entry.state == state && filter.passes(&entry, self.now.ms())).then_some(entry)
    }
}

impl Part {
    fn is_empty(&self) -> bool {
        self.more && self.read.is_empty()
    }
}

/// Where a page has ended, and the next begins. As text it can be handed to anybody: `<ms>.<fraction>@<partition>/<name>`.
///
/// All that a topic holds has one order: by time, then by partition, then by name.
#[derive(Clone, Debug, PartialEq)]
pub struct Cursor {
    score: f64,
    partition: u32,
    name: Bytes,
}

impl Cursor {
    /// Behind an entry; none of running ones, whose pages are in the server's own order.
    pub(super) fn behind(entry: &Entry) -> Option<Self> {
        let Entry { score, partition, ref name, state, .. } = *entry;
        (state != EntryState::Running).then(|| Self { score, partition, name: name.clone() })
    }

    /// Where a partition's next entry is.
    fn place_in(&self, partition: u32) -> PageFrom {
        match partition.cmp(&self.partition) {
            std::cmp::Ordering::Less => PageFrom::Behind(self.score),
            std::cmp::Ordering::Equal => PageFrom::After(self.score, self.name.clone()),
            std::cmp::Ordering::Greater => PageFrom::At(self.score),
        }
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}/{}", self.score, self.partition, text::escape(&self.name))
    }
}

impl FromStr for Cursor {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        read_cursor(text).ok_or_else(|| {
            Error::invalid("this is no place at which a page has ended: take it as it was written")
        })
    }
}

fn read_cursor(text: &str) -> Option<Cursor> {
    let (score, rest) = text.split_once('@')?;
    let (partition, name) = rest.split_once('/')?;
    let score: f64 = score.parse().ok().filter(|score: &f64| score.is_finite())?;
    let partition = partition.parse().ok().filter(|partition| *partition < crate::wire::MAX_PARTITIONS)?;
    Some(Cursor { score, partition, name: text::unescape(name).ok()?.into() })
}

/// A page of the attempts that run. In the index they stand among what waits, by the ends of their leases, so that finding
/// them there could mean to go through all that is due soon. Only what was claimed has a state, and most of these run: the
/// states are gone through.
///
/// Its entries are by time; pages have no order.
async fn running(topic: &KnownTopic, wanted: &Wanted<'_>, after: Option<&Cursor>) -> Result<Page> {
    let (mut partition, mut cursor) = after.map_or((0, 0), place);
    let (mut entries, mut looked_at, mut now) = (Vec::new(), 0, ServerTime::default());
    while partition < topic.parts().len() && entries.len() < wanted.count && looked_at < LOOKED_AT {
        let at = &topic.parts()[partition];
        let store = topic.console.store();
        let step = |_| store.names_in(at, Listing::Running, cursor, STEP);
        let (next, names) = topic.console.persist(step).await?;
        looked_at += STEP;
        for (key, look) in names.iter().zip(store.looks(at, &names).await) {
            let Some(look) = look? else { continue };
            now = now.max(look.stamp);
            let entry = topic.entry_of(key, look, wanted.payload);
            entries.extend(Some(entry).filter(|entry| is_wanted(entry, wanted, now)));
        }
        (partition, cursor) = if next == 0 { (partition + 1, 0) } else { (partition, next) };
    }
    entries.sort_by(|a, b| a.at_ms.cmp(&b.at_ms).then_with(|| a.key.cmp(&b.key)));
    let next = (partition < topic.parts().len()).then(|| behind(partition, cursor));
    Ok(Page { now: system_time(now.ms()), entries, next, looked_at })
}

/// Those in quarantine run, too, and are listed there.
fn is_wanted(entry: &Entry, wanted: &Wanted<'_>, now: ServerTime) -> bool {
    entry.state == EntryState::Running && wanted.filter.passes(entry, now.ms())
}

/// The server's own cursor stands in the place of the time. It is below the size of a table, and so exact.
fn behind(partition: usize, cursor: u64) -> Cursor {
    Cursor {
        score: cursor as f64,
        partition: u32::try_from(partition).unwrap_or(u32::MAX),
        name: Bytes::new(),
    }
}

fn place(cursor: &Cursor) -> (usize, u64) {
    (cursor.partition as usize, cursor.score as u64)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_cursor_reads_back(score in 0.0..9e12, partition in 0..1024_u32, name: Vec<u8>) {
            let cursor = Cursor { score, partition, name: name.into() };
            prop_assert_eq!(cursor.to_string().parse::<Cursor>().unwrap(), cursor);
        }

        #[test]
        fn any_text_is_read_or_refused(text: String) {
            let _ = text.parse::<Cursor>();
        }
    }

    #[test]
    fn what_is_no_cursor_is_refused() {
        for bad in ["", "1", "1@", "1@0", "x@0/a", "NaN@0/a", "inf@0/a", "1@1024/a", "1@-1/a", "1@0/\\q"] {
            assert!(bad.parse::<Cursor>().is_err(), "{bad}");
        }
    }
}
