//! Strangers' text in our messages: one line, not too long, nothing that a terminal would obey.

use std::fmt::{self, Write as _};

/// Shows at most this many bytes.
const LIMIT: usize = 160;

/// Displays bytes with everything unprintable escaped, and cut off with `…` when they are many.
///
/// Unlike `escape_debug` it leaves quotes and backslashes alone, or regular expressions would be
/// unreadable; the text is for people, not for parsers.
pub(super) struct Excerpt<'a>(pub(super) &'a [u8]);

impl fmt::Display for Excerpt<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = &self.0[..self.0.len().min(LIMIT)];
        for chunk in shown.utf8_chunks() {
            chunk.valid().chars().try_for_each(|c| write_char(f, c))?;
            for byte in chunk.invalid() {
                write!(f, "\\x{byte:02x}")?;
            }
        }
        if shown.len() < self.0.len() {
            f.write_char('…')?;
        }
        Ok(())
    }
}

fn write_char(f: &mut fmt::Formatter<'_>, c: char) -> fmt::Result {
    match c {
        '\\' | '\'' | '"' => f.write_char(c),
        _ => write!(f, "{}", c.escape_debug()),
    }
}
