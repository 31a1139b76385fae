//! Escapes and shortens foreign bytes and texts for log lines, and escapes globs.

use std::collections::BTreeSet;
use std::fmt::{self, Write as _};

/// The most bytes of a key in a log line or message.
const MAX_SHOWN_KEY_BYTES: usize = 128;

/// The most bytes of a pattern or a value in a message.
const MAX_EXCERPT_BYTES: usize = 160;

/// Displays the first 128 bytes, with everything except printable ASCII escaped.
#[derive(Debug)]
pub struct Escaped<'a>(pub &'a [u8]);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = &self.0[..self.0.len().min(MAX_SHOWN_KEY_BYTES)];
        write!(f, "\"{}\"", shown.escape_ascii())?;
        match self.0.len() - shown.len() {
            0 => Ok(()),
            more => write!(f, "… and {more} bytes"),
        }
    }
}

/// Escapes a text for a glob-style pattern of the server, which then matches exactly this text.
pub fn glob(text: &str) -> String {
    text.chars().flat_map(|c| is_of_globs(c).then_some('\\').into_iter().chain([c])).collect()
}

/// Returns a glob-style pattern that matches everything that ends with these bytes.
pub fn glob_ending(end: &[u8]) -> Vec<u8> {
    let literal =
        end.iter().flat_map(|byte| is_of_globs((*byte).into()).then_some(b'\\').into_iter().chain([*byte]));
    [b'*'].into_iter().chain(literal).collect()
}

fn is_of_globs(c: char) -> bool {
    matches!(c, '*' | '?' | '[' | ']' | '\\')
}

/// Returns a glob-style pattern that matches everything that starts with one of these texts.
///
/// It may match more: at each position up to the end of the shortest text, it accepts the byte of any of the texts.
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

/// The most bytes of an error in a log line.
const MAX_ERROR_BYTES: usize = 1024;

/// Returns an error as one line of at most 1 KiB. A longer text loses its middle.
pub fn of_error(text: &str) -> String {
    cut_middle(escape_line(&cut_middle(text.to_owned(), MAX_ERROR_BYTES), MAX_ERROR_BYTES), MAX_ERROR_BYTES)
}

/// Removes the middle of a text of more than `limit` bytes. An error begins with the failed operation and ends with the root
/// cause, so both ends matter.
pub fn cut_middle(text: String, limit: usize) -> String {
    const LEFT_OUT: &str = "…";
    if text.len() <= limit {
        return text;
    }
    let head = cut(&text, limit / 4);
    let from = text.len() - (limit - head.len() - LEFT_OUT.len());
    let from = (from..=text.len()).find(|&at| text.is_char_boundary(at)).unwrap_or(text.len());
    [head, LEFT_OUT, &text[from..]].concat()
}

/// The bytes that remain of a program's text when it is shortened, which happens at twice as many.
const MIN_KEPT_TEXT_BYTES: usize = 4 << 10;
/// A program's text is abandoned after this many written bytes, as it may be endless.
const MAX_WRITTEN_BYTES: usize = 256 << 10;

/// Returns the text of a program's value, in at most 8 KiB.
///
/// A longer text loses its middle. An endless text, or one whose formatting fails, ends early.
pub fn text_of(value: impl fmt::Display) -> String {
    let mut text = Bounded { text: String::new(), left: MAX_WRITTEN_BYTES };
    _ = write!(text, "{value}");
    text.text
}

/// Appends `more` to a text, in at most 8 KiB. A longer result loses its middle.
pub fn continued(text: String, more: &str) -> String {
    cut_middle(text + more, 2 * MIN_KEPT_TEXT_BYTES)
}

/// A writer that keeps both ends of a long text.
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
        if self.text.len() > 2 * MIN_KEPT_TEXT_BYTES {
            self.text = cut_middle(std::mem::take(&mut self.text), MIN_KEPT_TEXT_BYTES);
        }
        Ok(())
    }
}

/// Cuts a text to at most `limit` bytes, at a character boundary.
pub fn cut(text: &str, limit: usize) -> &str {
    let end = (0..=limit.min(text.len())).rev().find(|&at| text.is_char_boundary(at));
    &text[..end.unwrap_or(0)]
}

/// Returns the first `limit` bytes of a foreign text as one line, with control characters escaped. The escapes may make the
/// line longer than `limit`.
pub fn escape_line(text: &str, limit: usize) -> String {
    let mut line = String::new();
    for c in cut(text, limit).chars() {
        match c {
            '\\' | '\'' | '"' => line.push(c),
            _ => line.extend(c.escape_debug()),
        }
    }
    line
}

/// Returns the first 160 bytes as one line, with control characters and invalid UTF-8 escaped. A `…` marks longer bytes.
///
/// Quotes and backslashes are not escaped, so that regular expressions stay readable. The line is for people, not for
/// parsers.
pub fn excerpt(bytes: &[u8]) -> String {
    let shown = &bytes[..bytes.len().min(MAX_EXCERPT_BYTES)];
    let mut line = String::new();
    for chunk in shown.utf8_chunks() {
        line += &escape_line(chunk.valid(), MAX_EXCERPT_BYTES);
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
        assert_eq!(escape_line("it's \"ä\"\n\x1b[31m\u{202e}", 100), "it's \"ä\"\\n\\u{1b}[31m\\u{202e}");
        assert_eq!(escape_line("abc", 2), "ab");
    }

    #[test]
    fn a_long_error_keeps_what_was_tried_and_the_root_cause() {
        let long = |part: &str| format!("paying: {}: connection refused", part.repeat(5000));
        for part in ["x", "ä", "\u{1b}", "\n"] {
            let shown = of_error(&long(part));
            assert!(shown.starts_with("paying: ") && shown.ends_with(": connection refused"), "{shown}");
            assert!(
                (MAX_ERROR_BYTES - 8..=MAX_ERROR_BYTES).contains(&shown.len())
                    && !shown.contains(char::is_control),
                "{shown}"
            );
        }
        assert_eq!(of_error("no\nbody"), "no\\nbody");
        assert_eq!(cut_middle("x".repeat(9), 9), "x".repeat(9));
        assert_eq!(cut_middle("x".repeat(20), 12), "xxx…xxxxxx");
    }

    #[test]
    fn cutting_respects_characters() {
        assert_eq!(cut("aäö", 2), "a");
        assert_eq!(cut("aäö", 3), "aä");
    }
}
