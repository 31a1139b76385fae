//! The fields of a hash, read as a struct or a map: names and values are bytes, mostly text.

use std::fmt;

use bytes::Bytes;
use serde::de::value::{MapDeserializer, StrDeserializer};
use serde::de::{self, DeserializeOwned, Deserializer, Expected, IntoDeserializer, Unexpected, Visitor};

use crate::error::{Error, ErrorKind, Result};
use crate::escape::Escaped;

/// Text is read as what is wanted: a number, a bool, a string; where that is a sequence, a map or a struct, as JSON.
pub(super) fn from_fields<T: DeserializeOwned>(fields: &[(Bytes, Bytes)]) -> Result<T> {
    let pairs = fields.iter().map(|(name, value)| (Text::name(name), Text::value(name, value)));
    T::deserialize(MapDeserializer::new(pairs)).map_err(|fault| {
        let message = format!("the hash of {} fields is of another shape: {fault}", fields.len());
        Error::new(ErrorKind::Payload, message)
    })
}

/// What is wrong, without any value: it ends up in dead letters and logs.
#[derive(Debug)]
struct Fault {
    field: Option<String>,
    what: String,
}

impl Fault {
    fn new(what: impl Into<String>) -> Self {
        Self { field: None, what: what.into() }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.field {
            Some(field) => write!(f, "field {field}: {}", self.what),
            None => f.write_str(&self.what),
        }
    }
}

impl std::error::Error for Fault {}

impl de::Error for Fault {
    fn custom<M: fmt::Display>(_: M) -> Self {
        Self::new("it is not what the type asks for")
    }

    fn invalid_type(_: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::new(format!("it is no {expected}"))
    }

    fn invalid_value(_: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::new(format!("it is no {expected}"))
    }

    fn invalid_length(_: usize, expected: &dyn Expected) -> Self {
        Self::new(format!("it is no {expected}"))
    }

    fn unknown_variant(_: &str, expected: &'static [&'static str]) -> Self {
        Self::new(format!("it is none of {expected:?}"))
    }

    fn unknown_field(field: &str, expected: &'static [&'static str]) -> Self {
        Self::new(format!("there is {}, and only {expected:?} may be", Escaped(field.as_bytes())))
    }

    fn missing_field(field: &'static str) -> Self {
        Self::new(format!("field {field:?} is missing"))
    }
}

/// The name of a field, or its value.
#[derive(Clone, Copy)]
struct Text<'a> {
    of: Option<&'a [u8]>,
    bytes: &'a [u8],
}

impl<'a> Text<'a> {
    fn name(bytes: &'a [u8]) -> Self {
        Self { of: None, bytes }
    }

    fn value(of: &'a [u8], bytes: &'a [u8]) -> Self {
        Self { of: Some(of), bytes }
    }

    /// What went wrong, with the field in which it did.
    fn named<T>(self, read: std::result::Result<T, Fault>) -> std::result::Result<T, Fault> {
        read.map_err(|fault| Fault { field: self.of.map(|name| Escaped(name).to_string()), ..fault })
    }

    fn text(self) -> std::result::Result<&'a str, Fault> {
        self.named(std::str::from_utf8(self.bytes).map_err(|_| Fault::new("it is no UTF-8")))
    }

    fn json<T>(
        self,
        read: impl FnOnce(&mut serde_json::Deserializer<serde_json::de::SliceRead<'a>>) -> serde_json::Result<T>,
    ) -> std::result::Result<T, Fault> {
        let mut json = serde_json::Deserializer::from_slice(self.bytes);
        let read = read(&mut json).and_then(|read| json.end().map(|()| read));
        self.named(read.map_err(|_| Fault::new("it is no JSON of the wanted shape")))
    }
}

impl<'a> IntoDeserializer<'a, Fault> for Text<'a> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

macro_rules! parsed {
    ($($method:ident, $visit:ident, $number:ty;)*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> std::result::Result<V::Value, Fault> {
            let not = |_| Fault::new(concat!("it is no ", stringify!($number)));
            let number = self.named(self.text()?.parse::<$number>().map_err(not))?;
            self.named(visitor.$visit(number))
        })*
    };
}

impl<'de> Deserializer<'de> for Text<'de> {
    type Error = Fault;

    /// A string, if nothing else is asked for.
    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> std::result::Result<V::Value, Fault> {
        self.named(match std::str::from_utf8(self.bytes) {
            Ok(text) => visitor.visit_borrowed_str(text),
            Err(_) => visitor.visit_borrowed_bytes(self.bytes),
        })
    }

    parsed! {
        deserialize_u8, visit_u8, u8;
        deserialize_u16, visit_u16, u16;
        deserialize_u32, visit_u32, u32;
        deserialize_u64, visit_u64, u64;
        deserialize_u128, visit_u128, u128;
        deserialize_i8, visit_i8, i8;
        deserialize_i16, visit_i16, i16;
        deserialize_i32, visit_i32, i32;
        deserialize_i64, visit_i64, i64;
        deserialize_i128, visit_i128, i128;
        deserialize_f32, visit_f32, f32;
        deserialize_f64, visit_f64, f64;
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> std::result::Result<V::Value, Fault> {
        let yes = match self.bytes {
            b"true" | b"1" => Ok(true),
            b"false" | b"0" => Ok(false),
            _ => Err(Fault::new("it is none of true, false, 1 and 0")),
        };
        self.named(self.named(yes).and_then(|yes| visitor.visit_bool(yes)))
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> std::result::Result<V::Value, Fault> {
        self.named(visitor.visit_borrowed_bytes(self.bytes))
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> std::result::Result<V::Value, Fault> {
        self.deserialize_bytes(visitor)
    }

    /// A field that is there is something.
    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> std::result::Result<V::Value, Fault> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> std::result::Result<V::Value, Fault> {
        visitor.visit_newtype_struct(self)
    }

    /// A variant without content, by its name.
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> std::result::Result<V::Value, Fault> {
        let name: StrDeserializer<'_, Fault> = self.text()?.into_deserializer();
        self.named(visitor.visit_enum(name))
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> std::result::Result<V::Value, Fault> {
        self.json(|json| json.deserialize_seq(visitor))
    }

    fn deserialize_tuple<V: Visitor<'de>>(
        self,
        len: usize,
        visitor: V,
    ) -> std::result::Result<V::Value, Fault> {
        self.json(|json| json.deserialize_tuple(len, visitor))
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        len: usize,
        visitor: V,
    ) -> std::result::Result<V::Value, Fault> {
        self.json(|json| json.deserialize_tuple_struct(name, len, visitor))
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> std::result::Result<V::Value, Fault> {
        self.json(|json| json.deserialize_map(visitor))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> std::result::Result<V::Value, Fault> {
        self.json(|json| json.deserialize_struct(name, fields, visitor))
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> std::result::Result<V::Value, Fault> {
        visitor.visit_unit()
    }

    serde::forward_to_deserialize_any! { char str string unit unit_struct identifier }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use serde::Deserialize;

    use super::*;

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

    /// As types of bytes are read that know of serde.
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
    fn what_is_wrong_is_said_with_the_field_and_without_the_value() {
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
        for (fields, says) in [
            (&[("sum", &b"hunter2"[..])][..], "field \"sum\": it is no u64"),
            (&[("sum", b"")], "field \"sum\": it is no u64"),
            (&[("sum", b"-1")], "field \"sum\": it is no u64"),
            (&[("sum", b"1.0")], "field \"sum\": it is no u64"),
            (&[("sum", b"\xff")], "field \"sum\": it is no UTF-8"),
            (&[("plan", b"Free")], "field \"sum\" is missing"),
            (&[("sum", b"1"), ("plan", b"hunter2")], "field \"plan\": it is none of [\"Free\", \"pro\"]"),
            (&[("sum", b"1"), ("on", b"hunter2")], "field \"on\": it is none of true, false, 1 and 0"),
            (&[("sum", b"1"), ("roles", b"hunter2")], "field \"roles\": it is no JSON"),
            (&[("sum", b"1"), ("roles", b"[1] hunter2")], "field \"roles\": it is no JSON"),
            (&[("sum", b"1"), ("name", b"\xffhunter2")], "field \"name\": it is no "),
            (&[("sum", b"1"), ("moon", b"hunter2")], "there is \"moon\""),
        ] {
            let error = read::<Strict>(fields).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Payload);
            assert!(error.to_string().contains(says), "{says}: {error}");
            assert!(!error.to_string().contains("hunter2"), "{error}");
        }
        assert!(read::<u64>(&[("a", b"1")]).unwrap_err().to_string().contains("it is no u64"));
    }
}
