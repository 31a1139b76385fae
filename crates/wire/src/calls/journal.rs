//! What has ended, and how: the journal that partitions keep of it, and the tail, which they tell while somebody looks on.

use bytes::{Buf, Bytes};
use futures::future::join_all;
use keylapse_connection::pipe;

use crate::error::Result;
use crate::id::ArmingId;
use crate::lock::lock;
use crate::log::debug;
use crate::names::WIRE_VERSION;
use crate::{DeadReason, Ending, MAX_KEY, PartitionNames, Reply, Store, scripts};

/// Partitions that are told at the same time.
const MAX_CONCURRENT_JOURNAL_CALLS: usize = 250;

/// How much of what has ended each partition keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalBounds {
    /// How many ends; 0: none, and what was kept goes.
    pub count: u64,
    /// For how long, in ms.
    pub age_ms: u64,
}

impl Store {
    /// Has partitions keep so much of what ends; also those of them that are made anew later.
    pub async fn keep_journals(
        &self,
        topic: &str,
        bounds: JournalBounds,
        partitions: &[PartitionNames],
    ) -> Result<()> {
        lock(&self.0.journals).insert(topic.to_owned(), bounds);
        for some in partitions.chunks(MAX_CONCURRENT_JOURNAL_CALLS) {
            for told in join_all(some.iter().map(|at| self.keep_journal(at, bounds))).await {
                self.ignore_unavailable(topic, told.map(drop))?;
            }
        }
        Ok(())
    }

    /// Has a partition keep so much of what ends; whether that is news.
    pub async fn keep_journal(&self, at: &PartitionNames, bounds: JournalBounds) -> Result<bool> {
        let mut call = self.call(&scripts::SET_JOURNAL_LIMITS, at);
        call.arg(bounds.count).arg(bounds.age_ms);
        Ok(call.reply().await?.int()? == 1)
    }

    /// The same of one that was just made, and of the first, which is made with it, if their topic asks for it.
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

/// Version, how it ended, arming id, first deadline, attempt. Then the key.
const ENTRY_HEAD: usize = 22;
const VERSION: u8 = 1;
/// Entries that are gone through at most when a key is looked for.
const MAX_SCANNED_ENTRIES: usize = 200_000;
const READING: &str = "reading the journal";

/// Where an entry stands among the others of a partition.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct JournalPosition {
    /// When it ended, in ms.
    pub ended: u64,
    /// Its bytes.
    pub member: Bytes,
}

impl JournalPosition {
    /// What stands there, with its first deadline; none where a newer version, or somebody else, has written it.
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

/// An id, unless it is all zeros: that stands for one that is not known.
fn known_id(bytes: &[u8]) -> Option<ArmingId> {
    ArmingId::from_bytes(bytes).filter(|id| id.as_bytes() != &[0; 8])
}

impl Store {
    /// Whether a partition keeps a journal, and how much of one.
    pub async fn journal_bounds(&self, at: &PartitionNames) -> Result<Option<JournalBounds>> {
        let mut get = pipe();
        get.cmd("HGET").arg(at.key("meta")).arg("journal");
        let said = self.query_partition(at, READING, &get).await?.maybe_bytes()?;
        Ok(said.and_then(|said| {
            let (count, age) = std::str::from_utf8(&said).ok()?.split_once(':')?;
            Some(JournalBounds { count: count.parse().ok()?, age_ms: age.parse().ok()? })
        }))
    }

    /// Up to `count` entries, newest first, behind this one; and whether there may be more.
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

    /// What the journal has of one key, newest first; and whether all of it was looked at, which is no more than about
    /// 200,000 entries.
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

/// The letter with which a message of the tail begins.
pub const TAIL_PREFIX: u8 = b't';
/// The letter, when it was told, how many entries found no room in it.
const TAIL_HEAD_BYTES: usize = 13;
/// What, attempt, arming id, a time, the length of the key.
const TAIL_ENTRY_BYTES: usize = 23;

/// What one call has told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TailBatch {
    /// When, in ms.
    pub at: u64,
    /// How many entries found no room in the message.
    pub left_out: u64,
    /// The others.
    pub entries: Vec<TimerEvent>,
}

/// What is told of one timer, and what the journal keeps of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimerEvent {
    /// What it did.
    pub what: Ending,
    /// Of a dead letter, why.
    pub reason: Option<DeadReason>,
    /// The attempt that runs, has ended, or is to come.
    pub attempt: u32,
    /// The arming; none where that is not known.
    pub arming: Option<ArmingId>,
    /// The deadline of what begins; that of what is to come; in the journal the first; or 0.
    pub at: u64,
    /// The key.
    pub key: Bytes,
}

impl TailBatch {
    /// Reads a message; none where it is none of the tail's. What a newer version may tell is left out.
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
            let told = |(what, reason)| TimerEvent { what, reason, attempt, arming, at: time, key };
            entries.extend(Ending::from_code(code).map(told));
        }
        Some(Self { at, left_out, entries })
    }
}

impl Store {
    /// Has a partition tell what it starts and ends for so long, 60 s at most; until when it does, in ms. One that is not
    /// there is not made.
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
        let told = TailBatch::decode(message.into()).unwrap();
        assert_eq!((told.at, told.left_out, told.entries.len()), (5, 2, 2));
        let [first, second] = &told.entries[..] else { panic!("two") };
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
