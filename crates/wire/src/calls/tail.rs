//! The tail: what partitions tell of starts and ends while somebody looks on.

use bytes::{Buf, Bytes};

use crate::calls::ended::known_id;
use crate::error::Result;
use crate::id::ArmingId;
use crate::names::WIRE_VERSION;
use crate::{DeadReason, Ending, PartitionNames, Reply, Store, scripts};

/// The letter with which a message of the tail begins.
pub const LETTER: u8 = b't';
/// The letter, when it was told, how many entries found no room in it.
const HEAD: usize = 13;
/// What, attempt, arming id, a time, the length of the key.
const ENTRY: usize = 23;

/// What one call has told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// When, in ms.
    pub at: u64,
    /// How many entries found no room in the message.
    pub left_out: u64,
    /// The others.
    pub entries: Vec<ToldOf>,
}

/// What is told of one timer, and what the journal keeps of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToldOf {
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

impl Told {
    /// Reads a message; none where it is none of the tail's. What a newer version may tell is left out.
    pub fn decode(mut message: Bytes) -> Option<Self> {
        if message.len() < HEAD || message.get_u8() != LETTER {
            return None;
        }
        let (at, left_out) = (message.get_u64(), u64::from(message.get_u32()));
        let mut entries = Vec::new();
        while message.len() >= ENTRY {
            let (code, attempt) = (message.get_u8(), message.get_u32());
            let arming = known_id(&message.split_to(8));
            let (time, length) = (message.get_u64(), usize::from(message.get_u16()));
            if message.len() < length {
                break;
            }
            let key = message.split_to(length);
            let told = |(what, reason)| ToldOf { what, reason, attempt, arming, at: time, key };
            entries.extend(Ending::from_code(code).map(told));
        }
        Some(Self { at, left_out, entries })
    }
}

impl Store {
    /// Has a partition tell what it starts and ends for so long, 60 s at most; until when it does, in ms. One that is not
    /// there is not made.
    pub async fn look_on(&self, at: &PartitionNames, for_ms: u64) -> Result<u64> {
        let mut call = self.call_with(&scripts::TAIL, &[at.key("meta")]);
        let answer = call.arg(WIRE_VERSION).arg(at.of).arg(&at.wake).arg(for_ms).run_once().await?;
        Reply::new(scripts::TAIL.name, answer)?.stamped()?.int()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn entry(code: u8, key: &[u8]) -> Vec<u8> {
        let length = u16::try_from(key.len()).unwrap().to_be_bytes();
        [&[code, 0, 0, 0, 3], &b"ident001"[..], &9_u64.to_be_bytes(), &length, key].concat()
    }

    #[test]
    fn a_message_reads_back_without_what_is_not_known() {
        let head = [&b"t"[..], &5_u64.to_be_bytes(), &2_u32.to_be_bytes()].concat();
        let message =
            [head, entry(b'B', b"a"), entry(b'?', b"b"), entry(b'x', b""), b"rest".to_vec()].concat();
        let told = Told::decode(message.into()).unwrap();
        assert_eq!((told.at, told.left_out, told.entries.len()), (5, 2, 2));
        let [first, second] = &told.entries[..] else { panic!("two") };
        assert_eq!((first.what, first.attempt, first.at, &first.key[..]), (Ending::Started, 3, 9, &b"a"[..]));
        assert_eq!((second.what, second.reason), (Ending::Dead, Some(DeadReason::Exhausted)));
        assert_eq!(Told::decode(Bytes::from_static(b"w1700000000000")), None);
    }

    proptest! {
        #[test]
        fn no_message_makes_it_panic(mut message: Vec<u8>) {
            message.insert(0, LETTER);
            Told::decode(message.into());
        }
    }
}
