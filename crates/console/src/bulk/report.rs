//! What became of entries that were acted upon.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::Cursor;
use crate::act::Became;
use crate::error::{Error, Result};

/// Failures that a report names.
const NAMED: usize = 10;

/// What became of them.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct BulkReport {
    /// Entries that the filter let pass, up to the limit.
    pub matched: u64,
    /// Entries that the action was done to; in a dry run none.
    pub done: u64,
    /// Entries that were left alone: gone or changed meanwhile, or of no use for the action.
    pub skipped: u64,
    /// Entries of which the server refused it.
    pub failed: u64,
    /// How many there were of each outcome: by [`Done::outcome`](crate::Done::outcome), and `failed`.
    pub outcomes: BTreeMap<&'static str, u64>,
    /// The first ten failures.
    pub errors: Vec<String>,
    /// How it has ended.
    pub end: BulkEnd,
    /// Where it has ended: to go on from there, if it was cut short.
    #[serde(serialize_with = "cursor_as_text")]
    pub cursor: Option<Cursor>,
}

#[allow(clippy::ref_option)] // as serde asks
fn cursor_as_text<S: serde::Serializer>(
    cursor: &Option<Cursor>,
    out: S,
) -> std::result::Result<S::Ok, S::Error> {
    cursor.as_ref().map(ToString::to_string).serialize(out)
}

/// How a bulk has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum BulkEnd {
    /// All that matches was gone through, or as much as the limit lets through.
    #[default]
    Whole,
    /// It was [told to stop](super::Bulk::until).
    Stopped,
    /// A server was lost on the way: [`BulkReport::errors`] ends with why.
    Lost,
}

impl BulkReport {
    pub(super) fn add(&mut self, became: Result<Became>) {
        self.matched += 1;
        let (count, code) = match became {
            Ok(Became { was_done: true, code, .. }) => (&mut self.done, code),
            Ok(Became { code, .. }) => (&mut self.skipped, code),
            Err(error) => {
                self.name(&error);
                (&mut self.failed, "failed")
            }
        };
        *count += 1;
        *self.outcomes.entry(code).or_default() += 1;
    }

    /// Ends it where a server was lost.
    pub(super) fn lose(mut self, error: &Error) -> Self {
        self.end = BulkEnd::Lost;
        self.errors.truncate(NAMED - 1);
        self.name(error);
        self
    }

    fn name(&mut self, error: &Error) {
        if self.errors.len() < NAMED {
            self.errors.push(error.to_string());
        }
    }
}

impl std::fmt::Display for BulkReport {
    /// The last line of a command: `matched=3 done=2 skipped=1 failed=0`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { matched, done, skipped, failed, .. } = self;
        write!(f, "matched={matched} done={done} skipped={skipped} failed={failed}")
    }
}
