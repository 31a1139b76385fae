//! Bytes and texts of any length, in few characters.

/// A number of bytes: `17 B`, `3.4 KiB`.
#[allow(clippy::cast_precision_loss)]
pub(crate) fn size(bytes: u64) -> String {
    match bytes {
        ..1024 => format!("{bytes} B"),
        1024..1_048_576 => format!("{:.1} KiB", bytes as f64 / 1024.0),
        _ => format!("{:.1} MiB", bytes as f64 / 1_048_576.0),
    }
}

/// A text of at most so many characters, printable whatever it was; what is left out is said by `…`.
pub(crate) fn short(text: &str, most: usize) -> String {
    let plain = text.chars().map(|c| if c.is_control() || is_invisible(c) { '·' } else { c });
    let mut shown: String = plain.clone().take(most).collect();
    if plain.count() > most {
        shown.pop();
        shown.push('…');
    }
    shown
}

/// Whether it turns around or hides what stands beside it.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_moves_no_cursor_and_has_its_length() {
        assert_eq!(short("a\u{1b}[31mb\u{202e}", 10), "a·[31mb·");
        assert_eq!(short("abcdef", 4), "abc…");
        assert_eq!(short("äöü", 3), "äöü");
    }
}
