//! Tests of valid and invalid payloads as JSON and as fields.

use super::*;

#[test]
fn json_round_trip() {
    let codec = Codec::<Vec<u64>>::JSON;
    let bytes = (codec.encode)(&vec![1, u64::MAX]).unwrap();
    assert_eq!((codec.decode)(bytes).unwrap(), [1, u64::MAX]);
}

#[test]
fn errors_do_not_repeat_the_payload() {
    for bad in ["hunter2", "\"hunter2\"", "{\"hunter2\":", "\u{feff}1", ""] {
        let error = (Codec::<u64>::JSON.decode)(Bytes::from_static(bad.as_bytes())).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Payload);
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }
}

#[test]
fn malformed_payloads_are_refused() {
    #[derive(Debug, serde::Deserialize, Serialize)]
    struct Notice {
        url: String,
        amount: u64,
    }
    let bad: [&[u8]; 9] = [
        b"\x82\xa3url\xa1u\xa6amount\x01",                  // MessagePack
        b"\xef\xbb\xbf{\"url\":\"u\",\"amount\":1}",        // a byte order mark
        b"{\"url\":\"\\ud800\",\"amount\":1}",              // half a surrogate pair
        b"{\"url\":\"\xff\",\"amount\":1}",                 // not UTF-8
        b"{\"url\":\"u\",\"url\":\"u\",\"amount\":1}",      // one key twice
        b"{\"url\":\"u\",\"amount\":18446744073709551616}", // one more than fits
        b"{\"url\":\"u\",\"amount\":1.0}",
        b"{\"url\":\"u\",\"amount\":NaN}",
        b"{\"url\":\"u\",\"amount\":1",
    ];
    for bytes in bad {
        let decoded = (Codec::<Notice>::JSON.decode)(Bytes::from_static(bytes));
        let shown = bytes.escape_ascii();
        assert_eq!(
            decoded.map(|notice| notice.amount).map_err(|e| e.kind()),
            Err(ErrorKind::Payload),
            "{shown}"
        );
    }
}

#[test]
fn nesting_deep_enough_to_overflow_a_stack_is_an_error() {
    let deep = vec![b'['; 100_000];
    assert!((Codec::<serde_json::Value>::JSON.decode)(deep.into()).is_err());
}

use std::collections::HashMap;

use serde::Deserialize;

fn read<T: DeserializeOwned>(fields: &[(&str, &[u8])]) -> Result<T> {
    let fields: Vec<_> = fields
        .iter()
        .map(|(name, value)| (Bytes::copy_from_slice(name.as_bytes()), Bytes::copy_from_slice(value)))
        .collect();
    from_fields(&fields)
}

#[derive(Debug, Deserialize, PartialEq)]
enum Plan {
    Free,
    #[serde(rename = "pro")]
    Pro,
}

#[derive(Debug, Deserialize, PartialEq)]
struct Cents(u64);

/// A byte type with the usual support for serde.
#[derive(Debug, PartialEq)]
struct Blob(Vec<u8>);

impl<'de> Deserialize<'de> for Blob {
    fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
        struct Bytes;
        impl Visitor<'_> for Bytes {
            type Value = Blob;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("bytes")
            }

            fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> std::result::Result<Blob, E> {
                Ok(Blob(bytes.to_vec()))
            }
        }
        from.deserialize_byte_buf(Bytes)
    }
}

#[derive(Debug, Deserialize, PartialEq)]
struct Address {
    street: String,
}

#[derive(Debug, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase")]
struct Session {
    user_id: u64,
    offset: i8,
    ratio: f64,
    name: String,
    initial: char,
    is_admin: bool,
    is_new: bool,
    plan: Plan,
    owes: Cents,
    seen: Option<u64>,
    never: Option<u64>,
    #[serde(default)]
    visits: u32,
    roles: Vec<String>,
    home: Address,
    blob: Blob,
}

#[test]
fn a_struct_is_read_from_text_numbers_json_and_bytes() {
    let session: Session = read(&[
        ("userId", b"18446744073709551615"),
        ("offset", b"-7"),
        ("ratio", b"0.5"),
        ("name", "Grüße".as_bytes()),
        ("initial", b"G"),
        ("isAdmin", b"true"),
        ("isNew", b"0"),
        ("plan", b"pro"),
        ("owes", b"1999"),
        ("seen", b"1"),
        ("roles", b"[\"a\",\"b\"]"),
        ("home", b"{\"street\":\"s\"}"),
        ("blob", b"\xff\0"),
        ("what nobody asks for", b"\xfe"),
    ])
    .unwrap();
    let expected = Session {
        user_id: u64::MAX,
        offset: -7,
        ratio: 0.5,
        name: "Grüße".to_owned(),
        initial: 'G',
        is_admin: true,
        is_new: false,
        plan: Plan::Pro,
        owes: Cents(1999),
        seen: Some(1),
        never: None,
        visits: 0,
        roles: vec!["a".to_owned(), "b".to_owned()],
        home: Address { street: "s".to_owned() },
        blob: Blob(b"\xff\0".to_vec()),
    };
    assert_eq!(session, expected);
    assert_eq!(read::<HashMap<String, Plan>>(&[("a", b"Free")]).unwrap()["a"], Plan::Free);
}

#[test]
fn maps_take_all_fields_and_names_may_be_numbers() {
    let sums: HashMap<u32, u64> = read(&[("7", b"1"), ("8", b"2")]).unwrap();
    assert_eq!((sums[&7], sums[&8]), (1, 2));
    let texts: HashMap<String, String> = read(&[("a", b"1"), ("", b"")]).unwrap();
    assert_eq!((&*texts["a"], &*texts[""]), ("1", ""));
    assert!(read::<HashMap<String, u64>>(&[]).unwrap().is_empty());
    assert_eq!(read::<serde_json::Value>(&[("a", b"1")]).unwrap(), serde_json::json!({ "a": "1" }));
}

#[test]
fn errors_name_the_field_and_omit_the_value() {
    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code)]
    struct Strict {
        sum: u64,
        plan: Option<Plan>,
        on: Option<bool>,
        roles: Option<Vec<u8>>,
        name: Option<String>,
    }
    for (fields, expected) in [
        (&[("sum", &b"hunter2"[..])][..], "field \"sum\": expected u64"),
        (&[("sum", b"")], "field \"sum\": expected u64"),
        (&[("sum", b"-1")], "field \"sum\": expected u64"),
        (&[("sum", b"1.0")], "field \"sum\": expected u64"),
        (&[("sum", b"\xff")], "field \"sum\": expected UTF-8"),
        (&[("plan", b"Free")], "field \"sum\" is missing"),
        (&[("sum", b"1"), ("plan", b"hunter2")], "field \"plan\": expected one of [\"Free\", \"pro\"]"),
        (&[("sum", b"1"), ("on", b"hunter2")], "field \"on\": expected true, false, 1 or 0"),
        (&[("sum", b"1"), ("roles", b"hunter2")], "field \"roles\": expected JSON"),
        (&[("sum", b"1"), ("roles", b"[1] hunter2")], "field \"roles\": expected JSON"),
        (&[("sum", b"1"), ("name", b"\xffhunter2")], "field \"name\": expected "),
        (&[("sum", b"1"), ("moon", b"hunter2")], "unknown field \"moon\""),
    ] {
        let error = read::<Strict>(fields).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Payload);
        assert!(error.to_string().contains(expected), "{expected}: {error}");
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }
    assert!(read::<u64>(&[("a", b"1")]).unwrap_err().to_string().contains("expected u64"));
}
