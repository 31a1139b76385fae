//! How attempts and timers end: one row for each outcome, with all the names that it has.
//!
//! Another outcome is a row here and a function in settle.lua. Tests compare both with each other and with the pages.

use serde::{Serialize, Serializer};

use super::DeadReason;

/// What an outcome is called, and where it counts.
#[derive(Debug)]
pub struct Row {
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

impl Row {
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
            pub fn row(self) -> &'static Row {
                match self {
                    $(Self::$name => {
                        #[allow(clippy::needless_update)] // one may have all fields
                        const ROW: Row = Row { $($field: $value,)* ..Row::NONE };
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
    GaveWay {
        word: "gave_way", code: Some(b'G'), shown: "failed; the arming behind it {next}",
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
}
