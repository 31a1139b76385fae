//! Copies of values: a byte that says what it is, and what follows. As touch.lua makes them, which a test
//! compares.

use bytes::{Buf, Bytes};

/// Too large to be copied; its size follows, where it is known.
pub const TOO_LARGE: u8 = 1;
/// A string, and its bytes.
pub const STRING: u8 = 2;
/// Another type, as the server's DUMP writes it.
pub const DUMP: u8 = 3;
/// Of a type that is not copied.
pub const NOT_COPIED: u8 = 4;

/// The fields of a hash, one by one.
pub const FIELDS: u8 = 5;

/// The fields of a hash in the payload of a lapse; none where it has something else, or they are cut short.
pub fn fields_of(payload: &Bytes) -> Option<Vec<(Bytes, Bytes)>> {
    fn text(copy: &mut Bytes) -> Option<Bytes> {
        let length = copy.try_get_u32().ok()? as usize;
        (length <= copy.len()).then(|| copy.split_to(length))
    }
    let mut copy = payload.clone();
    take_head(&mut copy)?;
    (copy.try_get_u8().ok()? == FIELDS).then_some(())?;
    let mut fields = Vec::new();
    while !copy.is_empty() {
        fields.push((text(&mut copy)?, text(&mut copy)?));
    }
    Some(fields)
}

/// In the first byte of a lapse's payload: before the copy stands when it was read, in ms.
const READ_AT: u8 = 16;

/// Takes from a lapse's payload what stands before the copy: the flags, and when the copy was read.
pub fn take_head(payload: &mut Bytes) -> Option<(u8, Option<u64>)> {
    let flags = payload.try_get_u8().ok()?;
    let read_at = if flags & READ_AT != 0 { Some(payload.try_get_u64().ok()?) } else { None };
    Some((flags, read_at))
}

/// The bytes of the copy of a value, in the payload of a lapse; none where there is no copy.
pub fn value_of(payload: &Bytes) -> Bytes {
    let mut copy = payload.clone();
    match take_head(&mut copy).and_then(|_| copy.first().copied()) {
        Some(STRING | DUMP | FIELDS) => copy.slice(1..),
        _ => Bytes::new(),
    }
}
