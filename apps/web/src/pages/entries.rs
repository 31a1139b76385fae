//! Timers, letters and enrolled keys in lines, and what can be done to them.

use keylapse::dead_letters::FailedAttempt;
use keylapse_console::words::{short, size};
use keylapse_console::{Entry, EntryState, text};

use super::frame::{Frame, Time};
use crate::time::ms_of;

/// Bytes of a key that are shown in a line.
const KEY: usize = 160;
/// Characters of an error that are shown in a line.
const ERROR: usize = 240;

/// An entry, in a line.
pub(super) struct Line {
    pub(super) key: String,
    /// None where the key is too long for an address.
    pub(super) link: Option<String>,
    pub(super) when: Time,
    pub(super) attempt: u32,
    pub(super) lost: u8,
    pub(super) payload: String,
    pub(super) reason: &'static str,
    pub(super) error: String,
}

impl Line {
    pub(super) fn of(entry: &Entry, now_ms: u64, frame: &Frame) -> Self {
        let at_ms = match entry.state {
            // It is looked at earlier than it expires.
            EntryState::Enrolled => entry.deadline_ms.unwrap_or(entry.at_ms),
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

/// A key as it is shown in a line.
pub(super) fn key(key: &[u8]) -> String {
    cut(key, KEY)
}

/// At most so many bytes of a key.
pub(super) fn cut(key: &[u8], most: usize) -> String {
    let head = &key[..key.len().min(most)];
    let cut = if head.len() < key.len() { "…" } else { "" };
    format!("{}{cut}", text::escape(head))
}

/// What the times of entries in a state are.
pub(super) fn when(state: EntryState) -> &'static str {
    match state {
        EntryState::Running => "Lease ends",
        EntryState::Dead => "Died",
        EntryState::Enrolled => "Expires",
        _ => "Due",
    }
}

/// A failed attempt.
pub(super) struct Failure {
    pub(super) attempt: u32,
    pub(super) when: Time,
    pub(super) kind: String,
    pub(super) error: String,
}

impl Failure {
    /// The newest first: it is mostly the one that is looked for.
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
