//! Data for the tests of the screens.

use std::time::SystemTime;

use keylapse::dead_letters::{DeadReason, FailedAttempt};
use keylapse::fleet::{ListenerReport, NodeReport, TopicReport};
use keylapse_console::{
    AttemptSummary, Entry, EntryState, KeyExplanation, Overview, TimelineEvent, TopicState,
};

use crate::commands::top::worker::{ScreenData, TopicRow};

/// 2026-11-25T09:30:00Z.
pub(super) const NOW: u64 = 1_795_599_000_000;

/// A key and an error that would garble the screen without escaping.
pub(super) const HOSTILE: &[u8] = b"order:unpaid:\x1b[2J\x1b[31m\n\xff\xfe";
pub(super) const HOSTILE_ERROR: &str = "boom\u{1b}]0;owned\u{7}\r\n\u{202e}txt.exe 日本語 and so much more that it goes \
                                        beyond the end of any line";

/// Returns an overview with these figures.
fn held(figures: impl FnOnce(&mut Overview)) -> Overview {
    let mut held = Overview::default();
    figures(&mut held);
    held
}

pub(super) fn busy() -> TopicRow {
    let mut recent = AttemptSummary::default();
    (recent.handled, recent.failed) = (979, 21);
    (recent.late_p50_us, recent.late_p99_us) = (Some(500), Some(20_000));
    let held = held(|held| {
        (held.timers, held.quarantined, held.dead) = (123_456, 2, 12);
        (held.overdue, held.undelivered, held.oldest_undelivered_ms) = (3, 5, 130_400);
        (held.due_in_1m, held.due_in_1h) = (250, 15_000);
    });
    TopicRow {
        name: "order.unpaid".to_owned(),
        pattern: "order:unpaid:{id}".to_owned(),
        held,
        running: 7,
        limit: 64,
        listeners: 2,
        rate: Some(41.25),
        recent,
        ..TopicRow::default()
    }
}

pub(super) fn topics() -> ScreenData {
    let unserved = TopicRow {
        name: "mail.reminder".to_owned(),
        standing: TopicState::Unserved,
        said: "no listener serves it".to_owned(),
        held: held(|held| {
            (held.timers, held.overdue, held.undelivered) = (40, 40, 40);
            held.oldest_undelivered_ms = 7_260_000;
        }),
        ..TopicRow::default()
    };
    let paused = TopicRow {
        name: "invoice.due".to_owned(),
        standing: TopicState::Paused,
        said: "paused: the bank is closed\u{1b}[0m until Monday".to_owned(),
        held: held(|held| held.timers = 5),
        limit: 8,
        listeners: 1,
        rate: Some(0.0),
        ..TopicRow::default()
    };
    let attached = TopicRow {
        name: "session.expired.of.customers.abroad".to_owned(),
        attached: true,
        held: held(|held| held.tracked = 1_000_000),
        limit: 16,
        listeners: 1,
        ..TopicRow::default()
    };
    let unreadable = TopicRow {
        name: "user.trial".to_owned(),
        standing: TopicState::Unreadable,
        said: "it cannot be read: WRONGTYPE: kl:{user.trial}:due holds a value of another type".to_owned(),
        ..TopicRow::default()
    };
    let topics = vec![paused, unserved, busy(), attached, unreadable];
    ScreenData { topics, all: 5, now_ms: Some(NOW), ..ScreenData::default() }
}

pub(super) fn entry(key: &[u8], state: EntryState, at_ms: u64) -> Entry {
    let mut entry = Entry::default();
    (entry.key, entry.state, entry.at_ms) = (key.to_vec().into(), state, at_ms);
    (entry.attempt, entry.payload_bytes) = (1, 17);
    entry
}

/// Returns the entry after this many attempts, the last of which failed with this error.
fn failed(entry: Entry, attempt: u32, error: &str) -> Entry {
    let (kind, error) = ("error".to_owned(), error.to_owned());
    let failure = FailedAttempt { attempt, at: SystemTime::UNIX_EPOCH, kind, error };
    let mut failed = entry;
    (failed.attempt, failed.failures) = (attempt, vec![failure]);
    failed
}

fn page(entries: Vec<Entry>) -> ScreenData {
    let (topics, all) = (vec![busy()], entries.len());
    ScreenData { topics, all, entries, now_ms: Some(NOW), ..ScreenData::default() }
}

pub(super) fn waiting() -> ScreenData {
    let ahead = |number: u64| {
        let key = format!("order:unpaid:{number}");
        entry(key.as_bytes(), EntryState::Waiting, NOW + number * 61_000)
    };
    let late = entry(HOSTILE, EntryState::Waiting, NOW - 130_400);
    let retried = failed(entry(b"order:unpaid:again", EntryState::Waiting, NOW + 500), 3, HOSTILE_ERROR);
    page([late, retried].into_iter().chain((1..30).map(ahead)).collect())
}

pub(super) fn dead() -> ScreenData {
    let letter = |key: &[u8], at, reason, error: &str| {
        let mut letter = failed(entry(key, EntryState::Dead, at), 5, error);
        letter.reason = Some(reason);
        letter
    };
    let timeout = "timeout: the payment service did not answer";
    page(vec![
        letter(b"order:unpaid:7", NOW - 90_000_000, DeadReason::Exhausted, timeout),
        letter(HOSTILE, NOW - 61_000, DeadReason::Permanent, HOSTILE_ERROR),
        letter(b"order:unpaid:9", NOW - 5000, DeadReason::Undecodable, ""),
    ])
}

pub(super) fn none() -> ScreenData {
    page(Vec::new())
}

/// Returns a moment of a timeline.
fn moment(at_ms: u64, what: &str) -> TimelineEvent {
    let mut moment = TimelineEvent::default();
    (moment.at_ms, moment.event) = (at_ms, what.to_owned());
    moment
}

/// Returns the answer to a query about a key.
pub(super) fn of_key(why: KeyExplanation) -> ScreenData {
    ScreenData { now_ms: Some(NOW), why: Some(Box::new(why)), ..ScreenData::default() }
}

pub(super) fn of_listeners(listeners: Vec<ListenerReport>) -> ScreenData {
    ScreenData { listeners, ..ScreenData::default() }
}

pub(super) fn timer() -> KeyExplanation {
    let mut why = KeyExplanation::default();
    why.dead_letters = vec![dead().entries.remove(0)];
    why.timeline = vec![
        moment(NOW - 90_062_000, "first deadline"),
        moment(NOW - 90_061_000, "attempt 1 failed: timeout: no answer within 30s"),
        moment(NOW - 90_001_000, &format!("attempt 2 failed: error: {HOSTILE_ERROR}")),
        moment(NOW - 90_000_000, "died: exhausted, after 2 attempts"),
    ];
    why.next = "nothing, unless it is replayed; it died 1d1h ago".to_owned();
    why.blocked_by = vec!["it is a dead letter".to_owned()];
    why.served_by = vec!["worker-1 (process 4711), 7 of 64 attempts running".to_owned()];
    why.now_ms = NOW;
    why
}

pub(super) fn retried() -> KeyExplanation {
    let mut why = timer();
    (why.timer, why.dead_letters) = (Some(waiting().entries.remove(1)), Vec::new());
    why.timeline.pop();
    why.timeline.push(moment(NOW + 500_000, "attempt 3 is due"));
    why.next = "attempt 3 in 8m20s".to_owned();
    why.blocked_by = vec!["it is not due yet".to_owned()];
    why
}

pub(super) fn listeners() -> Vec<ListenerReport> {
    let mut one = ListenerReport::default();
    (one.id, one.host, one.pid) = ("a".to_owned(), "worker-1".to_owned(), 4711);
    (one.version, one.running, one.limit) = ("0.1.0".to_owned(), 7, 64);
    let mut node = NodeReport::default();
    (node.node, node.mode) = ("127.0.0.1:6379".to_owned(), "resp3".to_owned());
    one.nodes.push(node);
    one.topics = ["invoice.due", "order.unpaid"].map(|name| (name.to_owned(), TopicReport::default())).into();
    let mut deaf = one.clone();
    (deaf.id, deaf.host) = ("b".to_owned(), "worker-2\u{1b}[31m".to_owned());
    deaf.nodes[0].gap = Some("the connection for events is down".to_owned());
    vec![one, deaf]
}
