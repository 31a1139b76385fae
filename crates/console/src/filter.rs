//! What an operator picks out of many entries.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use regex::bytes::Regex;

use crate::error::{Error, Result};
use crate::escape::excerpt;
use crate::id::ArmingId;
use crate::{Entry, parse_span, text};

/// Conditions that all have to hold. Each is read from a text:
///
/// | text | lets pass |
/// | --- | --- |
/// | `key:order:*` | keys that this glob matches as a whole: `*` is any bytes, `?` one byte, all else itself |
/// | `id:8f1d…` | the arming with this id |
/// | `attempt:>3` | attempts above 3; also `>=`, `<`, `<=`, `=` or nothing before the number |
/// | `lost:>0` | lost leases, in the same way |
/// | `reason:exhausted` | dead letters that died of this, or of one of several with commas between |
/// | `error:~timeout` | whose last failure contains this text, in whatever case; its label counts, too |
/// | `error:panic` | whose last failure has this label |
/// | `older:1h` | dead for longer than this; timers that have been due for longer |
/// | `newer:1h` | the contrary |
///
/// ```
/// use keylapse_console::Filter;
///
/// let filter = Filter::parse(["reason:exhausted", "attempt:>3", "error:~timeout"])?;
/// assert_eq!(filter.to_string(), "reason:exhausted attempt:>3 error:~timeout");
/// # Ok::<(), keylapse::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Filter(Vec<Condition>);

#[derive(Clone, Debug)]
struct Condition {
    said: String,
    test: Test,
}

#[derive(Clone, Debug)]
enum Test {
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
    /// Reads conditions, each from a text.
    ///
    /// # Errors
    /// Of kind [`Invalid`](keylapse::ErrorKind::Invalid), naming the condition and what can be written.
    pub fn parse<S: AsRef<str>>(texts: impl IntoIterator<Item = S>) -> Result<Self> {
        texts.into_iter().map(|text| text.as_ref().parse()).collect::<Result<_>>().map(Self)
    }

    /// Whether it lets everything pass.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether an entry passes, at this time of the server.
    pub fn passes(&self, entry: &Entry, now_ms: u64) -> bool {
        self.0.iter().all(|condition| condition.test.passes(entry, now_ms))
    }
}

impl Test {
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

/// How long ago it died, or was due; none of what is still to come.
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

    /// The comparison and the number behind it.
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

impl FromStr for Condition {
    type Err = Error;

    fn from_str(said: &str) -> Result<Self> {
        let refuse = |advice: &str| Error::invalid(format!("filter {}: {advice}", excerpt(said.as_bytes())));
        let known = "write key:, id:, attempt:, lost:, reason:, error:, older: or newer: and what is wanted behind it";
        let (name, value) = said.split_once(':').ok_or_else(|| refuse(known))?;
        if value.is_empty() {
            return Err(refuse("nothing stands behind the colon"));
        }
        let number =
            || Compare::read(value).ok_or_else(|| refuse("a number is wanted: attempt:>3, attempt:2"));
        let span = || parse_span(value).map_err(|error| refuse(&error.to_string()));
        let test = match name {
            "key" => Test::Key(glob(value).map_err(|error| refuse(&error.to_string()))?),
            "id" => {
                Test::Id(text::id_of_text(value).ok_or_else(|| refuse("an id has 16 hexadecimal digits"))?)
            }
            "attempt" => number().map(|(compare, number)| Test::Attempt(compare, number))?,
            "lost" => number().map(|(compare, number)| Test::Lost(compare, number))?,
            "reason" => Test::Reason(value.split(',').map(str::to_owned).collect()),
            "error" => match value.strip_prefix('~') {
                Some(part) => Test::ErrorHas(part.to_lowercase()),
                None => Test::ErrorIs(value.to_owned()),
            },
            "older" => Test::Older(span()?),
            "newer" => Test::Newer(span()?),
            _ => return Err(refuse(known)),
        };
        Ok(Self { said: said.to_owned(), test })
    }
}

/// A glob over bytes, written as keys are shown.
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
        let said: Vec<_> = self.0.iter().map(|condition| condition.said.as_str()).collect();
        f.write_str(&said.join(" "))
    }
}
