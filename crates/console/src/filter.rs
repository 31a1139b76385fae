//! Filters for entries, and lengths of time as text.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use regex::bytes::Regex;

use crate::error::{Error, Result};
use crate::escape::excerpt;
use crate::id::ArmingId;
use crate::{Entry, text};

/// Conditions on entries. An entry matches if it meets all of them. Each condition is parsed from text:
///
/// | text | matching entries |
/// | --- | --- |
/// | `key:order:*` | the whole key matches the glob: `*` is any number of bytes, `?` is one byte |
/// | `id:8f1d…` | the arming ID is equal |
/// | `attempt:>3` | the attempt is above 3; other comparisons are `>=`, `<`, `<=`, `=` and a plain number |
/// | `lost:>0` | the number of lost leases, with the same comparisons |
/// | `reason:exhausted` | dead letters with this reason; commas separate several reasons |
/// | `error:~timeout` | the text or the label of the last failure contains this text, in upper or lower case |
/// | `error:panic` | the last failure has this label |
/// | `older:1h` | dead letters that died, or timers that were first due, more than 1 h ago |
/// | `newer:1h` | dead letters that died, or timers that were first due, at most 1 h ago |
///
/// ```
/// use keylapse_console::Filter;
///
/// let filter = Filter::parse(["reason:exhausted", "attempt:>3", "error:~timeout"])?;
/// assert_eq!(filter.to_string(), "reason:exhausted attempt:>3 error:~timeout");
/// # Ok::<(), keylapse::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Filter(Vec<FilterCondition>);

#[derive(Clone, Debug)]
struct FilterCondition {
    text: String,
    test: FilterTest,
}

#[derive(Clone, Debug)]
enum FilterTest {
    Key(Regex),
    Id(ArmingId),
    Attempt(Compare, u32),
    Lost(Compare, u32),
    Reason(Vec<String>),
    ErrorHas(String),
    ErrorIs(String),
    Older(Duration),
    Newer(Duration),
}

#[derive(Clone, Copy, Debug)]
enum Compare {
    Above,
    AtLeast,
    Below,
    AtMost,
    Equal,
}

impl Filter {
    /// Parses conditions.
    ///
    /// # Errors
    /// Returns an error of kind [`Invalid`](keylapse::ErrorKind::Invalid) if a condition is not valid.
    pub fn parse<S: AsRef<str>>(texts: impl IntoIterator<Item = S>) -> Result<Self> {
        texts.into_iter().map(|text| text.as_ref().parse()).collect::<Result<_>>().map(Self)
    }

    /// Returns whether the filter has no conditions.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether an entry meets all conditions at the server's time `now_ms`.
    pub fn passes(&self, entry: &Entry, now_ms: u64) -> bool {
        self.0.iter().all(|condition| condition.test.passes(entry, now_ms))
    }
}

impl FilterTest {
    fn passes(&self, entry: &Entry, now_ms: u64) -> bool {
        let last = entry.failures.last();
        match self {
            Self::Key(glob) => glob.is_match(&entry.key),
            Self::Id(id) => entry.id == Some(*id),
            Self::Attempt(compare, number) => compare.holds(entry.attempt, *number),
            Self::Lost(compare, number) => compare.holds(entry.lost_leases.into(), *number),
            Self::Reason(any) => {
                entry.reason.is_some_and(|reason| any.iter().any(|one| one == reason.as_str()))
            }
            Self::ErrorHas(part) => last.is_some_and(|failed| {
                failed.error.to_lowercase().contains(part) || failed.kind.to_lowercase().contains(part)
            }),
            Self::ErrorIs(kind) => last.is_some_and(|failed| failed.kind == *kind),
            Self::Older(age) => age_of(entry, now_ms).is_some_and(|old| old > *age),
            Self::Newer(age) => age_of(entry, now_ms).is_some_and(|old| old <= *age),
        }
    }
}

/// Returns the time since death or since the first deadline. Returns `None` before the deadline.
fn age_of(entry: &Entry, now_ms: u64) -> Option<Duration> {
    let since = match entry.state {
        super::EntryState::Dead => entry.at_ms,
        _ => entry.deadline_ms?,
    };
    now_ms.checked_sub(since).map(Duration::from_millis)
}

impl Compare {
    fn holds(self, one: u32, other: u32) -> bool {
        match self {
            Self::Above => one > other,
            Self::AtLeast => one >= other,
            Self::Below => one < other,
            Self::AtMost => one <= other,
            Self::Equal => one == other,
        }
    }

    fn read(text: &str) -> Option<(Self, u32)> {
        let signs = [
            (">=", Self::AtLeast),
            ("<=", Self::AtMost),
            (">", Self::Above),
            ("<", Self::Below),
            ("=", Self::Equal),
        ];
        let found = signs.into_iter().find_map(|(sign, compare)| Some((compare, text.strip_prefix(sign)?)));
        let (compare, number) = found.unwrap_or((Self::Equal, text));
        number.bytes().all(|byte| byte.is_ascii_digit()).then_some(())?;
        Some((compare, number.parse().ok()?))
    }
}

impl FromStr for FilterCondition {
    type Err = Error;

    fn from_str(condition: &str) -> Result<Self> {
        let refuse =
            |advice: &str| Error::invalid(format!("filter {}: {advice}", excerpt(condition.as_bytes())));
        let known =
            "write key:, id:, attempt:, lost:, reason:, error:, older: or newer:, followed by a value";
        let (name, value) = condition.split_once(':').ok_or_else(|| refuse(known))?;
        if value.is_empty() {
            return Err(refuse("the value after the colon is missing"));
        }
        let number = || Compare::read(value).ok_or_else(|| refuse("write a number: attempt:>3, attempt:2"));
        let span = || parse_span(value).map_err(|error| refuse(&error.to_string()));
        let test = match name {
            "key" => FilterTest::Key(glob(value).map_err(|error| refuse(&error.to_string()))?),
            "id" => FilterTest::Id(
                text::id_of_text(value).ok_or_else(|| refuse("an ID has 16 hexadecimal digits"))?,
            ),
            "attempt" => number().map(|(compare, number)| FilterTest::Attempt(compare, number))?,
            "lost" => number().map(|(compare, number)| FilterTest::Lost(compare, number))?,
            "reason" => FilterTest::Reason(value.split(',').map(str::to_owned).collect()),
            "error" => match value.strip_prefix('~') {
                Some(part) => FilterTest::ErrorHas(part.to_lowercase()),
                None => FilterTest::ErrorIs(value.to_owned()),
            },
            "older" => FilterTest::Older(span()?),
            "newer" => FilterTest::Newer(span()?),
            _ => return Err(refuse(known)),
        };
        Ok(Self { text: condition.to_owned(), test })
    }
}

/// Converts a glob to a regular expression over bytes. The glob is escaped as [`text::escape`] escapes keys.
fn glob(pattern: &str) -> Result<Regex> {
    let mut regex = "(?s-u)^".to_owned();
    for byte in text::unescape(pattern)? {
        match byte {
            b'*' => regex.push_str(".*"),
            b'?' => regex.push('.'),
            byte if byte.is_ascii_alphanumeric() => regex.push(char::from(byte)),
            byte => regex.push_str(&format!("\\x{byte:02x}")),
        }
    }
    regex.push('$');
    Regex::new(&regex).map_err(|_| Error::invalid("the glob is too long"))
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts: Vec<_> = self.0.iter().map(|condition| condition.text.as_str()).collect();
        f.write_str(&texts.join(" "))
    }
}

/// The units in milliseconds, the longest first.
const UNITS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];

/// Parses a length of time: `250ms`, `15s`, `3m`, `1h30m`, `2d` or `0`.
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
/// Returns an error of kind [`Invalid`](keylapse::ErrorKind::Invalid) for other text, and for more than 100 years.
pub fn parse_span(text: &str) -> Result<Duration> {
    let refuse = || {
        Error::invalid(format!(
            "invalid length of time {}: write 250ms, 15s, 3m, 1h30m or 2d",
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

/// Formats a length of time in its two largest units, as [`parse_span`] reads it. Less than a millisecond is `0ms`.
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
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lengths_of_time_are_parsed_and_formatted() {
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
    fn invalid_lengths_of_time_are_refused() {
        for bad in ["", "5", "s", "5 s", "-5s", "1.5h", "5y", "99999999999999999999s", "40000d", "ms5", "5é"]
        {
            assert!(parse_span(bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn formatted_lengths_read_back_to_within_their_second_unit(ms in 0..3_000_000_000_000_u64) {
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
