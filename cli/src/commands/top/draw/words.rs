//! Texts of a length that the screen has room for.

use ratatui::text::Span;

pub(super) use keylapse_console::words::{brief, percent, relative};

use crate::output::short;

/// Characters of a text that are ever looked at: keys of 64 KiB exist.
pub(super) const LONGEST: usize = 1000;

/// Columns that a text takes.
pub(super) fn width(text: &str) -> usize {
    Span::raw(text).width()
}

/// A text that moves no cursor and takes at most so many columns; what is left out is said by `…`.
pub(super) fn clip(text: &str, columns: usize) -> String {
    let text = short(text, LONGEST);
    if width(&text) <= columns {
        return text;
    }
    if columns < 2 {
        return "…".repeat(columns);
    }
    format!("{}…", &text[..fitting(&text, columns - 1)])
}

/// A text in lines of at most so many columns; what does not go into so many lines is left out.
pub(super) fn wrap(text: &str, columns: usize, lines: usize) -> Vec<String> {
    let text = short(text, LONGEST);
    let mut all = vec![String::new()];
    for word in text.split(' ').filter(|word| !word.is_empty()) {
        let line = all.last_mut().map_or(0, |line| width(line));
        if line > 0 && line + 1 + width(word) > columns {
            all.push(String::new());
        }
        let mut word = word;
        // A word that is longer than a line goes on in the next.
        while width(word) > columns {
            let (head, rest) = word.split_at(fitting(word, columns));
            all.iter_mut().last().into_iter().for_each(|line| line.push_str(head));
            all.push(String::new());
            word = rest;
        }
        let line = all.iter_mut().last();
        line.into_iter().for_each(|line| {
            line.push_str(if line.is_empty() { "" } else { " " });
            line.push_str(word);
        });
    }
    if all.len() > lines && lines > 0 {
        let rest = all.split_off(lines - 1).join(" ");
        all.push(clip(&rest, columns));
    }
    all
}

/// How many bytes of a text take no more than so many columns; at least one character.
fn fitting(text: &str, columns: usize) -> usize {
    let mut taken = 0;
    for (at, c) in text.char_indices() {
        taken += width(c.encode_utf8(&mut [0; 4]));
        if taken > columns && at > 0 {
            return at;
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_takes_no_more_columns_than_there_are() {
        for (text, columns, kept) in [
            ("abc", 3, "abc"),
            ("abcd", 3, "ab…"),
            ("日本語", 4, "日…"),
            ("abc", 0, ""),
            ("a\u{1b}[31mb", 9, "a·[31mb"),
        ] {
            assert_eq!(clip(text, columns), kept);
            assert!(width(&clip(text, columns)) <= columns);
        }
    }

    #[test]
    fn lines_break_between_words_and_within_long_ones() {
        assert_eq!(wrap("one two three", 7, 9), ["one two", "three"]);
        assert_eq!(wrap("a 0123456789", 5, 9), ["a", "01234", "56789"]);
        assert_eq!(wrap("one two three four", 5, 2), ["one", "two …"]);
        assert_eq!(wrap("", 5, 2), [""]);
        assert!(wrap(&"日本".repeat(9), 5, 20).iter().all(|line| width(line) <= 5));
    }
}
