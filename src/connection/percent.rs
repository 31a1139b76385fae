//! Percent-encoding, as far as URLs of servers need it.

/// The text that is meant. A `%` that two hexadecimal digits do not follow is itself. None: it is not UTF-8.
pub(super) fn decode(text: &str) -> Option<String> {
    let mut bytes = text.as_bytes();
    let mut meant = Vec::with_capacity(bytes.len());
    while let [first, rest @ ..] = bytes {
        let escaped = match (first, rest) {
            (b'%', [high, low, ..]) => hex(*high).zip(hex(*low)).map(|(high, low)| high << 4 | low),
            _ => None,
        };
        meant.push(escaped.unwrap_or(*first));
        bytes = if escaped.is_some() { &rest[2..] } else { rest };
    }
    String::from_utf8(meant).ok()
}

/// The same of a query, where a `+` is a space.
pub(super) fn decode_form(text: &str) -> Option<String> {
    decode(&text.replace('+', " "))
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_escaped_is_read_as_it_was_meant() {
        for (written, meant) in [
            ("", ""),
            ("p%40ss%25", "p@ss%"),
            ("%C3%A4", "ä"),
            ("ä", "ä"),
            ("100%", "100%"),
            ("%zz%4", "%zz%4"),
            ("%%41", "%A"),
            ("a+b", "a+b"),
        ] {
            assert_eq!(decode(written).as_deref(), Some(meant), "{written}");
        }
        assert_eq!(decode("%ff"), None);
        assert_eq!(decode_form("a+b%2B").as_deref(), Some("a b+"));
    }
}
