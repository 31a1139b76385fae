//! Reads times, reasons, destinations and filters of requests, for the API and the pages.

use keylapse::When;
use keylapse_console::{TopicStatus, parse_span};

/// Parses a span from now, such as `15m`, or a time with its zone, such as `2026-11-25T09:30:00Z`.
///
/// # Errors
/// If the text is neither. The error shows both formats.
pub fn parse_when(text: &str) -> Result<When, String> {
    if let Ok(at) = text.parse::<jiff::Timestamp>() {
        return Ok(When::At(at.into()));
    }
    let span = parse_span(text.strip_prefix('+').unwrap_or(text));
    span.map(When::In).map_err(|_| {
        "write a span, such as 15m or 1h30m, or a time with its zone, such as 2026-11-25T09:30:00Z".to_owned()
    })
}

/// Maximum bytes of the reason for a pause.
const LONGEST_REASON: usize = 200;

/// Checks the length of the reason for a pause, which every page about the topic shows.
pub(crate) fn check_reason(said: &str) -> Result<(), String> {
    if said.len() > LONGEST_REASON {
        return Err(format!("the reason is too long: write at most {LONGEST_REASON} bytes"));
    }
    Ok(())
}

/// Checks that a listener reports this destination, because listeners ignore the names of others.
pub(crate) fn check_destination(status: &TopicStatus, said: &str) -> Result<(), String> {
    match status.destinations.iter().any(|one| one.name == said) {
        true => Ok(()),
        false => Err(
            "no listener of the topic reports this destination: use a name that the list of destinations has"
                .to_owned(),
        ),
    }
}

/// Maximum characters of a filter.
const LONGEST_FILTER: usize = 1000;

/// Splits a filter into its conditions at white space. Double quotes enclose a condition that has spaces. A double quote
/// inside them is written twice.
pub(crate) fn conditions(said: &str) -> Result<Vec<String>, String> {
    if said.chars().count() > LONGEST_FILTER {
        return Err(format!("the filter is too long: write at most {LONGEST_FILTER} characters"));
    }
    let (mut all, mut one, mut is_quoted) = (Vec::new(), None::<String>, false);
    let mut letters = said.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '"' if is_quoted && letters.next_if_eq(&'"').is_some() => one.get_or_insert_default().push('"'),
            '"' => {
                is_quoted = !is_quoted;
                one.get_or_insert_default();
            }
            space if space.is_whitespace() && !is_quoted => all.extend(one.take()),
            letter => one.get_or_insert_default().push(letter),
        }
    }
    if is_quoted {
        return Err("unclosed double quote: write a condition with spaces as \"error:~timed out\"".to_owned());
    }
    all.extend(one);
    Ok(all)
}

/// Quotes a condition, so that [`conditions`] reads it back.
pub(crate) fn condition(text: &str) -> String {
    match text.contains(|letter: char| letter.is_whitespace() || letter == '"') {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_have_spaces_between_and_within_quotes() {
        for (said, read) in [
            ("", &[][..]),
            ("  reason:exhausted   attempt:>3 ", &["reason:exhausted", "attempt:>3"]),
            (r#""error:~timed out" key:a*"#, &["error:~timed out", "key:a*"]),
            (r#"error:~"timed out""#, &["error:~timed out"]),
            (r#""error:~says ""no""""#, &[r#"error:~says "no""#]),
            (r"key:a\n", &[r"key:a\n"]),
        ] {
            assert_eq!(conditions(said).unwrap(), read, "{said}");
        }
        assert!(conditions("\"error:~a").is_err());
        assert!(conditions(&"a".repeat(1001)).is_err());
    }

    #[test]
    fn a_condition_reads_back() {
        for text in ["error:~a", "error:~a b", "error:~\"a\"", "error:~ \" "] {
            assert_eq!(conditions(&condition(text)).unwrap(), [text]);
        }
    }
}
