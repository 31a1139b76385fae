//! Short texts for people: numbers, lengths of time and text from other programs.

use std::time::Duration;

use crate::show_span;

/// Formats a number of bytes: `17 B`, `3.4 KiB`.
pub fn size(bytes: u64) -> String {
    match bytes {
        ..1024 => format!("{bytes} B"),
        1024..1_048_576 => format!("{:.1} KiB", bytes as f64 / 1024.0),
        _ => format!("{:.1} MiB", bytes as f64 / 1_048_576.0),
    }
}

/// Shortens a text to at most `most` characters and ends it with `…` if it was longer. Replaces control characters and
/// invisible ones by `·`.
pub fn short(text: &str, most: usize) -> String {
    let plain = text.chars().map(|c| if c.is_control() || is_invisible(c) { '·' } else { c });
    let mut shown: String = plain.clone().take(most).collect();
    if plain.count() > most && shown.pop().is_some() {
        shown.push('…');
    }
    shown
}

/// Returns whether a character is invisible, or changes the direction of the text around it.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

/// Formats a length of time in ms. From one second on, it is rounded down to whole seconds.
pub fn brief(ms: u64) -> String {
    let ms = if ms < 1000 { ms } else { ms - ms % 1000 };
    show_span(Duration::from_millis(ms))
}

/// Formats the distance of a time from now, both in ms since 1970: `in 3m` or `3m ago`.
pub fn relative(ms: u64, now_ms: u64) -> String {
    match ms.checked_sub(now_ms) {
        Some(ahead) if ahead < 1000 => "now".to_owned(),
        Some(ahead) => format!("in {}", brief(ahead)),
        None if now_ms - ms < 1000 => "now".to_owned(),
        None => format!("{} ago", brief(now_ms - ms)),
    }
}

/// Formats a lateness in µs as a length of time. Below one millisecond it has tenths of a millisecond.
pub fn lateness(us: u64) -> String {
    match us {
        1..1000 => format!("0.{}ms", us.div_ceil(100).min(9)),
        _ => show_span(Duration::from_micros(us)),
    }
}

/// Formats a share in percent: `12.3 %`.
pub fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// Formats a number of events per second, with one decimal below 100.
pub fn rate(per_second: f64) -> String {
    if per_second >= 100.0 { format!("{per_second:.0}") } else { format!("{per_second:.1}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_text_is_printable_and_bounded() {
        assert_eq!(short("a\u{1b}[31mb\u{202e}", 10), "a·[31mb·");
        assert_eq!(short("abcdef", 4), "abc…");
        assert_eq!(short("äöü", 3), "äöü");
    }

    #[test]
    fn times_are_formatted() {
        for (ms, text) in [(0, "0ms"), (450, "450ms"), (1999, "1s"), (130_000, "2m10s"), (3_600_000, "1h")] {
            assert_eq!(brief(ms), text);
        }
        assert_eq!([relative(5, 1000), relative(0, 9000), relative(9000, 0)], ["now", "9s ago", "in 9s"]);
    }

    #[test]
    fn lateness_has_tenths_below_a_millisecond() {
        for (us, text) in [
            (0, "0ms"),
            (100, "0.1ms"),
            (999, "0.9ms"),
            (5000, "5ms"),
            (50_000_000, "50s"),
            (600_000_000, "10m"),
        ] {
            assert_eq!(lateness(us), text);
        }
    }

    #[test]
    fn figures_are_formatted() {
        assert_eq!([size(17), size(3500), size(3 << 20)], ["17 B", "3.4 KiB", "3.0 MiB"]);
        assert_eq!([percent(0.123), rate(3.04), rate(1234.5)], ["12.3 %", "3.0", "1234"]);
    }
}
