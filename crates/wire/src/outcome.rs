//! Outcomes of attempts and timers: one row for each, with all its names.
//!
//! A new outcome needs a row here and a function in settle.lua. Tests compare both with each other and with the
//! documentation. The reasons of dead letters and the history of failed attempts are here, too.

use std::time::SystemTime;

use bytes::Bytes;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::escape::cut_middle;
use crate::time::{system_time, unix_ms};

/// The names of an outcome, and the counters that it increases.
#[derive(Debug)]
pub struct EndingInfo {
    /// The word in metrics, histories, the journal and the tail.
    pub word: &'static str,
    /// The name in settle.lua; `None` if settle.lua does not take it.
    pub lua: Option<&'static str>,
    /// The byte in the journal and the tail. A lower-case byte is the reason of a dead letter.
    pub code: Option<u8>,
    /// The text in a tail, with placeholders for the values.
    pub shown: &'static str,
    /// The counters that an attempt with this outcome increases; `None` if no attempt has it.
    pub attempt: Option<&'static [&'static str]>,
    /// The counter that increases when Redis has the outcome.
    pub settled: Option<&'static str>,
    /// True if the arming continues, with this attempt or another one.
    pub goes_on: bool,
}

impl EndingInfo {
    const NONE: Self =
        Self { word: "", lua: None, code: None, shown: "", attempt: None, settled: None, goes_on: false };
}

macro_rules! outcomes {
    ($($(#[$doc:meta])* $name:ident { $($field:ident: $value:expr),* })*) => {
        /// An event in the life of a timer: an attempt starts or ends, or the timer ends.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Ending {
            $($(#[$doc])* $name,)*
        }

        impl Ending {
            /// All outcomes.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// Returns the names of the outcome.
            pub fn row(self) -> &'static EndingInfo {
                match self {
                    $(Self::$name => {
                        #[allow(clippy::needless_update)] // a row may set all fields
                        const ROW: EndingInfo = EndingInfo { $($field: $value,)* ..EndingInfo::NONE };
                        &ROW
                    })*
                }
            }
        }
    };
}

outcomes! {
    /// A listener has claimed the timer, and starts the attempt once it is due.
    Started {
        word: "started", code: Some(b'B'), shown: "attempt {attempt} claimed, {late} late", goes_on: true
    }
    /// The handler finished or dropped the timer.
    Done { word: "done", code: Some(b'D'), shown: "done at attempt {attempt}", attempt: Some(&["handled"]) }
    /// The handler dropped the timer. The journal and the tail show it as done.
    Dropped { word: "dropped", attempt: Some(&["dropped"]) }
    /// The key was written back for this attempt, and its writer has written it again.
    Superseded { word: "superseded", attempt: Some(&["superseded"]) }
    /// The timer is done, and runs again as another arming.
    Again {
        word: "again", lua: Some("again"), code: Some(b'A'), shown: "done; again {next}",
        attempt: Some(&["handled"]), settled: Some("again")
    }
    /// The handler postponed the attempt.
    Snoozed {
        word: "snoozed", lua: Some("snooze"), code: Some(b'Z'), shown: "snoozed; attempt {attempt} {next}",
        attempt: Some(&[]), settled: Some("snoozed"), goes_on: true
    }
    /// The attempt ended with an error.
    Error { word: "error", attempt: Some(&["failed"]) }
    /// The handler panicked.
    Panic { word: "panic", attempt: Some(&["failed", "panics"]) }
    /// The handler took longer than its timeout.
    Timeout { word: "timeout", attempt: Some(&["failed", "timeouts"]) }
    /// The payload is not of the topic's type.
    Undecodable { word: "undecodable", attempt: Some(&["failed"]) }
    /// The attempt has failed, and another follows.
    Retry {
        word: "retry", lua: Some("retry"), code: Some(b'T'), shown: "failed; attempt {attempt} {next}",
        settled: Some("retried"), goes_on: true
    }
    /// The timer became a dead letter.
    Dead { word: "dead", lua: Some("dead"), shown: "dead at attempt {attempt}: {reason}", settled: Some("dead") }
    /// The handler was stopped because its listener stops.
    Stopped { word: "stopped", attempt: Some(&[]) }
    /// The listener released the timer, mostly because it stops.
    Released {
        word: "released", lua: Some("release"), code: Some(b'H'), shown: "released; attempt {attempt} {next}",
        settled: Some("released"), goes_on: true
    }
    /// The listener no longer held the timer when the attempt ended.
    Lost { word: "lost", attempt: Some(&["fenced"]) }
    /// The attempt failed, and a queued arming took the timer's place.
    ReplacedByQueued {
        word: "replaced_by_queued", code: Some(b'G'), shown: "failed; the queued arming {next}",
        settled: Some("superseded")
    }
    /// The timer was armed again before it ran.
    Replaced { word: "replaced", code: Some(b'R'), shown: "replaced" }
    /// The timer was cancelled.
    Cancelled { word: "cancelled", code: Some(b'C'), shown: "cancelled" }
}

impl Ending {
    /// Returns the outcome of a byte, and the reason of a dead letter.
    pub(crate) fn from_code(code: u8) -> Option<(Self, Option<DeadReason>)> {
        if code.is_ascii_lowercase() {
            return Some((Self::Dead, Some(DeadReason::from_code(code))));
        }
        let known = Self::ALL.iter().find(|ending| ending.row().code == Some(code))?;
        Some((*known, None))
    }

    /// Returns the outcome as a word for tables.
    pub fn as_str(self) -> &'static str {
        self.row().word
    }
}

impl Serialize for Ending {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_str(self.as_str())
    }
}

/// Why a timer became a dead letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DeadReason {
    /// The last attempt that the topic allows has failed.
    Exhausted,
    /// The handler returned a permanent failure.
    Permanent,
    /// The payload is not of the topic's type.
    Undecodable,
    /// The timer was older than the topic allows.
    TooOld,
    /// The timer was snoozed more often than the topic allows.
    Snoozed,
    /// The timer ran while five leases were lost, the last time without other timers.
    LostLeases,
    /// The timer never ran. An attempt of the same key armed it, and then became a dead letter because of lost leases.
    Inherited,
    /// The record could not be read. The dead letter keeps its bytes.
    Unreadable,
    /// A reason of a later version.
    Other(u8),
}

impl DeadReason {
    /// Returns the byte of the reason, and a word for logs and tables.
    fn names(self) -> (u8, &'static str) {
        match self {
            Self::Exhausted => (b'x', "exhausted"),
            Self::Permanent => (b'p', "permanent"),
            Self::Undecodable => (b'd', "undecodable"),
            Self::TooOld => (b'o', "too_old"),
            Self::Snoozed => (b's', "snoozed"),
            Self::LostLeases => (b'l', "lost_leases"),
            Self::Inherited => (b'i', "inherited"),
            Self::Unreadable => (b'u', "unreadable"),
            Self::Other(code) => (code, "other"),
        }
    }

    /// Returns the byte of the reason.
    pub fn code(self) -> u8 {
        self.names().0
    }

    /// The reasons that this version supports.
    const KNOWN: [Self; 8] = [
        Self::Exhausted,
        Self::Permanent,
        Self::Undecodable,
        Self::TooOld,
        Self::Snoozed,
        Self::LostLeases,
        Self::Inherited,
        Self::Unreadable,
    ];

    /// Returns the reason of a byte.
    pub fn from_code(code: u8) -> Self {
        Self::KNOWN.into_iter().find(|reason| reason.code() == code).unwrap_or(Self::Other(code))
    }

    /// Returns the reason of a word.
    #[doc(hidden)]
    pub fn named(word: &str) -> Option<Self> {
        Self::KNOWN.into_iter().find(|reason| reason.as_str() == word)
    }

    /// Returns the reason as a word for logs and tables.
    pub fn as_str(self) -> &'static str {
        self.names().1
    }
}

/// The maximum number of failed attempts in a history.
pub const HISTORY_LENGTH: usize = 10;
/// The maximum length of an error text in a history, in bytes.
pub const ERROR_LENGTH: usize = 512;

/// A failed attempt in a history or a dead letter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedAttempt {
    /// The number of the attempt, from 1.
    pub attempt: u32,
    /// When it ended, by the server's clock, in whole milliseconds.
    #[serde(serialize_with = "to_ms", deserialize_with = "from_ms")]
    pub at: SystemTime,
    /// `error`, `panic`, `timeout`, or another short label.
    pub kind: String,
    /// The error text. Over 512 bytes it is cut in the middle, because its end names the root cause.
    pub error: String,
}

/// Times in JSON are milliseconds since 1970.
fn to_ms<S: Serializer>(at: &SystemTime, out: S) -> Result<S::Ok, S::Error> {
    out.serialize_u64(unix_ms(*at))
}

fn from_ms<'a, D: Deserializer<'a>>(from: D) -> Result<SystemTime, D::Error> {
    u64::deserialize(from).map(system_time)
}

/// The last ten failed attempts, oldest first. The format is JSON, which people and other languages can read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History(pub Vec<FailedAttempt>);

impl History {
    /// Adds an attempt, and removes the oldest beyond ten.
    pub fn push(&mut self, mut failed: FailedAttempt) {
        failed.error = cut_middle(failed.error, ERROR_LENGTH);
        self.0.push(failed);
        let excess = self.0.len().saturating_sub(HISTORY_LENGTH);
        self.0.drain(..excess);
    }

    /// Encodes the history. An empty one has no bytes.
    pub fn encode(&self) -> Bytes {
        if self.0.is_empty() {
            return Bytes::new();
        }
        serde_json::to_vec(&self.0).unwrap_or_default().into()
    }

    /// Decodes a history. Bytes that cannot be read give an empty one.
    pub fn decode(bytes: &[u8]) -> Self {
        Self(serde_json::from_slice(bytes).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::scripts;

    #[test]
    fn each_outcome_has_a_word_and_a_byte_of_its_own() {
        let rows = || Ending::ALL.iter().map(|ending| ending.row());
        let words: HashSet<_> = rows().map(|row| row.word).collect();
        assert_eq!(words.len(), Ending::ALL.len());
        let codes: Vec<_> = rows().filter_map(|row| row.code).collect();
        assert_eq!(codes.len(), codes.iter().collect::<HashSet<_>>().len());
        for ending in Ending::ALL {
            let Some(code) = ending.row().code else { continue };
            assert_eq!(Ending::from_code(code), Some((*ending, None)));
            assert!(!ending.row().shown.is_empty(), "{ending:?}: a tail shows it");
        }
        assert_eq!(Ending::from_code(b'x'), Some((Ending::Dead, Some(DeadReason::Exhausted))));
        assert_eq!(Ending::from_code(b'?'), None);
    }

    #[test]
    fn settle_lua_has_a_function_for_each_of_its_outcomes_and_says_so() {
        let text = &scripts::SETTLE.text;
        let (_, header) = text.split_once("--   what: ").expect("what it takes");
        let (header, _) = header.split_once("-- Returns").expect("what it returns");
        let names: HashSet<_> = Ending::ALL.iter().filter_map(|ending| ending.row().lua).collect();
        for name in &names {
            assert!(
                text.contains(&format!("function ends.{name}(")),
                "no function ends.{name} in settle.lua"
            );
            assert!(header.contains(&format!("'{name}'")), "the header of settle.lua does not name '{name}'");
        }
        assert_eq!(text.matches("\nfunction ends.").count(), names.len(), "a function without a row");
    }

    #[test]
    fn some_script_says_each_byte() {
        let says =
            |byte: &u8| scripts::all().any(|script| script.text.contains(&format!("'{}'", *byte as char)));
        for code in Ending::ALL.iter().filter_map(|ending| ending.row().code) {
            assert!(says(&code), "no script has {}", code as char);
        }
    }

    #[test]
    fn reasons_have_one_byte_and_one_word_each() {
        let word_of = |code: u8| {
            let reason = DeadReason::from_code(code);
            assert_eq!(reason.code(), code);
            reason.as_str()
        };
        let words = b"xpdosliu?".map(word_of);
        let expected = [
            "exhausted",
            "permanent",
            "undecodable",
            "too_old",
            "snoozed",
            "lost_leases",
            "inherited",
            "unreadable",
            "other",
        ];
        assert_eq!(words, expected);
    }

    #[test]
    fn a_history_keeps_the_last_ten_and_cuts_errors() {
        let mut history = History::default();
        for attempt in 1..=12 {
            history.push(FailedAttempt {
                attempt,
                at: SystemTime::UNIX_EPOCH,
                kind: "error".into(),
                error: "ä".repeat(600),
            });
        }
        assert_eq!(history.0.len(), HISTORY_LENGTH);
        assert_eq!(history.0[0].attempt, 3);
        assert!((ERROR_LENGTH - 1..=ERROR_LENGTH).contains(&history.0[0].error.len()));
        assert_eq!(History::decode(&history.encode()), history);
    }
}
