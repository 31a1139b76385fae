//! Reading the journal: what has ended, and how.

use bytes::{Buf, Bytes};
use keylapse_connection::pipe;
use serde::{Serialize, Serializer};

use crate::error::Result;
use crate::id::ArmingId;
use crate::limits::MAX_KEY;
use crate::{DeadReason, JournalBounds, PartitionNames, Store};

/// Version, how it ended, arming id, first deadline, attempt. Then the key.
const HEAD: usize = 22;
const VERSION: u8 = 1;
/// Entries that are gone through at most when a key is looked for.
const MOST: usize = 200_000;
const READING: &str = "reading the journal";

/// How a timer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(tag = "outcome", content = "reason", rename_all = "snake_case")]
pub enum Ending {
    /// Its handler said that it is done, or that it is to be dropped.
    Done,
    /// The same, and that it is to run again: that is another arming.
    Again,
    /// Its attempt failed, and an arming that was kept for later took its place.
    GaveWay,
    /// It was armed anew before it ran.
    Replaced,
    /// It was cancelled.
    Cancelled,
    /// It became a dead letter.
    Dead(#[serde(serialize_with = "in_a_word")] DeadReason),
}

/// One that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// When, in ms.
    pub ended: u64,
    /// How.
    pub ending: Ending,
    /// Which arming; none where its record could not be read, or was too long to be.
    pub arming: Option<ArmingId>,
    /// Its first deadline, in ms; 0 where that is not known.
    pub deadline: u64,
    /// The attempt that ran, or was to come.
    pub attempt: u32,
    /// The key.
    pub key: Bytes,
}

/// Where an entry stands among the others of a partition.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct JournalPosition {
    /// When it ended, in ms.
    pub ended: u64,
    /// Its bytes.
    pub member: Bytes,
}

impl Ending {
    /// The ending of a byte; small letters are the reasons of dead letters.
    pub fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            b'D' => Self::Done,
            b'A' => Self::Again,
            b'G' => Self::GaveWay,
            b'R' => Self::Replaced,
            b'C' => Self::Cancelled,
            b'a'..=b'z' => Self::Dead(DeadReason::from_code(code)),
            _ => return None,
        })
    }

    /// A word for tables.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Again => "again",
            Self::GaveWay => "gave_way",
            Self::Replaced => "replaced",
            Self::Cancelled => "cancelled",
            Self::Dead(_) => "dead",
        }
    }
}

#[allow(clippy::trivially_copy_pass_by_ref)] // as serde asks
fn in_a_word<S: Serializer>(reason: &DeadReason, out: S) -> Result<S::Ok, S::Error> {
    out.serialize_str(reason.as_str())
}

impl JournalPosition {
    /// What stands there; none where a newer version, or somebody else, has written it.
    pub fn decode(&self) -> Option<Ended> {
        let mut rest = self.member.clone();
        if rest.len() < HEAD || rest.get_u8() != VERSION {
            return None;
        }
        let ending = Ending::from_code(rest.get_u8())?;
        let arming = known_id(&rest.split_to(8));
        let (deadline, attempt) = (rest.get_u64(), rest.get_u32());
        Some(Ended { ended: self.ended, ending, arming, deadline, attempt, key: rest })
    }
}

/// An id, unless it is all zeros: that stands for one that is not known.
pub fn known_id(bytes: &[u8]) -> Option<ArmingId> {
    ArmingId::from_bytes(bytes).filter(|id| id.as_bytes() != &[0; 8])
}

impl Store {
    /// Whether a partition keeps a journal, and how much of one.
    pub async fn journal_bounds(&self, at: &PartitionNames) -> Result<Option<JournalBounds>> {
        let mut get = pipe();
        get.cmd("HGET").arg(at.key("meta")).arg("journal");
        let said = self.ask(at, READING, &get).await?.maybe_bytes()?;
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
        let (found, whole) = self.named_with(READING, at, ("journal", HEAD), key, MOST).await?;
        let position = |(member, ended)| JournalPosition { ended, member };
        let mut found: Vec<_> = found.into_iter().map(position).collect();
        found.sort_unstable_by(|one, other| other.cmp(one));
        Ok((found, whole))
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
        assert_eq!((ended.ending, ended.attempt, ended.ended), (Ending::Done, 2, 7));
        assert_eq!((ended.deadline, &ended.key[..]), (1_700_000_000_000, &b"some:key"[..]));
        assert_eq!(ended.arming, ArmingId::from_bytes(b"ident001"));
        let unknown = position(b"\x01x\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01").decode().unwrap();
        assert_eq!((unknown.ending, unknown.arming), (Ending::Dead(DeadReason::Exhausted), None));
        for other in [&b""[..], b"\x01D", b"\x02Dident001\0\0\x01\x8b\xcf\xe5\x68\0\0\0\0\x02k"] {
            assert_eq!(position(other).decode(), None, "{other:?}");
        }
    }

    #[test]
    fn endings_are_written_flat() {
        let text = |ending| serde_json::to_string(&ending).unwrap();
        assert_eq!(text(Ending::GaveWay), r#"{"outcome":"gave_way"}"#);
        assert_eq!(text(Ending::Dead(DeadReason::TooOld)), r#"{"outcome":"dead","reason":"too_old"}"#);
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(member: Vec<u8>) {
            JournalPosition { ended: 0, member: member.into() }.decode();
        }
    }
}
