//! Codecs of payloads: JSON, raw bytes, and the fields of a Redis hash, whose names and values are bytes.

use std::fmt;

use bytes::Bytes;
use serde::Serialize;
use serde::de::value::{MapDeserializer, StrDeserializer};
use serde::de::{self, DeserializeOwned, Deserializer, Expected, IntoDeserializer, Unexpected, Visitor};

use crate::error::{Error, ErrorKind, Result};
use crate::escape::{Escaped, text_of};

/// Decodes the names and values of a hash.
type FromFields<T> = fn(&[(Bytes, Bytes)]) -> Result<T>;

/// The functions that encode and decode a topic's payloads.
pub(crate) struct Codec<T> {
    pub(crate) encode: fn(&T) -> Result<Bytes>,
    pub(crate) decode: fn(Bytes) -> Result<T>,
    /// Decodes the fields of a hash. `None` for raw bytes.
    pub(crate) fields: Option<FromFields<T>>,
}

impl<T> Clone for Codec<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Codec<T> {}

impl<T: Serialize + DeserializeOwned> Codec<T> {
    pub(crate) const JSON: Self = Self { encode: to_json, decode: from_json, fields: Some(from_fields) };
}

impl Codec<Bytes> {
    pub(crate) const RAW: Self = Self { encode: |raw| Ok(raw.clone()), decode: Ok, fields: None };
}

fn to_json<T: Serialize>(value: &T) -> Result<Bytes> {
    serde_json::to_vec(value).map(Bytes::from).map_err(|error| {
        Error::new(ErrorKind::Payload, format!("the payload cannot be written as JSON: {}", text_of(error)))
    })
}

/// Decodes JSON. The error has the position and the kind of mistake, never the payload, because it is kept in dead letters
/// and logs.
#[allow(clippy::needless_pass_by_value)] // `Codec::decode` takes its bytes by value
fn from_json<T: DeserializeOwned>(bytes: Bytes) -> Result<T> {
    serde_json::from_slice(&bytes).map_err(|error| {
        let what = match error.classify() {
            serde_json::error::Category::Syntax => "is not JSON",
            serde_json::error::Category::Eof => "ends in the middle of a JSON value",
            serde_json::error::Category::Data => "does not match the topic's type",
            serde_json::error::Category::Io => "cannot be read",
        };
        let (line, column) = (error.line(), error.column());
        Error::new(
            ErrorKind::Payload,
            format!("the payload of {} bytes {what} (line {line}, column {column})", bytes.len()),
        )
    })
}

/// Decodes the fields of a hash as a map or struct. Values are parsed as the numbers, bools and strings that the type
/// requires. Sequences, maps and structs are parsed as JSON.
fn from_fields<T: DeserializeOwned>(fields: &[(Bytes, Bytes)]) -> Result<T> {
    let pairs = fields.iter().map(|(name, value)| (Text::name(name), Text::value(name, value)));
    T::deserialize(MapDeserializer::new(pairs)).map_err(|fault| {
        let message = format!("the hash of {} fields does not match the topic's type: {fault}", fields.len());
        Error::new(ErrorKind::Payload, message)
    })
}

type FieldResult<T> = std::result::Result<T, FieldError>;

/// An error of a field, without its value, because it is kept in dead letters and logs.
#[derive(Debug)]
struct FieldError {
    field: Option<String>,
    what: String,
}

impl FieldError {
    fn new(what: impl Into<String>) -> Self {
        Self { field: None, what: what.into() }
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.field {
            Some(field) => write!(f, "field {field}: {}", self.what),
            None => f.write_str(&self.what),
        }
    }
}

impl std::error::Error for FieldError {}

impl de::Error for FieldError {
    fn custom<M: fmt::Display>(_: M) -> Self {
        Self::new("the value does not match the type")
    }

    fn invalid_type(_: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::new(format!("expected {expected}"))
    }

    fn invalid_value(_: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::new(format!("expected {expected}"))
    }

    fn invalid_length(_: usize, expected: &dyn Expected) -> Self {
        Self::new(format!("expected {expected}"))
    }

    fn unknown_variant(_: &str, expected: &'static [&'static str]) -> Self {
        Self::new(format!("expected one of {expected:?}"))
    }

    fn unknown_field(field: &str, expected: &'static [&'static str]) -> Self {
        Self::new(format!("unknown field {}, expected one of {expected:?}", Escaped(field.as_bytes())))
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

    /// Adds the field's name to an error.
    fn named<T>(self, read: FieldResult<T>) -> FieldResult<T> {
        read.map_err(|fault| FieldError { field: self.of.map(|name| Escaped(name).to_string()), ..fault })
    }

    fn text(self) -> FieldResult<&'a str> {
        self.named(std::str::from_utf8(self.bytes).map_err(|_| FieldError::new("expected UTF-8")))
    }

    fn json<T>(
        self,
        read: impl FnOnce(&mut serde_json::Deserializer<serde_json::de::SliceRead<'a>>) -> serde_json::Result<T>,
    ) -> FieldResult<T> {
        let mut json = serde_json::Deserializer::from_slice(self.bytes);
        let read = read(&mut json).and_then(|read| json.end().map(|()| read));
        self.named(read.map_err(|_| FieldError::new("expected JSON that matches the type")))
    }
}

impl<'a> IntoDeserializer<'a, FieldError> for Text<'a> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

macro_rules! parsed {
    ($($method:ident, $visit:ident, $number:ty;)*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> FieldResult<V::Value> {
            let not = |_| FieldError::new(concat!("expected ", stringify!($number)));
            let number = self.named(self.text()?.parse::<$number>().map_err(not))?;
            self.named(visitor.$visit(number))
        })*
    };
}

impl<'de> Deserializer<'de> for Text<'de> {
    type Error = FieldError;

    /// Returns a string, the default type of text.
    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> FieldResult<V::Value> {
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

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> FieldResult<V::Value> {
        let yes = match self.bytes {
            b"true" | b"1" => Ok(true),
            b"false" | b"0" => Ok(false),
            _ => Err(FieldError::new("expected true, false, 1 or 0")),
        };
        self.named(self.named(yes).and_then(|yes| visitor.visit_bool(yes)))
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> FieldResult<V::Value> {
        self.named(visitor.visit_borrowed_bytes(self.bytes))
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> FieldResult<V::Value> {
        self.deserialize_bytes(visitor)
    }

    /// Returns `Some`: serde handles missing fields.
    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> FieldResult<V::Value> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> FieldResult<V::Value> {
        visitor.visit_newtype_struct(self)
    }

    /// Reads a variant without content by its name.
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> FieldResult<V::Value> {
        let name: StrDeserializer<'_, FieldError> = self.text()?.into_deserializer();
        self.named(visitor.visit_enum(name))
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> FieldResult<V::Value> {
        self.json(|json| json.deserialize_seq(visitor))
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, len: usize, visitor: V) -> FieldResult<V::Value> {
        self.json(|json| json.deserialize_tuple(len, visitor))
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        len: usize,
        visitor: V,
    ) -> FieldResult<V::Value> {
        self.json(|json| json.deserialize_tuple_struct(name, len, visitor))
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> FieldResult<V::Value> {
        self.json(|json| json.deserialize_map(visitor))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> FieldResult<V::Value> {
        self.json(|json| json.deserialize_struct(name, fields, visitor))
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> FieldResult<V::Value> {
        visitor.visit_unit()
    }

    serde::forward_to_deserialize_any! { char str string unit unit_struct identifier }
}

#[cfg(test)]
mod tests;
