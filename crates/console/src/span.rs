//! Lengths of time as people write them.

use std::time::Duration;

use crate::error::{Error, Result};

/// The units, with their milliseconds, the longest first.
const UNITS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];

/// Reads a length of time: `250ms`, `15s`, `3m`, `1h30m`, `2d`; or `0`.
///
/// ```
/// use std::time::Duration;
/// use keylapse_console::{parse_span, show_span};
///
/// assert_eq!(parse_span("1h30m")?, Duration::from_secs(5400));
/// assert_eq!(show_span(Duration::from_secs(5400)), "1h30m");
/// # Ok::<(), keylapse::Error>(())
/// ```
///
/// # Errors
/// Of kind [`Invalid`](keylapse::ErrorKind::Invalid) for anything else, and beyond 100 years.
pub fn parse_span(text: &str) -> Result<Duration> {
    let refuse = || {
        Error::invalid(format!(
            "{} is no length of time: write 250ms, 15s, 3m, 1h30m or 2d",
            crate::escape::excerpt(text.as_bytes())
        ))
    };
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let (mut rest, mut sum) = (text, 0_u64);
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let number: u64 = rest[..digits].parse().map_err(|_| refuse())?;
        rest = &rest[digits..];
        let letters = rest.bytes().take_while(u8::is_ascii_alphabetic).count();
        let (_, ms) = UNITS.iter().find(|(unit, _)| *unit == &rest[..letters]).ok_or_else(refuse)?;
        sum = number.checked_mul(*ms).and_then(|more| sum.checked_add(more)).ok_or_else(refuse)?;
        rest = &rest[letters..];
    }
    match Duration::from_millis(sum) {
        span if !text.is_empty() && span <= crate::time::MAX_DELAY => Ok(span),
        _ => Err(refuse()),
    }
}

/// Writes a length of time as [`parse_span`] reads it, in its two largest units; less than a millisecond is `0ms`.
pub fn show_span(span: Duration) -> String {
    let mut rest = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    let mut parts = Vec::new();
    for (unit, ms) in UNITS {
        if rest >= ms && parts.len() < 2 {
            parts.push(format!("{}{unit}", rest / ms));
            rest %= ms;
        } else if parts.len() == 1 {
            break;
        }
    }
    if parts.is_empty() { "0ms".to_owned() } else { parts.concat() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lengths_of_time_are_read_and_written() {
        for (text, ms) in
            [("0", 0), ("250ms", 250), ("15s", 15_000), ("1h30m", 5_400_000), ("2d", 172_800_000)]
        {
            assert_eq!(parse_span(text).unwrap(), Duration::from_millis(ms), "{text}");
        }
        for (ms, text) in [(0, "0ms"), (7, "7ms"), (1_500, "1s500ms"), (61_500, "1m1s"), (90_000_000, "1d1h")]
        {
            assert_eq!(show_span(Duration::from_millis(ms)), text);
        }
    }

    #[test]
    fn what_is_no_length_of_time_is_refused() {
        for bad in ["", "5", "s", "5 s", "-5s", "1.5h", "5y", "99999999999999999999s", "40000d", "ms5", "5é"]
        {
            assert!(parse_span(bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back_to_within_its_second_unit(ms in 0..3_000_000_000_000_u64) {
            let span = Duration::from_millis(ms);
            let read = parse_span(&show_span(span)).unwrap();
            prop_assert!(read <= span && span - read <= span / 24);
        }

        #[test]
        fn any_text_is_read_or_refused(text: String) {
            let _ = parse_span(&text);
        }
    }
}
