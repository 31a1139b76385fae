//! The journal, which keeps the ends of timers, and the tail, which publishes starts and ends while somebody watches.

use bytes::{Buf, Bytes};
use futures::future::join_all;
use keylapse_connection::pipe;

use crate::error::Result;
use crate::id::ArmingId;
use crate::lock::lock;
use crate::log::debug;
use crate::names::WIRE_VERSION;
use crate::{DeadReason, Ending, MAX_KEY, PartitionNames, Reply, Store, scripts};

/// The maximum number of partitions that are called at the same time.
const MAX_CONCURRENT_JOURNAL_CALLS: usize = 250;

/// The limits of the journal of each partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalBounds {
    /// The maximum number of entries; 0 keeps none, and removes all.
    pub count: u64,
    /// How long entries are kept, in ms.
    pub age_ms: u64,
}

impl Store {
    /// Sets the journal limits of partitions. They also apply to partitions that are created again later.
    pub async fn keep_journals(
        &self,
        topic: &str,
        bounds: JournalBounds,
        partitions: &[PartitionNames],
    ) -> Result<()> {
        lock(&self.0.journals).insert(topic.to_owned(), bounds);
        for some in partitions.chunks(MAX_CONCURRENT_JOURNAL_CALLS) {
            for result in join_all(some.iter().map(|at| self.keep_journal(at, bounds))).await {
                self.ignore_unavailable(topic, result.map(drop))?;
            }
        }
        Ok(())
    }

    /// Sets the journal limits of a partition. Returns whether they have changed.
    pub async fn keep_journal(&self, at: &PartitionNames, bounds: JournalBounds) -> Result<bool> {
        let mut call = self.call(&scripts::SET_JOURNAL_LIMITS, at);
        call.arg(bounds.count).arg(bounds.age_ms);
        Ok(call.reply().await?.int()? == 1)
    }

    /// Sets the journal limits of a partition that was just created, and of partition 0, which may be new, too.
    pub(crate) async fn restore_journal_limits(&self, at: &PartitionNames) {
        let Some(bounds) = lock(&self.0.journals).get(&at.topic).copied() else { return };
        if bounds.count == 0 {
            return;
        }
        let first = PartitionNames::new(&at.namespace, &at.topic, 0, at.partitions, at.attached);
        for made in [Some(at), (at.index != 0).then_some(&first)].into_iter().flatten() {
            let mut call =
                self.call_with(&scripts::SET_JOURNAL_LIMITS, &[made.key("meta"), made.key("journal")]);
            call.arg(WIRE_VERSION).arg(made.partitions).arg(&made.wake).arg(bounds.count).arg(bounds.age_ms);
            if let Err(error) = call.run_once().await {
                debug!(topic = %at.topic, %error, "a new partition keeps no journal");
            }
        }
    }
}

/// The length of an entry before its key: version, outcome, arming ID, first deadline, attempt.
const ENTRY_HEAD: usize = 22;
const VERSION: u8 = 1;
/// The maximum number of entries that are searched for a key.
const MAX_SCANNED_ENTRIES: usize = 200_000;
const READING: &str = "reading the journal";

/// The position of an entry among the others of a partition.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct JournalPosition {
    /// When the timer ended, in ms.
    pub ended: u64,
    /// The bytes of the entry.
    pub member: Bytes,
}

impl JournalPosition {
    /// Decodes the entry, with the first deadline. Returns `None` if a newer version or another program has written it.
    pub fn decode(&self) -> Option<TimerEvent> {
        let mut rest = self.member.clone();
        if rest.len() < ENTRY_HEAD || rest.get_u8() != VERSION {
            return None;
        }
        let (what, reason) = Ending::from_code(rest.get_u8()).filter(|(what, _)| !what.row().goes_on)?;
        let arming = known_id(&rest.split_to(8));
        let (at, attempt) = (rest.get_u64(), rest.get_u32());
        Some(TimerEvent { what, reason, attempt, arming, at, key: rest })
    }
}

/// Reads an ID. Zeros stand for an unknown one.
fn known_id(bytes: &[u8]) -> Option<ArmingId> {
    ArmingId::from_bytes(bytes).filter(|id| id.as_bytes() != &[0; 8])
}

impl Store {
    /// Returns the limits of a partition's journal, or `None` without a journal.
    pub async fn journal_bounds(&self, at: &PartitionNames) -> Result<Option<JournalBounds>> {
        let mut get = pipe();
        get.cmd("HGET").arg(at.key("meta")).arg("journal");
        let limits = self.query_partition(at, READING, &get).await?.maybe_bytes()?;
        Ok(limits.and_then(|limits| {
            let (count, age) = std::str::from_utf8(&limits).ok()?.split_once(':')?;
            Some(JournalBounds { count: count.parse().ok()?, age_ms: age.parse().ok()? })
        }))
    }

    /// Returns up to `count` entries after a position, newest first, and whether there may be more.
    pub async fn journal(
        &self,
        at: &PartitionNames,
        behind: Option<&JournalPosition>,
        count: usize,
    ) -> Result<(Vec<JournalPosition>, bool)> {
        let behind = behind.map(|behind| (behind.ended, &behind.member));
        let (found, more) = self.by_time(READING, at, "journal", behind, count, true).await?;
        Ok((found.into_iter().map(|(ended, member)| JournalPosition { ended, member }).collect(), more))
    }

    /// Returns the entries of one key, newest first, and whether the whole journal was searched. The search stops after
    /// about 200,000 entries.
    pub async fn journal_of_key(
        &self,
        at: &PartitionNames,
        key: &[u8],
    ) -> Result<(Vec<JournalPosition>, bool)> {
        if key.len() > MAX_KEY {
            return Ok((Vec::new(), true));
        }
        let (found, whole) =
            self.named_with(READING, at, ("journal", ENTRY_HEAD), key, MAX_SCANNED_ENTRIES).await?;
        let position = |(member, ended)| JournalPosition { ended, member };
        let mut found: Vec<_> = found.into_iter().map(position).collect();
        found.sort_unstable_by(|one, other| other.cmp(one));
        Ok((found, whole))
    }
}

/// The first byte of a tail message.
pub const TAIL_PREFIX: u8 = b't';
/// The length of a tail message before its entries: first byte, time, number of entries left out.
const TAIL_HEAD_BYTES: usize = 13;
/// The length of an entry before its key: outcome, attempt, arming ID, a time, length of the key.
const TAIL_ENTRY_BYTES: usize = 23;

/// The events of one call, as a partition publishes them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TailBatch {
    /// When they happened, in ms.
    pub at: u64,
    /// How many events had no room in the message.
    pub left_out: u64,
    /// The other events.
    pub entries: Vec<TimerEvent>,
}

/// An event of a timer in the tail or the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimerEvent {
    /// The outcome.
    pub what: Ending,
    /// The reason of a dead letter.
    pub reason: Option<DeadReason>,
    /// The attempt that runs, has ended, or comes next.
    pub attempt: u32,
    /// The ID of the arming; `None` if it is not known.
    pub arming: Option<ArmingId>,
    /// In the journal, the first deadline. In the tail, the deadline of the attempt that starts or comes next, or 0.
    pub at: u64,
    /// The key.
    pub key: Bytes,
}

impl TailBatch {
    /// Decodes a tail message. Returns `None` for any other message. Leaves out events of newer versions.
    pub fn decode(mut message: Bytes) -> Option<Self> {
        if message.len() < TAIL_HEAD_BYTES || message.get_u8() != TAIL_PREFIX {
            return None;
        }
        let (at, left_out) = (message.get_u64(), u64::from(message.get_u32()));
        let mut entries = Vec::new();
        while message.len() >= TAIL_ENTRY_BYTES {
            let (code, attempt) = (message.get_u8(), message.get_u32());
            let arming = known_id(&message.split_to(8));
            let (time, length) = (message.get_u64(), usize::from(message.get_u16()));
            if message.len() < length {
                break;
            }
            let key = message.split_to(length);
            let event = |(what, reason)| TimerEvent { what, reason, attempt, arming, at: time, key };
            entries.extend(Ending::from_code(code).map(event));
        }
        Some(Self { at, left_out, entries })
    }
}

impl Store {
    /// Makes a partition publish its tail for `for_ms`, at most 60 s. Returns the end of that time, in ms. Does not create a
    /// missing partition.
    pub async fn renew_watch(&self, at: &PartitionNames, for_ms: u64) -> Result<u64> {
        let mut call = self.call_with(&scripts::RENEW_WATCH, &[at.key("meta")]);
        let answer = call.arg(WIRE_VERSION).arg(at.partitions).arg(&at.wake).arg(for_ms).run_once().await?;
        Reply::new(scripts::RENEW_WATCH.name, answer)?.stamped()?.int()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn position(member: &'static [u8]) -> JournalPosition {
        JournalPosition { ended: 7, member: Bytes::from_static(member) }
    }

    #[test]
    fn an_entry_reads_back_and_what_is_none_is_left_out() {
        let ended = position(b"\x01Dident001\0\0\x01\x8b\xcf\xe5\x68\0\0\0\0\x02some:key").decode().unwrap();
        assert_eq!((ended.what, ended.reason, ended.attempt), (Ending::Done, None, 2));
        assert_eq!((ended.at, &ended.key[..]), (1_700_000_000_000, &b"some:key"[..]));
        assert_eq!(ended.arming, ArmingId::from_bytes(b"ident001"));
        let unknown = position(b"\x01x\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01").decode().unwrap();
        assert_eq!((unknown.what, unknown.reason), (Ending::Dead, Some(DeadReason::Exhausted)));
        assert_eq!(unknown.arming, None);
        let goes_on = b"\x01Tident001\0\0\x01\x8b\xcf\xe5\x68\0\0\0\0\x02k";
        for other in [&b""[..], b"\x01D", goes_on, b"\x02Dident001\0\0\x01\x8b\xcf\xe5\x68\0\0\0\0\x02k"] {
            assert_eq!(position(other).decode(), None, "{other:?}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(member: Vec<u8>) {
            JournalPosition { ended: 0, member: member.into() }.decode();
        }
    }

    fn entry(code: u8, key: &[u8]) -> Vec<u8> {
        let length = u16::try_from(key.len()).unwrap().to_be_bytes();
        [&[code, 0, 0, 0, 3], &b"ident001"[..], &9_u64.to_be_bytes(), &length, key].concat()
    }

    #[test]
    fn a_message_reads_back_without_what_is_not_known() {
        let head = [&b"t"[..], &5_u64.to_be_bytes(), &2_u32.to_be_bytes()].concat();
        let message =
            [head, entry(b'B', b"a"), entry(b'?', b"b"), entry(b'x', b""), b"rest".to_vec()].concat();
        let batch = TailBatch::decode(message.into()).unwrap();
        assert_eq!((batch.at, batch.left_out, batch.entries.len()), (5, 2, 2));
        let [first, second] = &batch.entries[..] else { panic!("two") };
        assert_eq!((first.what, first.attempt, first.at, &first.key[..]), (Ending::Started, 3, 9, &b"a"[..]));
        assert_eq!((second.what, second.reason), (Ending::Dead, Some(DeadReason::Exhausted)));
        assert_eq!(TailBatch::decode(Bytes::from_static(b"w1700000000000")), None);
    }

    proptest! {
        #[test]
        fn no_message_makes_it_panic(mut message: Vec<u8>) {
            message.insert(0, TAIL_PREFIX);
            TailBatch::decode(message.into());
        }
    }
}
