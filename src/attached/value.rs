//! The payload for handlers of attached topics: the value of the expired key, and how the key ended.

use std::collections::BTreeMap;
use std::fmt;
use std::time::SystemTime;

use bytes::{Buf, Bytes};

use crate::error::{Error, ErrorKind, Result};
use crate::payload::Codec;
use crate::time::system_time;
use crate::wire;

/// Why an attached key lapsed.
///
/// ```
/// use keylapse::{Expired, Expiry, Lapse, Outcome};
///
/// # async fn is_open(_: &[u8]) -> std::io::Result<bool> { Ok(true) }
/// # async fn close(_: &[u8]) -> std::io::Result<()> { Ok(()) }
/// async fn close_unpaid(lapse: Lapse<Expired<u64>>) -> std::io::Result<Outcome> {
///     if lapse.payload().expiry() != Expiry::Announced && !is_open(lapse.key()).await? {
///         return Ok(Outcome::Drop); // the order was paid and its key deleted, or it is already closed
///     }
///     close(lapse.key()).await?;
///     Ok(Outcome::Done)
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Expiry {
    /// The server announced the expiry. It fires once for all listeners.
    Announced,
    /// The server announced the expiry to a listener in a gap of the event stream. It may have fired before.
    Ambiguous,
    /// No listener received the expiry. A check found the key gone after its deadline, and events may have been missed.
    /// The key may have been deleted instead.
    Recovered,
    /// The key is gone and no event was missed, so it was deleted or evicted. It fires only with
    /// [`Attached::vanished`](crate::Attached::vanished).
    Vanished,
}

/// The copy of an expired key's value, or why it is missing.
///
/// ```
/// use keylapse::attach::KeptValue;
///
/// /// Returns the amount of an expired order, or why it must be read from the database.
/// fn cents(copy: &KeptValue<u64>) -> Result<u64, String> {
///     match copy {
///         KeptValue::Kept(cents) => Ok(*cents),
///         KeptValue::TooLarge(size) => Err(format!("the order is too large: {size:?}")),
///         _ => Err("the order was not copied".to_owned()),
///     }
/// }
/// assert_eq!(cents(&KeptValue::Kept(1999)), Ok(1999));
/// assert!(cents(&KeptValue::NotKept).is_err());
/// ```
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeptValue<T> {
    /// No copy: the topic keeps none, the key was not read before it expired, or its type is not copied.
    NotKept,
    /// The value is larger than the topic keeps. Has its size in bytes, if that is known.
    TooLarge(Option<u64>),
    /// A string, or the fields of a hash, decoded.
    Kept(T),
    /// The fields of a hash, if the topic's payloads are bytes.
    Fields(BTreeMap<Bytes, Bytes>),
    /// A hash, list, set or stream, in the format of DUMP.
    Dumped(Bytes),
}

/// The payload of an attached topic's lapse.
///
/// ```
/// use keylapse::{Done, Expired, Lapse};
///
/// # #[derive(serde::Deserialize)]
/// # struct Order { cents: u64 }
/// async fn close(lapse: Lapse<Expired<Order>>) -> std::io::Result<Done> {
///     let order = lapse.capture("id").unwrap_or_default();
///     match lapse.payload().value() {
///         Some(Order { cents }) => println!("order {order}: {cents} cents were not paid"),
///         None => println!("order {order} was not paid, and has no copy of its value"),
///     }
///     Ok(Done)
/// }
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Expired<T> {
    value: KeptValue<T>,
    expiry: Expiry,
    deadline_known: bool,
    value_read_at: Option<SystemTime>,
}

/// A flag in the first byte of a payload: the lapse's deadline is that of the key.
const DEADLINE_KNOWN: u8 = 2;
/// Flags in the same byte: why the key lapsed. Without any of these its expiry was announced.
const EXPIRIES: [(u8, Expiry); 3] = [(8, Expiry::Vanished), (1, Expiry::Recovered), (4, Expiry::Ambiguous)];

impl Expiry {
    /// Returns the first byte of the payload for a key that fires after a check.
    pub(super) fn flags(self) -> u8 {
        let bit = EXPIRIES.iter().find(|(_, expiry)| *expiry == self).map_or(0, |(bit, _)| *bit);
        DEADLINE_KNOWN | bit
    }

    fn of(flags: u8) -> Self {
        EXPIRIES.iter().find(|(bit, _)| flags & bit != 0).map_or(Self::Announced, |(_, expiry)| *expiry)
    }
}

impl<T> Expired<T> {
    /// Returns the value at the last read, if that was a string within the topic's cap. For a hash whose fields the
    /// topic keeps, the value is decoded from them.
    pub fn value(&self) -> Option<&T> {
        let KeptValue::Kept(value) = &self.value else { return None };
        Some(value)
    }

    /// Takes the value, if [`value`](Self::value) has one.
    pub fn into_value(self) -> Option<T> {
        let KeptValue::Kept(value) = self.value else { return None };
        Some(value)
    }

    /// Returns the copy of the value, or why it is missing.
    pub fn value_at_last_read(&self) -> &KeptValue<T> {
        &self.value
    }

    /// Returns when the value was read, by the server's clock. The value lacks later writes whose events were not
    /// received. The lapse's deadline minus this time is the age of the value when the key expired.
    pub fn value_read_at(&self) -> Option<SystemTime> {
        self.value_read_at
    }

    /// Returns why the key lapsed.
    pub fn expiry(&self) -> Expiry {
        self.expiry
    }

    /// Returns whether no listener received the expiry, so that the key may have been deleted instead: see
    /// [`Expiry::Recovered`].
    pub fn recovered(&self) -> bool {
        self.expiry == Expiry::Recovered
    }

    /// Returns whether the lapse's deadline is that of the key: the last one that was read, which has passed. Otherwise
    /// the key was not read before, or ended before that deadline. The lapse's deadline is then the time at which the
    /// expiry was recorded.
    pub fn deadline_known(&self) -> bool {
        self.deadline_known
    }

    pub(crate) fn decode(mut payload: Bytes, codec: Codec<T>) -> Result<Self> {
        let whole = payload.clone();
        let (flags, read_at) = wire::take_head(&mut payload).ok_or_else(truncated)?;
        let kind = payload.try_get_u8().map_err(|_| truncated())?;
        let value = match kind {
            wire::TOO_LARGE => {
                KeptValue::TooLarge(std::str::from_utf8(&payload).ok().and_then(|size| size.parse().ok()))
            }
            wire::STRING => KeptValue::Kept((codec.decode)(payload)?),
            wire::DUMP => KeptValue::Dumped(payload),
            wire::FIELDS => kept_fields(&whole, codec)?,
            _ => KeptValue::NotKept,
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
        .ok_or_else(|| Error::new(ErrorKind::Payload, "the stored fields of the hash are truncated"))?;
    Ok(match codec.fields {
        Some(read) => KeptValue::Kept(read(&fields)?),
        None => KeptValue::Fields(fields.into_iter().collect()),
    })
}

fn truncated() -> Error {
    Error::new(ErrorKind::Payload, "the stored copy of the expired key is truncated")
}

impl<T> fmt::Debug for KeptValue<T> {
    /// Omits the value, which may hold secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotKept => f.write_str("NotKept"),
            Self::TooLarge(size) => f.debug_tuple("TooLarge").field(size).finish(),
            Self::Kept(_) => f.write_str("Kept(..)"),
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
        assert_eq!(*decoded(b"\x00\x00").value_at_last_read(), KeptValue::NotKept);
        assert_eq!(*decoded(b"\x02\x0165536").value_at_last_read(), KeptValue::TooLarge(Some(65536)));
        assert_eq!(*decoded(b"\x02\x01").value_at_last_read(), KeptValue::TooLarge(None));
        assert_eq!(
            *decoded(b"\x02\x03dump").value_at_last_read(),
            KeptValue::Dumped(Bytes::from_static(b"dump"))
        );
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
        assert_eq!(
            *raw.value_at_last_read(),
            KeptValue::Fields(BTreeMap::from([pair(b"a", b"42"), pair(b"", b"7")]))
        );
        for cut in 2..copy.len() {
            // Cuts before the first field and after it leave whole fields.
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
        for expiry in [Expiry::Announced, Expiry::Ambiguous, Expiry::Recovered, Expiry::Vanished] {
            assert_eq!(Expiry::of(expiry.flags()), expiry);
        }
        assert!(decoded(b"\x03\x00").recovered() && !decoded(b"\x0a\x00").recovered());
        assert!(decoded(b"\x02\x00").deadline_known() && !decoded(b"\x00\x00").deadline_known());
    }
}
