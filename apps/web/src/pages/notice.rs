//! What became of an action, said above the page that follows. It is in that page's address, as a word of a list and
//! numbers: no text of others is ever taken from there.

use keylapse_console::{BulkReport, Done, show_count};
use serde::Deserialize;

/// In an address.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Said {
    /// The outcome of a [`Done`], or `bulk`.
    did: String,
    done: u64,
    skipped: u64,
    failed: u64,
}

/// To be shown.
#[derive(Clone, Debug)]
pub(super) struct Notice {
    pub(super) text: String,
    pub(super) is_good: bool,
}

impl Notice {
    pub(super) fn of(said: &Said) -> Option<Self> {
        if said.did == BULK {
            return Some(Self::of_bulk(said));
        }
        let (is_good, says) = Done::of_word(&said.did)?;
        Some(Self { text: upper(says), is_good })
    }

    fn of_bulk(said: &Said) -> Self {
        let numbers = [(said.done, "done"), (said.skipped, "left alone"), (said.failed, "failed")];
        let words = numbers.into_iter().enumerate().filter(|(at, (number, _))| *at == 0 || *number > 0);
        let words: Vec<_> =
            words.map(|(_, (number, word))| format!("{} {word}", show_count(number))).collect();
        Self { text: format!("{}.", words.join(", ")), is_good: said.failed == 0 }
    }
}

const BULK: &str = "bulk";

/// The fields of an address that say it.
pub(super) fn fields(report: &BulkReport) -> [(&'static str, String); 4] {
    [
        ("did", BULK.to_owned()),
        ("done", report.done.to_string()),
        ("skipped", report.skipped.to_string()),
        ("failed", report.failed.to_string()),
    ]
}

fn upper(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|first| first.to_ascii_uppercase());
    first.into_iter().chain(letters).chain(['.']).collect()
}
