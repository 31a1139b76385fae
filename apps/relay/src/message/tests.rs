//! Messages, and the values that receivers read from them.

use std::collections::BTreeMap;

use bytes::Bytes;
use proptest::prelude::*;
use serde::Deserialize;

use super::*;
use crate::occurrence::KeptFields;

const FORMS: [Form; 3] = [Form::Json, Form::Text, Form::Base64];

/// A message as a receiver reads it that keeps JSON as it was written.
#[derive(Deserialize)]
struct Read<'a> {
    #[serde(borrow)]
    data: ReadData<'a>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReadData<'a> {
    topic: String,
    id: String,
    #[serde(rename = "key")]
    _key: String,
    captures: BTreeMap<String, String>,
    #[serde(rename = "attempt")]
    _attempt: u32,
    #[serde(rename = "deadline_ms")]
    _deadline_ms: u64,
    value_format: String,
    #[serde(borrow)]
    value: &'a RawValue,
    value_base64: Option<String>,
    fields_base64: Option<BTreeMap<String, String>>,
}

fn message(form: Form, value: OccurrenceValue) -> Vec<u8> {
    let captures = [("value".to_owned(), "\"value\":".to_owned())].into();
    json("orders", form, &Occurrence { value, captures, ..Occurrence::for_tests() })
}

fn read(message: &[u8]) -> ReadData<'_> {
    let read: Read<'_> = serde_json::from_slice(message).expect("JSON");
    assert_eq!((&*read.data.topic, &*read.data.id), ("orders", "0123456789abcdef"));
    assert_eq!(read.data.captures["value"], "\"value\":");
    read.data
}

/// Returns the value, decoded as the message describes.
fn recovered(message: &[u8]) -> OccurrenceValue {
    let bytes = |text: &str| Bytes::from(STANDARD.decode(text).expect("base64"));
    let read = read(message);
    match &*read.value_format {
        "json" => OccurrenceValue::Bytes(Bytes::copy_from_slice(as_written(message, read.value))),
        "text" => {
            OccurrenceValue::Bytes(serde_json::from_str::<String>(read.value.get()).expect("a string").into())
        }
        "base64" => OccurrenceValue::Bytes(bytes(&read.value_base64.expect("base64"))),
        "dump" => OccurrenceValue::Dump(bytes(&read.value_base64.expect("base64"))),
        "fields" => {
            let fields: Vec<_> = match read.fields_base64 {
                Some(fields) => fields.iter().map(|(name, value)| (bytes(name), bytes(value))).collect(),
                None => serde_json::from_str::<BTreeMap<String, String>>(read.value.get())
                    .expect("an object of texts")
                    .into_iter()
                    .map(|(name, value)| (name.into(), value.into()))
                    .collect(),
            };
            let fields: Vec<_> = fields.iter().map(|(name, value)| (&name[..], &value[..])).collect();
            OccurrenceValue::Fields(KeptFields::for_tests(&fields))
        }
        "unknown" => OccurrenceValue::Unknown,
        other => panic!("{other}"),
    }
}

/// Returns the value with the white space around it, which a parser drops.
fn as_written<'a>(message: &'a [u8], value: &RawValue) -> &'a [u8] {
    let starts = value.get().as_ptr() as usize - message.as_ptr() as usize;
    let name = b"\"value\":";
    let begins = message[..starts].windows(name.len()).rposition(|part| part == name).expect("its name");
    message[begins + name.len()..].strip_suffix(b"}}").expect("it is the last field")
}

/// A value, and its JSON with `json` and with `text`. An empty string means base64.
#[rustfmt::skip]
const TABLE: &[(&[u8], &str, &str)] = &[
    // Numbers of any length, as they were written.
    (b"0", "0", r#""0""#),
    (b"-0", "-0", r#""-0""#),
    (b"1.0", "1.0", r#""1.0""#),
    (b"1.10", "1.10", r#""1.10""#),
    (b"1e400", "1e400", r#""1e400""#),
    (b"1E+2", "1E+2", r#""1E+2""#),
    (b"-1e-5", "-1e-5", r#""-1e-5""#),
    (b"9007199254740993", "9007199254740993", r#""9007199254740993""#),
    (b"1234567890123456789012345", "1234567890123456789012345", r#""1234567890123456789012345""#),
    (b"100000000000000000.01", "100000000000000000.01", r#""100000000000000000.01""#),
    // Text that resembles a number.
    (b"01", r#""01""#, r#""01""#),
    (b"+1", r#""+1""#, r#""+1""#),
    (b".5", r#"".5""#, r#"".5""#),
    (b"1.", r#""1.""#, r#""1.""#),
    (b"1e", r#""1e""#, r#""1e""#),
    (b"-", r#""-""#, r#""-""#),
    (b"0x10", r#""0x10""#, r#""0x10""#),
    (b"1 2", r#""1 2""#, r#""1 2""#),
    (b"NaN", r#""NaN""#, r#""NaN""#),
    (b"-Infinity", r#""-Infinity""#, r#""-Infinity""#),
    // Words.
    (b"true", "true", r#""true""#),
    (b"false", "false", r#""false""#),
    (b"null", "null", r#""null""#),
    (b"True", r#""True""#, r#""True""#),
    (b"nul", r#""nul""#, r#""nul""#),
    (b"paid", r#""paid""#, r#""paid""#),
    // JSON strings, and text that resembles them.
    (br#""""#, r#""""#, r#""\"\"""#),
    (br#""a""#, r#""a""#, r#""\"a\"""#),
    ("\"gr\u{f6}\u{df}e\"".as_bytes(), "\"gr\u{f6}\u{df}e\"", "\"\\\"gr\u{f6}\u{df}e\\\"\""),
    (br#""\u00e9\/""#, r#""\u00e9\/""#, r#""\"\\u00e9\\/\"""#),
    (br#""\ud800""#, r#""\ud800""#, r#""\"\\ud800\"""#),
    (b"\"a\nb\"", r#""\"a\nb\"""#, r#""\"a\nb\"""#),
    (br#""\x""#, r#""\"\\x\"""#, r#""\"\\x\"""#),
    (br#""\u12""#, r#""\"\\u12\"""#, r#""\"\\u12\"""#),
    (br#""a"#, r#""\"a""#, r#""\"a""#),
    (b"'a'", r#""'a'""#, r#""'a'""#),
    // Lists.
    (b"[]", "[]", r#""[]""#),
    (b"[ 1 , 2.50 ]", "[ 1 , 2.50 ]", r#""[ 1 , 2.50 ]""#),
    (b"[1,]", r#""[1,]""#, r#""[1,]""#),
    (b"[", r#""[""#, r#""[""#),
    (b"[}", r#""[}""#, r#""[}""#),
    // Objects: the order of their fields is kept, and so are fields of one name.
    (b"{}", "{}", r#""{}""#),
    (br#"{"amount":1.10}"#, r#"{"amount":1.10}"#, r#""{\"amount\":1.10}""#),
    (br#"{"b":1,"a":2,"b":3}"#, r#"{"b":1,"a":2,"b":3}"#, r#""{\"b\":1,\"a\":2,\"b\":3}""#),
    (br#"{"a":1,}"#, r#""{\"a\":1,}""#, r#""{\"a\":1,}""#),
    (br#"{a:1}"#, r#""{a:1}""#, r#""{a:1}""#),
    (br#"{"a":1}}"#, r#""{\"a\":1}}""#, r#""{\"a\":1}}""#),
    (br#"{"a":1},"id":"x""#, r#""{\"a\":1},\"id\":\"x\"""#, r#""{\"a\":1},\"id\":\"x\"""#),
    // White space around a value belongs to it.
    (b" 1 ", " 1 ", r#"" 1 ""#),
    (b"\r\n{\t\"a\" : 1 }\n", "\r\n{\t\"a\" : 1 }\n", r#""\r\n{\t\"a\" : 1 }\n""#),
    (b"\x0c1", r#""\f1""#, r#""\f1""#),
    (b" ", r#"" ""#, r#"" ""#),
    (b"", r#""""#, r#""""#),
    // A byte order mark is no part of JSON, and a NUL is a character.
    (b"\xef\xbb\xbf1", "\"\u{feff}1\"", "\"\u{feff}1\""),
    (b"\0", r#""\u0000""#, r#""\u0000""#),
    (b"1\0", r#""1\u0000""#, r#""1\u0000""#),
    // Other text.
    ("gr\u{f6}\u{df}e".as_bytes(), "\"gr\u{f6}\u{df}e\"", "\"gr\u{f6}\u{df}e\""),
    ("\u{1f600}\u{2028}\u{fffd}".as_bytes(), "\"\u{1f600}\u{2028}\u{fffd}\"", "\"\u{1f600}\u{2028}\u{fffd}\""),
    (b"a\"b\\c\x7f", "\"a\\\"b\\\\c\x7f\"", "\"a\\\"b\\\\c\x7f\""),
    // Not UTF-8: the whole value is in base64, even if a part of it is JSON.
    (b"\xff", "", ""),
    (b"{\"a\":\"\xff\"}", "", ""),
    (b"{\"a\":1}\xff", "", ""),
    (b"\xe2\x82", "", ""),
    (b"\xc0\xaf", "", ""),
    (b"\xed\xa0\x80", "", ""),
    (b"\x1f\x8b\x08\0", "", ""),
];

#[test]
fn each_value_is_read_as_the_setting_says() {
    assert!(TABLE.len() >= 60, "{}", TABLE.len());
    for (bytes, json, text) in TABLE {
        for (form, stands) in [(Form::Json, *json), (Form::Text, *text), (Form::Base64, "")] {
            let message = message(form, OccurrenceValue::Bytes(Bytes::from_static(bytes)));
            let read = read(&message);
            let about = format!("{} with {form:?}", bytes.escape_ascii());
            if stands.is_empty() && !(form != Form::Base64 && bytes.is_empty()) {
                let base64 = STANDARD.encode(bytes);
                assert_eq!((&*read.value_format, read.value.get()), ("base64", "null"), "{about}");
                assert_eq!(read.value_base64, Some(base64), "{about}");
            } else {
                let is = if form == Form::Json && json != text { "json" } else { "text" };
                assert_eq!((&*read.value_format, read.value_base64), (is, None), "{about}");
                assert_eq!(as_written(&message, read.value), stands.as_bytes(), "{about}");
            }
        }
    }
}

/// The limits of receivers are unknown here.
#[test]
fn neither_depth_nor_length_changes_how_a_value_is_told() {
    for value in ["[".repeat(300_000) + &"]".repeat(300_000), "1".repeat(1 << 20), "[".repeat(300_000)] {
        let value = OccurrenceValue::Bytes(value.into());
        for form in FORMS {
            assert!(recovered(&message(form, value.clone())) == value, "{form:?}");
        }
    }
    let deep = message(Form::Json, OccurrenceValue::Bytes(("[".repeat(200) + &"]".repeat(200)).into()));
    assert_eq!(read(&deep).value_format, "json");
}

#[test]
fn fields_are_an_object_of_texts_or_all_of_them_are_in_base64() {
    let fields = |fields| OccurrenceValue::Fields(KeptFields::for_tests(fields));
    let told = |form, value| {
        let message = message(form, value);
        let read = read(&message);
        assert_eq!((&*read.value_format, read.value_base64), ("fields", None));
        (read.value.get().to_owned(), read.fields_base64.map(|fields| to_json(&fields)).map(Bytes::from))
    };
    let text: &[(&[u8], &[u8])] = &[(b"a", b"1.10"), (b"b", b"{}")];
    for form in [Form::Json, Form::Text] {
        assert_eq!(told(form, fields(text)), (r#"{"a":"1.10","b":"{}"}"#.to_owned(), None));
        assert_eq!(told(form, fields(&[])), ("{}".to_owned(), None));
    }
    let encoded = Some(Bytes::from(r#"{"YQ==":"MS4xMA==","Yg==":"e30="}"#));
    assert_eq!(told(Form::Base64, fields(text)), ("null".to_owned(), encoded));
    // Neither field is lost, or mistaken for the other.
    let odd: &[(&[u8], &[u8])] = &[(b"\xfe", b"1"), (b"\xff", b"\x80")];
    for form in FORMS {
        let encoded = Some(Bytes::from(r#"{"/g==":"MQ==","/w==":"gA=="}"#));
        assert_eq!(told(form, fields(odd)), ("null".to_owned(), encoded));
    }
}

#[test]
fn what_is_not_known_is_null_and_said_to_be_unknown() {
    for form in FORMS {
        let (unknown, dump) =
            (message(form, OccurrenceValue::Unknown), OccurrenceValue::Dump(b"\x0b\0text".as_slice().into()));
        assert_eq!((&*read(&unknown).value_format, read(&unknown).value.get()), ("unknown", "null"));
        assert!(recovered(&message(form, dump.clone())) == dump);
    }
}

/// Generates bytes, text, JSON, and text that resembles JSON.
fn values() -> impl Strategy<Value = Vec<u8>> {
    let json = r#"([\[\]{},:"\\ \t\n0-9.eE+-]|true|null|"[a-z]{0,3}"|"a":|\\ud800|1\.10){0,12}"#;
    prop_oneof![
        any::<Vec<u8>>(),
        ".{0,20}".prop_map(String::into_bytes),
        json.prop_map(String::into_bytes),
        r#"[ \n]?(\[-?[0-9]{1,40}(\.[0-9]{1,9})?\]|\{"a":"[^"\\\p{C}]{0,9}"\})[ \n]?"#
            .prop_map(String::into_bytes),
    ]
}

proptest! {
    #[test]
    fn each_byte_is_recovered_from_each_message(bytes in values()) {
        for form in FORMS {
            let value = OccurrenceValue::Bytes(bytes.clone().into());
            prop_assert_eq!(recovered(&message(form, value.clone())), value);
        }
    }

    #[test]
    fn each_field_is_recovered_from_each_message(fields in prop::collection::vec((values(), values()), 0..4)) {
        let fields: Vec<_> = fields.iter().map(|(name, value)| (&name[..], &value[..])).collect();
        for form in FORMS {
            let value = OccurrenceValue::Fields(KeptFields::for_tests(&fields));
            prop_assert_eq!(recovered(&message(form, value.clone())), value);
        }
    }
}
