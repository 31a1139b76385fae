//! What can be done to entries, in the words of the command line.

use std::time::Duration;

use keylapse::When;
use keylapse_console::{Action, EntryState};
use serde::Deserialize;

/// As a request names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) enum Verb {
    RunNow,
    Reschedule,
    Cancel,
    Replay,
    ReplayAsNew,
    Drop,
}

impl Verb {
    const ALL: [Self; 6] =
        [Self::RunNow, Self::Reschedule, Self::Cancel, Self::Replay, Self::ReplayAsNew, Self::Drop];

    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::RunNow => "run-now",
            Self::Reschedule => "reschedule",
            Self::Cancel => "cancel",
            Self::Replay => "replay",
            Self::ReplayAsNew => "replay-as-new",
            Self::Drop => "drop",
        }
    }

    /// Those that can work upon entries in a state.
    pub(crate) fn of(state: EntryState) -> &'static [Self] {
        match state {
            EntryState::Waiting | EntryState::Quarantined => &[Self::RunNow, Self::Reschedule, Self::Cancel],
            EntryState::Running => &[Self::Cancel],
            EntryState::Dead => &[Self::Replay, Self::ReplayAsNew, Self::Drop],
            _ => &[],
        }
    }

    /// The entries that it is mostly for.
    pub(crate) fn state(self) -> EntryState {
        match Self::of(EntryState::Dead).contains(&self) {
            true => EntryState::Dead,
            false => EntryState::Waiting,
        }
    }

    /// As the console takes it; a reschedule with its time.
    pub(crate) fn action(self, to: When) -> Action {
        match self {
            Self::RunNow => Action::RunNow,
            Self::Reschedule => Action::Reschedule(to),
            Self::Cancel => Action::Cancel,
            Self::Replay => Action::Replay,
            Self::ReplayAsNew => Action::ReplayAsNew,
            Self::Drop => Action::Drop,
        }
    }
}

impl TryFrom<String> for Verb {
    type Error = String;

    fn try_from(word: String) -> Result<Self, String> {
        Self::ALL.into_iter().find(|verb| verb.word() == word).ok_or_else(|| {
            let all = Self::ALL.map(Self::word).join(", ");
            format!("there is no action of this name: there are {all}")
        })
    }
}

/// For a verb that needs no time.
pub(crate) const NOW: When = When::In(Duration::ZERO);
