//! Pages of a topic's entries over all partitions, sorted by time, and the cursors between them.

use std::collections::VecDeque;
use std::fmt;
use std::str::FromStr;
use std::time::SystemTime;

use bytes::Bytes;

use crate::entry::{Entry, EntryState, HEADS, read, read_letter, read_tracked_key};
use crate::error::{Error, ErrorKind, Result};
use crate::time::{ServerTime, system_time};
use crate::wire::PAGE_BYTES;
use crate::wire::{ListTarget, MAX_BATCH, PageCall, PageFrom, PageMember, PageOf};
use crate::{Filter, TopicHandle, text};
use keylapse::limits::MAX_PAYLOAD;

const MAX_PAGE: usize = MAX_BATCH;
/// A request of this size is not made smaller after its answer was lost.
const MIN_REQUEST_BYTES: usize = 1 << 10;
/// How many entries one call reads. Each costs the server about 5 µs.
const MAX_CHUNK: usize = 250;
/// How many entries are examined for one page if a filter excludes most of them.
const MAX_EXAMINED_ENTRIES: usize = 20_000;
/// How many states of running attempts one step scans, approximately.
const RUNNING_SCAN_BATCH: usize = 250;

/// A page of entries.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Page {
    /// The server's time.
    pub now: SystemTime,
    /// The entries, sorted by time.
    pub entries: Vec<Entry>,
    /// The position of the next page, or `None` after the last one. A page that is not the last can be empty, because at
    /// most 20,000 entries are examined for one page.
    pub next: Option<Cursor>,
    /// The number of entries that were examined.
    pub looked_at: usize,
}

#[derive(Clone, Debug)]
struct ListingQuery<'a> {
    state: EntryState,
    filter: &'a Filter,
    count: usize,
    /// How many bytes of each payload are read.
    payload: Option<usize>,
}

impl TopicHandle {
    /// Returns a page of the topic's entries in a state, sorted by time, from the end of an earlier page.
    ///
    /// A page has up to `count` entries, at most 1,000. A page of running timers can have about 250 more, and these pages
    /// have no order among themselves. The work for a page is bounded, and no keys of other programs are read. An entry that
    /// moves between two calls can appear twice or not at all. All others appear once.
    ///
    /// # Errors
    /// Returns an error if a server cannot be reached or refuses the command.
    pub async fn page(&self, state: EntryState, after: Option<&Cursor>, count: usize) -> Result<Page> {
        self.filtered(state, &Filter::default(), after, count, None).await
    }

    /// Returns a page of the entries that match a filter, as [`page`](Self::page) does, with up to `payload` bytes of each
    /// payload.
    ///
    /// # Errors
    /// Returns the errors of [`page`](Self::page).
    pub async fn filtered(
        &self,
        state: EntryState,
        filter: &Filter,
        after: Option<&Cursor>,
        count: usize,
        payload: Option<usize>,
    ) -> Result<Page> {
        let wanted = ListingQuery { state, filter, count: count.clamp(1, MAX_PAGE), payload };
        match state {
            EntryState::Running => running(self, &wanted, after).await,
            _ => Merge::new(self, &wanted, after).page().await,
        }
    }
}

/// The entries of one partition that were read ahead.
struct PartitionBuffer {
    from: PageFrom,
    /// Members that were read but not yet merged.
    read: VecDeque<PageMember>,
    more: bool,
}

/// Merges the entries of all partitions by time.
struct Merge<'a> {
    topic: &'a TopicHandle,
    wanted: &'a ListingQuery<'a>,
    parts: Vec<PartitionBuffer>,
    /// How many members one request reads from each partition.
    chunk: usize,
    /// How many bytes one request reads from all partitions.
    bytes: usize,
    now: ServerTime,
    last: Option<Cursor>,
}

impl<'a> Merge<'a> {
    fn new(topic: &'a TopicHandle, wanted: &'a ListingQuery<'a>, after: Option<&Cursor>) -> Self {
        let part = |at: u32| PartitionBuffer {
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
            if entries.len() >= self.wanted.count || looked_at >= MAX_EXAMINED_ENTRIES {
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

    /// Reads more members of all partitions whose buffer is empty.
    async fn fill(&mut self) -> Result<()> {
        loop {
            let empty: Vec<_> = self.parts.iter().enumerate().filter(|(_, part)| part.is_empty()).collect();
            if empty.is_empty() {
                return Ok(());
            }
            // In an attached topic, up to 64 bytes before the value describe it.
            let keep = HEADS + self.wanted.payload.map_or(0, |most| most.min(MAX_PAYLOAD) + 64);
            let of = self.index();
            let (count, bytes) = (self.chunk, (self.bytes / empty.len()).max(1));
            let call = |part: &PartitionBuffer| PageCall { of, from: part.from.clone(), count, keep, bytes };
            let calls: Vec<_> = empty
                .iter()
                .map(|(at, part)| (self.topic.partition_names()[*at].clone(), call(part)))
                .collect();
            let places: Vec<_> = empty.iter().map(|(at, _)| *at).collect();
            let pages: Result<Vec<_>> = self.topic.console.store().pages(&calls).await.into_iter().collect();
            let pages = match pages {
                // The answer may have been too large for the server to send.
                Err(error)
                    if error.maybe_done()
                        && error.kind() != ErrorKind::Timeout
                        && self.bytes > MIN_REQUEST_BYTES =>
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

    /// Removes and returns the earliest member of all buffers.
    fn take(&mut self) -> Option<(u32, PageMember)> {
        let heads =
            self.parts.iter().enumerate().filter_map(|(at, part)| Some((part.read.front()?.score, at)));
        let (_, at) = heads.min_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)))?;
        let member = self.parts[at].read.pop_front()?;
        Some((u32::try_from(at).ok()?, member))
    }

    fn index(&self) -> PageOf {
        match self.wanted.state {
            // `running` makes the pages of running timers.
            EntryState::Waiting | EntryState::Running => PageOf::Due,
            EntryState::Quarantined => PageOf::Quarantine,
            EntryState::Dead => PageOf::Dead,
            EntryState::Tracked => PageOf::Checks,
        }
    }

    fn entry(&self, partition: u32, member: PageMember) -> Option<Entry> {
        let ListingQuery { state, filter, payload, .. } = *self.wanted;
        let entry = match state {
            EntryState::Dead => read_letter(self.topic, partition, member, payload)?,
            EntryState::Tracked => read_tracked_key(self.topic, partition, member),
            EntryState::Quarantined => Entry { state, ..read(self.topic, partition, member, payload) },
            EntryState::Waiting | EntryState::Running => {
                read(self.topic, partition, member, payload).judged_at(self.now.ms())
            }
        };
        (entry.state == state && filter.passes(&entry, self.now.ms())).then_some(entry)
    }
}

impl PartitionBuffer {
    fn is_empty(&self) -> bool {
        self.more && self.read.is_empty()
    }
}

/// The position at which a page ends and the next one begins. Its text has the form `<ms>.<fraction>@<partition>/<name>`.
///
/// Entries of a topic are sorted by time, then by partition, then by name.
#[derive(Clone, Debug, PartialEq)]
pub struct Cursor {
    score: f64,
    partition: u32,
    name: Bytes,
}

impl Cursor {
    /// Returns the position after an entry. Running timers have none, because their pages follow the order of `HSCAN`.
    pub(super) fn behind(entry: &Entry) -> Option<Self> {
        let Entry { score, partition, ref name, state, .. } = *entry;
        (state != EntryState::Running).then(|| Self { score, partition, name: name.clone() })
    }

    /// Returns the position in a partition from which its next entries follow.
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
            let text = crate::escape::excerpt(text.as_bytes());
            Error::invalid(format!("invalid cursor {text}: copy it as it was printed"))
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

/// Returns a page of running timers, sorted by time. The pages have no order among themselves.
///
/// It scans the states instead of the index. The index sorts running timers by the end of their lease, among all timers
/// that are due soon. Finding them there could mean reading many others. Only timers that were claimed have a state.
async fn running(topic: &TopicHandle, wanted: &ListingQuery<'_>, after: Option<&Cursor>) -> Result<Page> {
    let (mut partition, mut cursor) = after.map_or((0, 0), place);
    let (mut entries, mut looked_at, mut now) = (Vec::new(), 0, ServerTime::default());
    while partition < topic.partition_names().len()
        && entries.len() < wanted.count
        && looked_at < MAX_EXAMINED_ENTRIES
    {
        let at = &topic.partition_names()[partition];
        let store = topic.console.store();
        let step = |_| store.names_in(at, ListTarget::Running, cursor, RUNNING_SCAN_BATCH);
        let (next, names) = topic.console.retry_until_answered(step).await?;
        looked_at += RUNNING_SCAN_BATCH;
        for (key, look) in names.iter().zip(store.get_timers(at, &names).await) {
            let Some(look) = look? else { continue };
            now = now.max(look.stamp);
            let entry = topic.entry_of(key, look, wanted.payload);
            entries.extend(Some(entry).filter(|entry| is_wanted(entry, wanted, now)));
        }
        (partition, cursor) = if next == 0 { (partition + 1, 0) } else { (partition, next) };
    }
    entries.sort_by(|a, b| a.at_ms.cmp(&b.at_ms).then_with(|| a.key.cmp(&b.key)));
    let next = (partition < topic.partition_names().len()).then(|| behind(partition, cursor));
    Ok(Page { now: system_time(now.ms()), entries, next, looked_at })
}

/// Returns whether a running timer belongs on the page. Timers in quarantine appear only on the pages of the quarantine.
fn is_wanted(entry: &Entry, wanted: &ListingQuery<'_>, now: ServerTime) -> bool {
    entry.state == EntryState::Running && wanted.filter.passes(entry, now.ms())
}

/// Returns a cursor that has the server's scan cursor in place of the time. An `f64` represents it exactly, because it is
/// smaller than the size of the server's table.
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
    fn invalid_cursors_are_refused() {
        for bad in ["", "1", "1@", "1@0", "x@0/a", "NaN@0/a", "inf@0/a", "1@1024/a", "1@-1/a", "1@0/\\q"] {
            assert!(bad.parse::<Cursor>().is_err(), "{bad}");
        }
    }
}
