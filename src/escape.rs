//! Bytes from outside, made fit for a log line.

use std::fmt;

/// How many bytes of a key a log line or message shows.
const SHOWN: usize = 128;

/// Displays bytes with everything but printable ASCII escaped, cut to 128 bytes.
pub(crate) struct Escaped<'a>(pub(crate) &'a [u8]);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = &self.0[..self.0.len().min(SHOWN)];
        write!(f, "\"{}\"", shown.escape_ascii())?;
        match self.0.len() - shown.len() {
            0 => Ok(()),
            more => write!(f, "… and {more} bytes"),
        }
    }
}

impl fmt::Debug for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Cuts a text to at most `limit` bytes, at a character's border.
pub(crate) fn cut(text: &str, limit: usize) -> &str {
    let end = (0..=limit.min(text.len())).rev().find(|&at| text.is_char_boundary(at));
    &text[..end.unwrap_or(0)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_bytes_and_quotes_cannot_break_a_log_line() {
        let shown = Escaped(b"a\n\x1b[31m\"\0\xff").to_string();
        assert_eq!(shown, r#""a\n\x1b[31m\"\x00\xff""#);
    }

    #[test]
    fn long_keys_are_cut_and_say_so() {
        assert!(Escaped(&[b'x'; 70_000]).to_string().ends_with("\"… and 69872 bytes"));
    }

    #[test]
    fn cutting_respects_characters() {
        assert_eq!(cut("aäö", 2), "a");
        assert_eq!(cut("aäö", 3), "aä");
    }
}
