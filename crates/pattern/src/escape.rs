//! Bytes from outside, made fit for a log line.

use std::collections::BTreeSet;
use std::fmt::{self, Write as _};

/// How many bytes of a key a log line or message shows.
const SHOWN: usize = 128;

/// How many bytes of a pattern or a value a message shows.
const EXCERPT: usize = 160;

/// Displays bytes with everything but printable ASCII escaped, cut to 128 bytes.
#[derive(Debug)]
pub struct Escaped<'a>(pub &'a [u8]);

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

/// A text that a glob-style pattern of the server matches as it is.
pub fn glob(text: &str) -> String {
    text.chars().flat_map(|c| is_of_globs(c).then_some('\\').into_iter().chain([c])).collect()
}

/// A pattern for whatever ends with these bytes.
pub fn glob_ending(end: &[u8]) -> Vec<u8> {
    let literal =
        end.iter().flat_map(|byte| is_of_globs((*byte).into()).then_some(b'\\').into_iter().chain([*byte]));
    [b'*'].into_iter().chain(literal).collect()
}

fn is_of_globs(c: char) -> bool {
    matches!(c, '*' | '?' | '[' | ']' | '\\')
}

/// A pattern for whatever begins with one of these texts, and for as little else as one pattern can say: it compares
/// byte by byte, with whatever one of them has there, to the end of the shortest.
pub fn glob_of_any(prefixes: &[&str]) -> Vec<u8> {
    let shortest = prefixes.iter().map(|prefix| prefix.len()).min().unwrap_or(0);
    let mut pattern = Vec::new();
    for at in 0..shortest {
        let bytes: BTreeSet<_> = prefixes.iter().map(|prefix| prefix.as_bytes()[at]).collect();
        let several = bytes.len() > 1;
        pattern.extend(several.then_some(b'['));
        for byte in bytes {
            pattern.extend(b"*?[]\\^-".contains(&byte).then_some(b'\\'));
            pattern.push(byte);
        }
        pattern.extend(several.then_some(b']'));
    }
    pattern.push(b'*');
    pattern
}

/// How many bytes of an error a log line shows.
const ERROR: usize = 1024;

/// An error as one line of a log: what is too much is left out in the middle.
pub fn of_error(text: &str) -> String {
    ends(plain(&ends(text.to_owned(), ERROR), ERROR), ERROR)
}

/// Both ends of a text of more than `limit` bytes. An error begins with what was tried, and ends with the root
/// cause.
pub fn ends(text: String, limit: usize) -> String {
    const LEFT_OUT: &str = "…";
    if text.len() <= limit {
        return text;
    }
    let head = cut(&text, limit / 4);
    let from = text.len() - (limit - head.len() - LEFT_OUT.len());
    let from = (from..=text.len()).find(|&at| text.is_char_boundary(at)).unwrap_or(text.len());
    [head, LEFT_OUT, &text[from..]].concat()
}

/// How many bytes of a program's text are kept, or up to twice as many.
const TEXT: usize = 4 << 10;
/// How many bytes of one are written before it is taken for one without an end.
const WRITTEN: usize = 256 << 10;

/// Returns the text of a program's value, in at most 8 KiB: both ends of a longer text, and the beginning of one that has no end
/// or cannot be written.
pub fn text_of(value: impl fmt::Display) -> String {
    let mut text = Bounded { text: String::new(), left: WRITTEN };
    _ = write!(text, "{value}");
    text.text
}

/// The same with more behind it.
pub fn continued(text: String, more: &str) -> String {
    ends(text + more, 2 * TEXT)
}

/// A text that is being written.
struct Bounded {
    text: String,
    left: usize,
}

impl fmt::Write for Bounded {
    fn write_str(&mut self, more: &str) -> fmt::Result {
        if self.left == 0 {
            return Err(fmt::Error);
        }
        self.left = self.left.saturating_sub(more.len().max(1));
        self.text.push_str(more);
        if self.text.len() > 2 * TEXT {
            self.text = ends(std::mem::take(&mut self.text), TEXT);
        }
        Ok(())
    }
}

/// Cuts a text to at most `limit` bytes, at a character's border.
pub fn cut(text: &str, limit: usize) -> &str {
    let end = (0..=limit.min(text.len())).rev().find(|&at| text.is_char_boundary(at));
    &text[..end.unwrap_or(0)]
}

/// What a server says, as one line of at most `limit` bytes or so: it can quote
/// what others have written there.
pub fn plain(text: &str, limit: usize) -> String {
    let mut line = String::new();
    for c in cut(text, limit).chars() {
        match c {
            '\\' | '\'' | '"' => line.push(c),
            _ => line.extend(c.escape_debug()),
        }
    }
    line
}

/// Anybody's bytes, as one line: the text in them by [`plain`], and `…` for what is too much.
///
/// Quotes and backslashes stay as they are, or regular expressions would be unreadable; it is for
/// people, not for parsers.
pub fn excerpt(bytes: &[u8]) -> String {
    let shown = &bytes[..bytes.len().min(EXCERPT)];
    let mut line = String::new();
    for chunk in shown.utf8_chunks() {
        line += &plain(chunk.valid(), EXCERPT);
        line.extend(chunk.invalid().escape_ascii().map(char::from));
    }
    if shown.len() < bytes.len() {
        line.push('…');
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_pattern_is_for_all_that_begins_with_one_of_several_texts() {
        for (prefixes, pattern) in [
            (&["a:b:"][..], &b"a:b:*"[..]),
            (&["a:b:", "a:c:d:"], b"a:[bc]:*"),
            (&["a*]^-", "a[-^]"], br"a[\*\[][\-\]]\^[\-\]]*"),
            (&["a:", ""], b"*"),
            (&[], b"*"),
        ] {
            assert_eq!(glob_of_any(prefixes).escape_ascii().to_string(), pattern.escape_ascii().to_string());
        }
    }

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
    fn what_a_server_says_is_one_line_that_no_terminal_obeys() {
        assert_eq!(plain("it's \"ä\"\n\x1b[31m\u{202e}", 100), "it's \"ä\"\\n\\u{1b}[31m\\u{202e}");
        assert_eq!(plain("abc", 2), "ab");
    }

    #[test]
    fn a_long_error_keeps_what_was_tried_and_the_root_cause() {
        let long = |part: &str| format!("paying: {}: connection refused", part.repeat(5000));
        for part in ["x", "ä", "\u{1b}", "\n"] {
            let shown = of_error(&long(part));
            assert!(shown.starts_with("paying: ") && shown.ends_with(": connection refused"), "{shown}");
            assert!(
                (ERROR - 8..=ERROR).contains(&shown.len()) && !shown.contains(char::is_control),
                "{shown}"
            );
        }
        assert_eq!(of_error("no\nbody"), "no\\nbody");
        assert_eq!(ends("x".repeat(9), 9), "x".repeat(9));
        assert_eq!(ends("x".repeat(20), 12), "xxx…xxxxxx");
    }

    #[test]
    fn cutting_respects_characters() {
        assert_eq!(cut("aäö", 2), "a");
        assert_eq!(cut("aäö", 3), "aä");
    }
}
