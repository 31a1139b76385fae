//! What a handler of an attached topic gets: the value of the expired key, and what is known of its end.

use std::fmt;

use bytes::{Buf, Bytes};

use crate::error::{Error, ErrorKind, Result};
use crate::payload::Codec;
use crate::wire::copy;

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
    /// A string, decoded.
    Captured(T),
    /// A hash, list, set or stream, as the server's DUMP writes it.
    Dumped(Bytes),
}

/// The payload of an attached topic's lapse.
#[derive(Clone, PartialEq, Eq)]
pub struct Expired<T> {
    value: KeptValue<T>,
    expiry: Expiry,
    deadline_known: bool,
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
    /// The value that the key had when it was last read, if that was a string within the topic's cap.
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

    /// What made it lapse.
    pub fn expiry(&self) -> Expiry {
        self.expiry
    }

    /// Whether the lapse's deadline is that of the key. Otherwise the key was never read before, and the
    /// deadline is when its expiry was heard.
    pub fn deadline_known(&self) -> bool {
        self.deadline_known
    }

    pub(crate) fn decode(mut payload: Bytes, codec: Codec<T>) -> Result<Self> {
        if payload.len() < 2 {
            return Err(Error::new(ErrorKind::Payload, "what was kept of the expired key is cut short"));
        }
        let (flags, kind) = (payload.get_u8(), payload.get_u8());
        let value = match kind {
            copy::TOO_LARGE => {
                KeptValue::TooLarge(std::str::from_utf8(&payload).ok().and_then(|size| size.parse().ok()))
            }
            copy::STRING => KeptValue::Captured((codec.decode)(payload)?),
            copy::DUMP => KeptValue::Dumped(payload),
            _ => KeptValue::NotCaptured,
        };
        Ok(Self { value, expiry: Expiry::of(flags), deadline_known: flags & DEADLINE_KNOWN != 0 })
    }
}

impl<T> fmt::Debug for KeptValue<T> {
    /// Without the value, which may hold secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotCaptured => f.write_str("NotCaptured"),
            Self::TooLarge(size) => f.debug_tuple("TooLarge").field(size).finish(),
            Self::Captured(_) => f.write_str("Captured(..)"),
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
    fn a_handler_can_tell_what_is_known_of_the_end() {
        for expiry in [Expiry::Heard, Expiry::Ambiguous, Expiry::Recovered, Expiry::Vanished] {
            assert_eq!(Expiry::of(expiry.flags()), expiry);
        }
        assert!(decoded(b"\x02\x00").deadline_known() && !decoded(b"\x00\x00").deadline_known());
    }
}
