//! Reading the journal: what has ended, and how.

use bytes::{Buf, Bytes};
use keylapse_connection::pipe;

use crate::calls::tail::ToldOf;
use crate::error::Result;
use crate::id::ArmingId;
use crate::limits::MAX_KEY;
use crate::{Ending, JournalBounds, PartitionNames, Store};

/// Version, how it ended, arming id, first deadline, attempt. Then the key.
const HEAD: usize = 22;
const VERSION: u8 = 1;
/// Entries that are gone through at most when a key is looked for.
const MOST: usize = 200_000;
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
    pub fn decode(&self) -> Option<ToldOf> {
        let mut rest = self.member.clone();
        if rest.len() < HEAD || rest.get_u8() != VERSION {
            return None;
        }
        let (what, reason) = Ending::from_code(rest.get_u8()).filter(|(what, _)| !what.row().goes_on)?;
        let arming = known_id(&rest.split_to(8));
        let (at, attempt) = (rest.get_u64(), rest.get_u32());
        Some(ToldOf { what, reason, attempt, arming, at, key: rest })
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
    use crate::DeadReason;
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
}
