//! The result of an action, shown at the top of the next page. The page's address has it as an outcome of a fixed list and
//! numbers. Text from the address is never shown.

use keylapse_console::{ActionResult, BulkReport, show_count};
use serde::Deserialize;

/// The result of an action, as query parameters.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct NoticeQuery {
    /// The outcome of an [`ActionResult`], or `bulk`.
    outcome: String,
    done: u64,
    skipped: u64,
    failed: u64,
}

/// The result of an action, as it is shown.
#[derive(Clone, Debug)]
pub(super) struct Notice {
    pub(super) text: String,
    pub(super) is_good: bool,
}

impl Notice {
    pub(super) fn of(said: &NoticeQuery) -> Option<Self> {
        if said.outcome == BULK {
            return Some(Self::of_bulk(said));
        }
        let (is_good, says) = ActionResult::of_word(&said.outcome)?;
        Some(Self { text: upper(says), is_good })
    }

    fn of_bulk(said: &NoticeQuery) -> Self {
        let numbers = [(said.done, "done"), (said.skipped, "skipped"), (said.failed, "failed")];
        let words = numbers.into_iter().enumerate().filter(|(at, (number, _))| *at == 0 || *number > 0);
        let words: Vec<_> =
            words.map(|(_, (number, word))| format!("{} {word}", show_count(number))).collect();
        Self { text: format!("{}.", words.join(", ")), is_good: said.failed == 0 }
    }
}

const BULK: &str = "bulk";

/// Returns the query parameters for the result of a bulk action.
pub(super) fn fields(report: &BulkReport) -> [(&'static str, String); 4] {
    [
        ("outcome", BULK.to_owned()),
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
