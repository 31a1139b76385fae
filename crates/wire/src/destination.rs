//! How the places are that handlers call, for operators.

use std::fmt::Debug;

use serde::{Deserialize, Serialize};

use crate::counted::is_zero;
use crate::escape::cut;

/// The places that the handlers of a topic call, such as hosts. A listener reports them every five seconds, so that
/// operators see by whom work is held back. See `Topic::destinations`.
pub trait Destinations: Debug + Send + Sync {
    /// Returns how they are now. A report has room for the twenty worst of a topic.
    fn states(&self) -> Vec<Destination>;

    /// An operator asks for a call to the one with this name now, although it is held back. Names of others are to be ignored.
    fn try_now(&self, name: &str);

    /// Returns a short text by which what the handlers do is compared: operators are told of listeners of one topic that
    /// differ, as after a URL was changed in one of two files. At most 64 bytes are reported; it may be a hash. By default
    /// nothing is compared.
    fn identity(&self) -> Option<String> {
        None
    }
}

/// How one of them is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Destination {
    /// Its name, such as `shop.example:443`. At most 255 bytes are reported.
    pub name: String,
    /// The state of calls to it.
    pub state: DestinationState,
    /// How many calls in a row have failed.
    #[serde(skip_serializing_if = "is_zero")]
    pub failures: u32,
    /// After how long it is called again, in ms, where nobody calls it before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_in_ms: Option<u64>,
    /// The last answer, such as `503 Service Unavailable`. At most 100 bytes are reported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_answer: Option<String>,
    /// Why the last call that failed did so. At most 200 bytes are reported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
}

/// The states of a destination.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum DestinationState {
    /// It is, and the last call went well.
    #[default]
    Ok,
    /// It is, and the last call failed.
    Failing,
    /// It asked to be called later.
    Busy,
    /// It is not: too many calls in a row have failed. One that is under way tries whether it answers again.
    /// States of later releases are read as this.
    #[serde(other)]
    Open,
}

impl DestinationState {
    /// Returns a word for it: `ok`, `failing`, `busy` or `open`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Failing => "failing",
            Self::Busy => "busy",
            Self::Open => "open",
        }
    }

    /// Returns whether timers wait because of it.
    pub fn holds_back(self) -> bool {
        matches!(self, Self::Busy | Self::Open)
    }
}

/// The longest name that is reported, in bytes.
pub const MAX_NAME: usize = 255;
/// What a report has room for, of a topic.
const REPORTED: usize = 20;

impl Destination {
    /// Returns one with this name, in this state.
    pub fn new(name: impl Into<String>, state: DestinationState) -> Self {
        Self { name: name.into(), state, ..Self::default() }
    }

    /// Keeps the worst, within the limits of a report.
    #[doc(hidden)]
    pub fn reported(mut all: Vec<Self>) -> Vec<Self> {
        all.sort_by(|one, other| (other.state, &one.name).cmp(&(one.state, &other.name)));
        all.truncate(REPORTED);
        for one in &mut all {
            one.name = cut(&one.name, MAX_NAME).to_owned();
            one.last_answer.iter_mut().for_each(|text| *text = cut(text, 100).to_owned());
            one.last_error.iter_mut().for_each(|text| *text = cut(text, 200).to_owned());
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_are_reported_in_bounded_texts() {
        let one = |state, n: usize| Destination {
            last_error: Some("é".repeat(500)),
            ..Destination::new(format!("{n:0300}"), state)
        };
        let states = [DestinationState::Ok, DestinationState::Open, DestinationState::Busy];
        let all = (0..60).map(|n| one(states[n % 3], n)).collect();
        let reported = Destination::reported(all);
        assert_eq!(reported.len(), REPORTED);
        assert!(reported.iter().all(|one| one.state == DestinationState::Open));
        let long = |one: &Destination| one.name.len() > 255 || one.last_error.as_ref().unwrap().len() > 200;
        assert!(!reported.iter().any(long));
    }

    #[test]
    fn a_state_of_a_later_release_is_read_as_open() {
        let read: Destination = serde_json::from_str(r#"{"name":"a","state":"melted"}"#).unwrap();
        assert_eq!(read, Destination::new("a", DestinationState::Open));
    }
}
