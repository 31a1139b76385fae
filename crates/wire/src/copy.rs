//! Copies of values: a byte that says what it is, and what follows. As touch.lua makes them, which a test
//! compares.

use std::collections::BTreeMap;

use bytes::{Buf, Bytes};
use serde_json::value::RawValue;

use crate::policy::Counting;

/// Too large to be copied; its size follows, where it is known.
pub const TOO_LARGE: u8 = 1;
/// A string, and its bytes.
pub const STRING: u8 = 2;
/// Another type, as the server's DUMP writes it.
pub const DUMP: u8 = 3;

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

/// The copy in a lapse's payload, as it is written back for this attempt; none where there is nothing to write.
pub fn counted(payload: &Bytes, how: &Counting, attempt: u32) -> Option<Bytes> {
    let mut copy = payload.clone();
    let kind = take_head(&mut copy).and_then(|_| copy.first());
    match (how, kind) {
        (Counting::Never, _) => None,
        (Counting::Alone, _) => Some([&[STRING][..], attempt.to_string().as_bytes()].concat().into()),
        (Counting::In(field), Some(&STRING)) => Some(in_json(&copy[1..], field, attempt).unwrap_or(copy)),
        (_, Some(&(STRING | DUMP))) => Some(copy),
        _ => None,
    }
}

/// The JSON object with this field set to the number of the attempt; none if it is no object. All else stays as its writer
/// wrote it.
fn in_json(value: &[u8], field: &str, attempt: u32) -> Option<Bytes> {
    let fields: BTreeMap<String, &RawValue> = serde_json::from_slice(value).ok()?;
    let (place, text) = if let Some(before) = fields.get(field) {
        let begins = before.get().as_ptr().addr() - value.as_ptr().addr();
        (begins..begins + before.get().len(), attempt.to_string())
    } else {
        let brace = value.trim_ascii_end().len() - 1;
        let comma = if fields.is_empty() { "" } else { "," };
        (brace..brace, format!("{comma}{}:{attempt}", serde_json::to_string(field).ok()?))
    };
    Some([&[STRING], &value[..place.start], text.as_bytes(), &value[place.end..]].concat().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copied(payload: &'static [u8], field: Option<&str>) -> Option<Bytes> {
        let how = field.map_or(Counting::Nowhere, |field| Counting::In(field.into()));
        counted(&Bytes::from_static(payload), &how, 3)
    }

    #[test]
    fn the_attempt_is_counted_in_the_field_of_a_json_object_alone() {
        let json = |payload, field| copied(payload, field).map(|copy| copy.to_vec());
        assert_eq!(json(b"\x00\x02{\"a\":1}", None).unwrap(), b"\x02{\"a\":1}");
        assert_eq!(json(b"\x00\x02{\"a\":1,\"z\":0}", Some("a")).unwrap(), b"\x02{\"a\":3,\"z\":0}");
        for other in [&b"\x00\x02[1]"[..], b"\x00\x02plain", b"\x00\x02"] {
            assert_eq!(json(other, Some("a")).unwrap(), other[1..], "{}", other.escape_ascii());
        }
    }

    #[test]
    fn all_else_of_the_object_stays_as_it_was_written() {
        for (before, after) in [
            (r#"{"n":1.10,"a":1}"#, r#"{"n":1.10,"a":3}"#),
            (r#"{"a":"x","n":1234567890123456789012345}"#, r#"{"a":3,"n":1234567890123456789012345}"#),
            (r#"{"z":1,"b":2,"b":1e400}"#, r#"{"z":1,"b":2,"b":1e400,"a":3}"#),
            ("\n{ \"a\" : [1, {\"a\": 2}] }\n", "\n{ \"a\" : 3 }\n"),
            // Readers take the last of two.
            (r#"{"a":1,"a":2}"#, r#"{"a":1,"a":3}"#),
            (r#"{"\u0061":2}"#, r#"{"\u0061":3}"#),
            ("{ }", "{ \"a\":3}"),
        ] {
            let copy = in_json(before.as_bytes(), "a", 3).unwrap();
            assert_eq!(std::str::from_utf8(&copy[1..]), Ok(after), "{before}");
        }
    }

    #[test]
    fn a_count_needs_no_copy() {
        for payload in [&b"\x00\x022"[..], b"\x00\x00", b"\x00\x03dump", b""] {
            let value = counted(&Bytes::from_static(payload), &Counting::Alone, 3);
            assert_eq!(value.as_deref(), Some(&b"\x023"[..]));
        }
    }

    #[test]
    fn without_a_copy_nothing_is_written() {
        for none in [&b"\x00\x00"[..], b"\x00\x0199", b"\x00\x05\0\0\0\0\0\0\0\0", b"\x00", b""] {
            assert_eq!((copied(none, None), copied(none, Some("a"))), (None, None));
        }
        assert_eq!(copied(b"\x00\x03dump", Some("a")).unwrap(), &b"\x03dump"[..]);
        // The time of its reading stands before it.
        assert_eq!(copied(b"\x10\x00\x00\x01\x8b\xcf\xe5\xa2\x98\x02x", None).unwrap(), &b"\x02x"[..]);
        assert_eq!(copied(b"\x10\x00\x00\x01", None), None);
    }
}
