//! What a handler of an attached topic gets: the value of the expired key, and what is known of its end.

use std::collections::BTreeMap;
use std::fmt;
use std::time::SystemTime;

use bytes::{Buf, Bytes};

use crate::error::{Error, ErrorKind, Result};
use crate::payload::Codec;
use crate::time::system_time;
use crate::wire;

/// What made an attached key lapse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Expiry {
    /// The server announced it, and it fires once for all listeners.
    Heard,
    /// The server announced it to a listener that had just lost its position in the stream of events: it may
    /// have fired before.
    Ambiguous,
    /// Nobody heard it: the key was gone when it was looked at after its deadline, and something may have been
    /// missed. It may have been deleted instead.
    Recovered,
    /// Nothing was missed, so the key was deleted or evicted; the topic asks to be told.
    Vanished,
}

/// A copy of the value that the key had.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeptValue<T> {
    /// None was kept: the topic does not ask for it, the key was never read before it expired, or it is of
    /// a type that is not copied.
    NotCaptured,
    /// It is larger than the topic keeps: so many bytes, where that is known.
    TooLarge(Option<u64>),
    /// A string, or the fields of a hash, decoded.
    Captured(T),
    /// The fields of a hash, of a topic of bytes.
    Fields(BTreeMap<Bytes, Bytes>),
    /// A hash, list, set or stream, as the server's DUMP writes it.
    Dumped(Bytes),
}

/// The payload of an attached topic's lapse.
#[derive(Clone, PartialEq, Eq)]
pub struct Expired<T> {
    value: KeptValue<T>,
    expiry: Expiry,
    deadline_known: bool,
    value_read_at: Option<SystemTime>,
}

/// In the first byte of a lapse's payload: the lapse's deadline is that of the key.
const DEADLINE_KNOWN: u8 = 2;
/// There, too: what made it lapse. None of these: it was heard.
const EXPIRIES: [(u8, Expiry); 3] = [(8, Expiry::Vanished), (1, Expiry::Recovered), (4, Expiry::Ambiguous)];

impl Expiry {
    /// What a verdict's firing carries.
    pub(super) fn flags(self) -> u8 {
        let bit = EXPIRIES.iter().find(|(_, expiry)| *expiry == self).map_or(0, |(bit, _)| *bit);
        DEADLINE_KNOWN | bit
    }

    fn of(flags: u8) -> Self {
        EXPIRIES.iter().find(|(bit, _)| flags & bit != 0).map_or(Self::Heard, |(_, expiry)| *expiry)
    }
}

impl<T> Expired<T> {
    /// The value that the key had when it was last read, if that was a string within the topic's cap; or a hash of which
    /// it keeps fields, read from these.
    pub fn value(&self) -> Option<&T> {
        let KeptValue::Captured(value) = &self.value else { return None };
        Some(value)
    }

    /// The value, taken out, where [`value`](Self::value) has one.
    pub fn into_value(self) -> Option<T> {
        let KeptValue::Captured(value) = self.value else { return None };
        Some(value)
    }

    /// What is known of the value.
    pub fn captured(&self) -> &KeptValue<T> {
        &self.value
    }

    /// When the value was read, by the server's clock. What was written to the key after that, and not heard, is
    /// not in it; a lapse's deadline minus this is how old the value was when the key expired.
    pub fn value_read_at(&self) -> Option<SystemTime> {
        self.value_read_at
    }

    /// What made it lapse.
    pub fn expiry(&self) -> Expiry {
        self.expiry
    }

    /// Whether nobody heard it, so that the key may have been deleted instead: see [`Expiry::Recovered`].
    pub fn recovered(&self) -> bool {
        self.expiry == Expiry::Recovered
    }

    /// Whether the lapse's deadline is that of the key: the last that was read, and it had passed. Otherwise the key
    /// was never read before, or ended before the deadline that was read, and the lapse's deadline is when its
    /// expiry was noted.
    pub fn deadline_known(&self) -> bool {
        self.deadline_known
    }

    pub(crate) fn decode(mut payload: Bytes, codec: Codec<T>) -> Result<Self> {
        let whole = payload.clone();
        let (flags, read_at) = wire::take_head(&mut payload).ok_or_else(cut_short)?;
        let kind = payload.try_get_u8().map_err(|_| cut_short())?;
        let value = match kind {
            wire::TOO_LARGE => {
                KeptValue::TooLarge(std::str::from_utf8(&payload).ok().and_then(|size| size.parse().ok()))
            }
            wire::STRING => KeptValue::Captured((codec.decode)(payload)?),
            wire::DUMP => KeptValue::Dumped(payload),
            wire::FIELDS => kept_fields(&whole, codec)?,
            _ => KeptValue::NotCaptured,
        };
        Ok(Self {
            value,
            expiry: Expiry::of(flags),
            deadline_known: flags & DEADLINE_KNOWN != 0,
            value_read_at: read_at.map(system_time),
        })
    }
}

fn kept_fields<T>(payload: &Bytes, codec: Codec<T>) -> Result<KeptValue<T>> {
    let fields = wire::fields_of(payload)
        .ok_or_else(|| Error::new(ErrorKind::Payload, "what was kept of the hash is cut short"))?;
    Ok(match codec.fields {
        Some(read) => KeptValue::Captured(read(&fields)?),
        None => KeptValue::Fields(fields.into_iter().collect()),
    })
}

fn cut_short() -> Error {
    Error::new(ErrorKind::Payload, "what was kept of the expired key is cut short")
}

impl<T> fmt::Debug for KeptValue<T> {
    /// Without the value, which may hold secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotCaptured => f.write_str("NotCaptured"),
            Self::TooLarge(size) => f.debug_tuple("TooLarge").field(size).finish(),
            Self::Captured(_) => f.write_str("Captured(..)"),
            Self::Fields(_) => f.write_str("Fields(..)"),
            Self::Dumped(_) => f.write_str("Dumped(..)"),
        }
    }
}

impl<T> fmt::Debug for Expired<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Expired")
            .field("value", &self.value)
            .field("expiry", &self.expiry)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(payload: &'static [u8]) -> Expired<u64> {
        Expired::decode(Bytes::from_static(payload), Codec::JSON).expect("it can be read")
    }

    #[test]
    fn a_handler_can_tell_what_was_captured() {
        assert_eq!(decoded(b"\x02\x0242").value(), Some(&42));
        assert_eq!(decoded(b"\x02\x0242").into_value(), Some(42));
        assert_eq!(decoded(b"\x00\x00").into_value(), None);
        assert_eq!(*decoded(b"\x00\x00").captured(), KeptValue::NotCaptured);
        assert_eq!(*decoded(b"\x02\x0165536").captured(), KeptValue::TooLarge(Some(65536)));
        assert_eq!(*decoded(b"\x02\x01").captured(), KeptValue::TooLarge(None));
        assert_eq!(*decoded(b"\x02\x03dump").captured(), KeptValue::Dumped(Bytes::from_static(b"dump")));
        assert!(Expired::<u64>::decode(Bytes::from_static(b"\x02"), Codec::JSON).is_err());
        assert!(Expired::<u64>::decode(Bytes::from_static(b"\x02\x02no"), Codec::JSON).is_err());
    }

    #[test]
    fn fields_become_the_topics_type_and_bytes_stay_a_map() {
        let copy = Bytes::from_static(b"\x02\x05\0\0\0\x01a\0\0\0\x0242\0\0\0\0\0\0\0\x017");
        let typed: Expired<BTreeMap<String, u64>> = Expired::decode(copy.clone(), Codec::JSON).unwrap();
        assert_eq!(typed.value(), Some(&BTreeMap::from([("a".to_owned(), 42), (String::new(), 7)])));
        let raw = Expired::decode(copy.clone(), Codec::RAW).unwrap();
        let pair = |name, value| (Bytes::from_static(name), Bytes::from_static(value));
        assert_eq!(*raw.captured(), KeptValue::Fields(BTreeMap::from([pair(b"a", b"42"), pair(b"", b"7")])));
        for cut in 2..copy.len() {
            // None at all, or the first alone.
            let is_whole = [2, 13].contains(&cut);
            assert_eq!(Expired::decode(copy.slice(..cut), Codec::RAW).is_ok(), is_whole, "{cut}");
        }
    }

    #[test]
    fn a_handler_can_tell_when_the_value_was_read() {
        let read = decoded(b"\x12\x00\x00\x01\x8b\xcf\xe5\xa2\x98\x0242");
        assert_eq!(read.value(), Some(&42));
        assert_eq!(read.value_read_at(), Some(system_time(1_700_000_015_000)));
        assert_eq!(decoded(b"\x02\x0242").value_read_at(), None);
        for cut in [&b"\x12\x00\x00\x01\x8b\xcf\xe5\xa2"[..], b"\x12\x00\x00\x01\x8b\xcf\xe5\xa2\x98"] {
            assert!(Expired::<u64>::decode(Bytes::from_static(cut), Codec::JSON).is_err());
        }
    }

    #[test]
    fn a_handler_can_tell_what_is_known_of_the_end() {
        for expiry in [Expiry::Heard, Expiry::Ambiguous, Expiry::Recovered, Expiry::Vanished] {
            assert_eq!(Expiry::of(expiry.flags()), expiry);
        }
        assert!(decoded(b"\x03\x00").recovered() && !decoded(b"\x0a\x00").recovered());
        assert!(decoded(b"\x02\x00").deadline_known() && !decoded(b"\x00\x00").deadline_known());
    }
}
