//! How attempts and timers end: one row for each outcome, with all the names that it has.
//!
//! Another outcome is a row here and a function in settle.lua. Tests compare both with each other and with the pages.
//! Why a timer is given up, and the failed attempts that are remembered, stand here too.

use std::time::SystemTime;

use bytes::Bytes;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::escape::cut_middle;
use crate::time::{system_time, unix_ms};

/// What an outcome is called, and where it counts.
#[derive(Debug)]
pub struct EndingInfo {
    /// Its word: in metrics, histories, the journal and the tail.
    pub word: &'static str,
    /// What settle.lua calls it; none where that is not told so.
    pub lua: Option<&'static str>,
    /// Its byte in the journal and the tail. Small letters are dead letters, by their reasons.
    pub code: Option<u8>,
    /// What a tail shows, which names what is known then.
    pub shown: &'static str,
    /// What an attempt counts that ends so; none where no attempt does.
    pub attempt: Option<&'static [&'static str]>,
    /// What is counted once Redis has it.
    pub settled: Option<&'static str>,
    /// Whether the same arming has another attempt, or goes on with this one.
    pub goes_on: bool,
}

impl EndingInfo {
    const NONE: Self =
        Self { word: "", lua: None, code: None, shown: "", attempt: None, settled: None, goes_on: false };
}

macro_rules! outcomes {
    ($($(#[$doc:meta])* $name:ident { $($field:ident: $value:expr),* })*) => {
        /// What happens to a timer: its attempt starts or ends, or it ends itself.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Ending {
            $($(#[$doc])* $name,)*
        }

        impl Ending {
            /// Each of them.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// Its names.
            pub fn row(self) -> &'static EndingInfo {
                match self {
                    $(Self::$name => {
                        #[allow(clippy::needless_update)] // one may have all fields
                        const ROW: EndingInfo = EndingInfo { $($field: $value,)* ..EndingInfo::NONE };
                        &ROW
                    })*
                }
            }
        }
    };
}

outcomes! {
    /// A listener has taken it, and starts its attempt once it is due.
    Started {
        word: "started", code: Some(b'B'), shown: "attempt {attempt} taken, {late} late", goes_on: true
    }
    /// Its handler said that it is done, or that it is to be dropped.
    Done { word: "done", code: Some(b'D'), shown: "done at attempt {attempt}", attempt: Some(&["handled"]) }
    /// Its handler dropped it: the journal and the tail call that done.
    Dropped { word: "dropped", attempt: Some(&["dropped"]) }
    /// The key was written back for this attempt, and its writer has taken it.
    Superseded { word: "superseded", attempt: Some(&["superseded"]) }
    /// It is done, and runs again as another arming.
    Again {
        word: "again", lua: Some("again"), code: Some(b'A'), shown: "done; again {next}",
        attempt: Some(&["handled"]), settled: Some("again")
    }
    /// Its attempt was put off.
    Snoozed {
        word: "snoozed", lua: Some("snooze"), code: Some(b'Z'), shown: "put off; attempt {attempt} {next}",
        attempt: Some(&[]), settled: Some("snoozed"), goes_on: true
    }
    /// Its attempt ended with an error.
    Error { word: "error", attempt: Some(&["failed"]) }
    /// Its handler panicked.
    Panic { word: "panic", attempt: Some(&["failed", "panics"]) }
    /// Its handler took longer than it may.
    Timeout { word: "timeout", attempt: Some(&["failed", "timeouts"]) }
    /// Its payload is not of the topic's type.
    Undecodable { word: "undecodable", attempt: Some(&["failed"]) }
    /// Its attempt has failed, and there will be another.
    Retry {
        word: "retry", lua: Some("retry"), code: Some(b'T'), shown: "failed; attempt {attempt} {next}",
        settled: Some("retried"), goes_on: true
    }
    /// It became a dead letter.
    Dead { word: "dead", lua: Some("dead"), shown: "dead at attempt {attempt}: {reason}", settled: Some("dead") }
    /// Its handler was stopped, as the listener is.
    Stopped { word: "stopped", attempt: Some(&[]) }
    /// Its attempt was handed back, as a listener has stopped.
    Released {
        word: "released", lua: Some("release"), code: Some(b'H'), shown: "handed back; attempt {attempt} {next}",
        settled: Some("released"), goes_on: true
    }
    /// The timer was not this listener's any more when the attempt ended.
    Lost { word: "lost", attempt: Some(&["fenced"]) }
    /// Its attempt failed, and an arming that was kept for later took its place.
    ReplacedByQueued {
        word: "replaced_by_queued", code: Some(b'G'), shown: "failed; the arming behind it {next}",
        settled: Some("superseded")
    }
    /// It was armed again before it ran.
    Replaced { word: "replaced", code: Some(b'R'), shown: "replaced" }
    /// It was cancelled.
    Cancelled { word: "cancelled", code: Some(b'C'), shown: "cancelled" }
}

impl Ending {
    /// The ending of a byte, and of a dead letter why.
    pub(crate) fn from_code(code: u8) -> Option<(Self, Option<DeadReason>)> {
        if code.is_ascii_lowercase() {
            return Some((Self::Dead, Some(DeadReason::from_code(code))));
        }
        let known = Self::ALL.iter().find(|ending| ending.row().code == Some(code))?;
        Some((*known, None))
    }

    /// A word for tables.
    pub fn as_str(self) -> &'static str {
        self.row().word
    }
}

impl Serialize for Ending {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_str(self.as_str())
    }
}

/// Why a timer ended in the dead letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DeadReason {
    /// The last attempt that the topic allows has failed.
    Exhausted,
    /// The handler said so.
    Permanent,
    /// The payload is not of the topic's type.
    Undecodable,
    /// Older than the topic allows.
    TooOld,
    /// Snoozed more often than the topic allows.
    Snoozed,
    /// It took its listeners down: five leases lost, the last of them alone.
    LostLeases,
    /// It never ran: an attempt of the same key armed it, and then took its listener down once too often.
    Inherited,
    /// The record itself could not be read; the letter keeps its bytes.
    Unreadable,
    /// A reason that this version does not know.
    Other(u8),
}

impl DeadReason {
    /// The reason's byte, and a word for logs and tables.
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

    /// The reason's byte.
    pub fn code(self) -> u8 {
        self.names().0
    }

    /// Those that this version knows.
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

    /// The reason of a byte.
    pub fn from_code(code: u8) -> Self {
        Self::KNOWN.into_iter().find(|reason| reason.code() == code).unwrap_or(Self::Other(code))
    }

    /// The reason of a word.
    #[doc(hidden)]
    pub fn named(word: &str) -> Option<Self> {
        Self::KNOWN.into_iter().find(|reason| reason.as_str() == word)
    }

    /// A word for logs and tables.
    pub fn as_str(self) -> &'static str {
        self.names().1
    }
}

/// How many failed attempts a history keeps.
pub const HISTORY_LENGTH: usize = 10;
/// How many bytes of an error text a history keeps.
pub const ERROR_LENGTH: usize = 512;

/// One failed attempt, as histories and dead letters keep it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedAttempt {
    /// Which attempt it was, from 1.
    pub attempt: u32,
    /// When it ended, by the server's clock, to the millisecond.
    #[serde(serialize_with = "to_ms", deserialize_with = "from_ms")]
    pub at: SystemTime,
    /// `error`, `panic`, `timeout`, or another short label.
    pub kind: String,
    /// What it said, cut in the middle to 512 bytes: its end names the root cause.
    pub error: String,
}

/// Times in JSON are milliseconds since 1970.
fn to_ms<S: Serializer>(at: &SystemTime, out: S) -> Result<S::Ok, S::Error> {
    out.serialize_u64(unix_ms(*at))
}

fn from_ms<'a, D: Deserializer<'a>>(from: D) -> Result<SystemTime, D::Error> {
    u64::deserialize(from).map(system_time)
}

/// The last ten failed attempts, oldest first: JSON, so that other languages
/// and people can read it. An unreadable history is an empty one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History(pub Vec<FailedAttempt>);

impl History {
    /// Adds an attempt and forgets the oldest beyond ten.
    pub fn push(&mut self, mut failed: FailedAttempt) {
        failed.error = cut_middle(failed.error, ERROR_LENGTH);
        self.0.push(failed);
        let excess = self.0.len().saturating_sub(HISTORY_LENGTH);
        self.0.drain(..excess);
    }

    /// The history's bytes; none for an empty one.
    pub fn encode(&self) -> Bytes {
        if self.0.is_empty() {
            return Bytes::new();
        }
        serde_json::to_vec(&self.0).unwrap_or_default().into()
    }

    /// Reads a history.
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
            assert!(!ending.row().shown.is_empty(), "{ending:?}: a tail is told of it");
        }
        assert_eq!(Ending::from_code(b'x'), Some((Ending::Dead, Some(DeadReason::Exhausted))));
        assert_eq!(Ending::from_code(b'?'), None);
    }

    #[test]
    fn settle_lua_has_a_function_for_each_of_its_outcomes_and_says_so() {
        let text = &scripts::SETTLE.text;
        let (_, header) = text.split_once("--   what: ").expect("what it takes");
        let (header, _) = header.split_once("-- Returns").expect("what it returns");
        let told: HashSet<_> = Ending::ALL.iter().filter_map(|ending| ending.row().lua).collect();
        for name in &told {
            assert!(
                text.contains(&format!("function ends.{name}(")),
                "no function ends.{name} in settle.lua"
            );
            assert!(header.contains(&format!("'{name}'")), "the header of settle.lua does not name '{name}'");
        }
        assert_eq!(text.matches("\nfunction ends.").count(), told.len(), "a function without a row");
    }

    #[test]
    fn some_script_says_each_byte() {
        let says =
            |byte: &u8| scripts::all().any(|script| script.text.contains(&format!("'{}'", *byte as char)));
        for code in Ending::ALL.iter().filter_map(|ending| ending.row().code) {
            assert!(says(&code), "no script says {}", code as char);
        }
    }

    #[test]
    fn reasons_have_one_byte_and_one_word_each() {
        let told = |code: u8| {
            let reason = DeadReason::from_code(code);
            assert_eq!(reason.code(), code);
            reason.as_str()
        };
        let words = b"xpdosliu?".map(told);
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
