//! Table rows of timers, dead letters, tracked keys and failed attempts.

use keylapse::dead_letters::FailedAttempt;
use keylapse_console::format::{short, size};
use keylapse_console::{Entry, EntryState, text};

use super::frame::{Frame, Time};
use crate::time::ms_of;

/// Maximum bytes of a key in a row.
const KEY: usize = 160;
/// Maximum characters of an error in a row.
const ERROR: usize = 240;

/// The row of an entry.
pub(super) struct EntryRow {
    pub(super) key: String,
    /// `None` if the key is too long for an address.
    pub(super) link: Option<String>,
    pub(super) when: Time,
    pub(super) attempt: u32,
    pub(super) lost: u8,
    pub(super) payload: String,
    pub(super) reason: &'static str,
    pub(super) error: String,
}

impl EntryRow {
    pub(super) fn of(entry: &Entry, now_ms: u64, frame: &Frame) -> Self {
        let at_ms = match entry.state {
            // A tracked key may be read earlier than it expires.
            EntryState::Tracked => entry.deadline_ms.unwrap_or(entry.at_ms),
            _ => entry.at_ms,
        };
        Self {
            key: key(&entry.key),
            link: frame.timer(&entry.topic, &text::escape(&entry.key)),
            when: Time::new(at_ms, now_ms),
            attempt: entry.attempt,
            lost: entry.lost_leases,
            payload: size(entry.payload_bytes),
            reason: entry.reason.map_or("", |reason| reason.as_str()),
            error: short(entry.last_error().unwrap_or_default(), ERROR),
        }
    }
}

/// Returns a key as it is shown in a row.
pub(super) fn key(key: &[u8]) -> String {
    cut(key, KEY)
}

/// Returns at most `most` bytes of a key, escaped.
pub(super) fn cut(key: &[u8], most: usize) -> String {
    let head = &key[..key.len().min(most)];
    let cut = if head.len() < key.len() { "…" } else { "" };
    format!("{}{cut}", text::escape(head))
}

/// Returns the heading for the times of entries in a state.
pub(super) fn when(state: EntryState) -> &'static str {
    match state {
        EntryState::Running => "Lease ends",
        EntryState::Dead => "Died",
        EntryState::Tracked => "Expires",
        _ => "Due",
    }
}

pub(super) struct FailureRow {
    pub(super) attempt: u32,
    pub(super) when: Time,
    pub(super) kind: String,
    pub(super) error: String,
}

impl FailureRow {
    /// Returns the failed attempts, newest first, because readers mostly look for that one.
    pub(super) fn all(failures: &[FailedAttempt], now_ms: u64) -> Vec<Self> {
        let one = |failed: &FailedAttempt| Self {
            attempt: failed.attempt,
            when: Time::new(ms_of(failed.at), now_ms),
            kind: short(&failed.kind, 20),
            error: short(&failed.error, 600),
        };
        failures.iter().rev().map(one).collect()
    }
}
