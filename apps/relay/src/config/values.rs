//! Lengths of time and sizes in the file.

use std::fmt;
use std::time::Duration;

use keylapse_console::parse_span;
use serde::de::{Deserialize, Deserializer, Error, Visitor};

/// A length of time: `15s`, `3m`, `6h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span(pub(super) Duration);

/// A number of bytes: `512`, `"4KiB"`, `"1MiB"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Size(pub(super) usize);

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_str(Spans)
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Sizes)
    }
}

struct Spans;

impl Visitor<'_> for Spans {
    type Value = Span;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a length of time in quotes, as in \"15s\", \"3m\" or \"1h30m\"")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Span, E> {
        parse_span(text).map(Span).map_err(E::custom)
    }
}

struct Sizes;

/// A larger size is a mistake: a value in Redis has at most 512 MiB.
const LARGEST: u64 = 512 << 20;

impl Visitor<'_> for Sizes {
    type Value = Size;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number of bytes, as in 512 or \"4KiB\" or \"1MiB\"")
    }

    fn visit_i64<E: Error>(self, bytes: i64) -> Result<Size, E> {
        let bytes = u64::try_from(bytes).map_err(|_| E::custom("a size cannot be negative"))?;
        size(bytes, 0)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Size, E> {
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at(digits);
        let shift = match unit.trim_start() {
            "" | "B" => 0,
            "KiB" => 10,
            "MiB" => 20,
            _ => return Err(E::custom(format!("invalid size {text:?}: write 512, \"4KiB\" or \"1MiB\""))),
        };
        let number =
            number.parse().map_err(|_| E::custom(format!("invalid size {text:?}: write \"4KiB\"")))?;
        size(number, shift)
    }
}

fn size<E: Error>(number: u64, shift: u32) -> Result<Size, E> {
    let bytes = number.checked_mul(1 << shift).filter(|bytes| *bytes <= LARGEST);
    let bytes = bytes.ok_or_else(|| E::custom("a size is at most 512 MiB"))?;
    usize::try_from(bytes).map(Size).map_err(E::custom)
}
