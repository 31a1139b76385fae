//! Conversion of arbitrary bytes to text that is safe in a terminal, a log and a JSON string, and back.
//!
//! Printable ASCII stays unchanged, except that a backslash is doubled. Other bytes become `\n`, `\r`, `\t` or `\xNN`.
//! Different bytes give different texts, and no key can move the cursor or colour a line.

use crate::error::{Error, Result};

/// Converts bytes to text.
///
/// ```
/// use keylapse_console::text::{escape, unescape};
///
/// assert_eq!(escape(b"order:7\n\xff"), "order:7\\n\\xff");
/// assert_eq!(unescape("order:7\\n\\xff")?, b"order:7\n\xff");
/// # Ok::<(), keylapse::Error>(())
/// ```
pub fn escape(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(bytes.len()), |mut text, byte| {
        match byte {
            b'\\' => text.push_str("\\\\"),
            b'\n' => text.push_str("\\n"),
            b'\r' => text.push_str("\\r"),
            b'\t' => text.push_str("\\t"),
            b' '..=b'~' => text.push(char::from(*byte)),
            _ => _ = write!(text, "\\x{byte:02x}"),
        }
        text
    })
}

/// Converts a text back to bytes. A character outside ASCII becomes its UTF-8 bytes.
///
/// # Errors
/// Returns an error of kind [`Invalid`](keylapse::ErrorKind::Invalid) if a backslash starts no escape of [`escape`].
pub fn unescape(text: &str) -> Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        bytes.extend_from_slice(&rest.as_bytes()[..at]);
        let (byte, length) = read_escape(&rest[at + 1..]).ok_or_else(|| refusal(text))?;
        bytes.push(byte);
        rest = &rest[at + 1 + length..];
    }
    bytes.extend_from_slice(rest.as_bytes());
    Ok(bytes)
}

/// Reads the escape that follows a backslash. Returns its byte and its length in characters.
fn read_escape(behind: &str) -> Option<(u8, usize)> {
    match behind.as_bytes().first()? {
        b'\\' => Some((b'\\', 1)),
        b'n' => Some((b'\n', 1)),
        b'r' => Some((b'\r', 1)),
        b't' => Some((b'\t', 1)),
        b'x' => {
            let digits =
                behind.get(1..3).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
            Some((u8::from_str_radix(digits, 16).ok()?, 3))
        }
        _ => None,
    }
}

fn refusal(text: &str) -> Error {
    Error::invalid(format!(
        "{} has a backslash that starts no escape: write \\\\ for a backslash, \\n, \\r, \\t or \\xNN for other bytes",
        crate::escape::excerpt(text.as_bytes())
    ))
}

/// Quotes a text as one word of a POSIX shell.
///
/// ```
/// assert_eq!(keylapse_console::text::quoted("it's"), r"'it'\''s'");
/// ```
pub fn quoted(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.@:".contains(&byte);
    if !text.is_empty() && text.bytes().all(plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Serializes bytes as text, and deserializes them.
pub(crate) mod serde_bytes {
    use bytes::Bytes;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(crate) fn serialize<S: Serializer>(bytes: &Bytes, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_str(&super::escape(bytes))
    }

    pub(crate) fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<Bytes, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(from)?;
        super::unescape(&text).map(Bytes::from).map_err(D::Error::custom)
    }
}

/// Serializes optional bytes as text or `null`.
pub(crate) mod serde_maybe_bytes {
    use bytes::Bytes;
    use serde::Serializer;

    pub(crate) fn serialize<S: Serializer>(bytes: &Option<Bytes>, out: S) -> Result<S::Ok, S::Error> {
        match bytes {
            Some(bytes) => out.serialize_str(&super::escape(bytes)),
            None => out.serialize_none(),
        }
    }
}

/// Parses an arming ID of sixteen hexadecimal digits.
pub(crate) fn id_of_text(text: &str) -> Option<crate::id::ArmingId> {
    let digits = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let number = digits.then(|| u64::from_str_radix(text, 16).ok()).flatten()?;
    crate::id::ArmingId::from_bytes(&number.to_be_bytes())
}

/// Serializes an arming ID as sixteen hexadecimal digits.
pub(crate) fn id_as_text<S: serde::Serializer>(
    id: &Option<crate::id::ArmingId>,
    out: S,
) -> std::result::Result<S::Ok, S::Error> {
    match id {
        Some(id) => out.collect_str(id),
        None => out.serialize_none(),
    }
}

/// Serializes the reason of a dead letter as a word.
pub(crate) fn reason_as_text<S: serde::Serializer>(
    reason: &Option<crate::wire::DeadReason>,
    out: S,
) -> std::result::Result<S::Ok, S::Error> {
    serde::Serialize::serialize(&reason.map(crate::wire::DeadReason::as_str), out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn escaped_bytes_read_back(bytes: Vec<u8>) {
            let text = escape(&bytes);
            prop_assert!(text.bytes().all(|byte| (b' '..=b'~').contains(&byte)));
            prop_assert_eq!(unescape(&text).unwrap(), bytes);
        }

        #[test]
        fn any_text_is_read_or_refused(text: String) {
            let _ = unescape(&text);
        }
    }

    #[test]
    fn words_are_fit_for_a_shell() {
        for (word, shown) in [("keylapse", "keylapse"), ("a b", "'a b'"), ("a'b", r"'a'\''b'"), ("", "''")] {
            assert_eq!(quoted(word), shown);
        }
    }

    #[test]
    fn a_backslash_that_starts_no_escape_is_refused() {
        for bad in ["\\", "a\\q", "\\x", "\\x1", "\\xg0", "\\x+1", "\\xé"] {
            assert!(unescape(bad).is_err(), "{bad}");
        }
        assert_eq!(unescape("é").unwrap(), "é".as_bytes());
    }
}
