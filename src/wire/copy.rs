//! Copies of values: a byte that says what it is, and what follows. As touch.lua makes them, which a test
//! compares.

use bytes::Bytes;

/// Too large to be copied; its size follows, where it is known.
pub(crate) const TOO_LARGE: u8 = 1;
/// A string, and its bytes.
pub(crate) const STRING: u8 = 2;
/// Another type, as the server's DUMP writes it.
pub(crate) const DUMP: u8 = 3;

/// The bytes of the copy of a value, in the payload of a lapse; none where there is no copy.
pub(crate) fn value_of(payload: &Bytes) -> Bytes {
    match payload.get(1) {
        Some(&(STRING | DUMP)) => payload.slice(2..),
        _ => Bytes::new(),
    }
}
