//! Any bytes, decoded as what stands in Redis: records, states, letters, histories.

use bytes::Bytes;

use crate::fuzzing::assert_fit_for_a_log;
use keylapse_connection::id::{ArmingId, Token};
use keylapse_wire::{DeadReason, FailedAttempt, History, Record, State, StoredDeadLetter};
use keylapse_wire::{ERROR_LENGTH, HISTORY_LENGTH, Unreadable};

/// What can be read is written as it was, read again as the same, and not read when it is cut short.
pub(crate) fn record(data: &[u8]) {
    let bytes = Bytes::copy_from_slice(data);
    check_record(&bytes);
    check_state(&bytes);
    check_letter(&bytes);
    check_history(data);
}

fn check_record(bytes: &Bytes) {
    let (read, trace) = (Record::decode(bytes.clone()), Record::traceparent(bytes));
    assert_eq!(read.is_ok(), is_readable(bytes, 17) || trace.is_some());
    let Ok(record) = read else { return };
    assert_eq!(record.arming, ArmingId(array(bytes, 1)));
    assert_eq!(record.deadline, u64::from_be_bytes(array(bytes, 9)));
    let head = 17 + trace.map_or(0, |trace| trace.0.len());
    assert_eq!(record.payload, bytes.slice(head..));
    assert!(trace.is_some() || record.encode() == bytes);
    assert_eq!(Record::decode(bytes.slice(..head - 1)), Err(Unreadable));
}

fn check_state(bytes: &Bytes) {
    let read = State::decode(bytes.clone());
    assert_eq!(read.is_ok(), is_readable(bytes, 25));
    let Ok(state) = read else { return };
    assert_eq!(state.claimed, bytes[1] == 1);
    assert_eq!(state.token, Token(array(bytes, 2)));
    assert_eq!((state.attempt, state.lost), (u32::from_be_bytes(array(bytes, 10)), bytes[14]));
    assert_eq!(state.snoozes, u16::from_be_bytes(array(bytes, 15)));
    assert_eq!(state.deadline, u64::from_be_bytes(array(bytes, 17)));
    assert_eq!(state.encode()[2..], bytes[2..], "of the second byte, all but 1 means no");
    assert_eq!(State::decode(state.encode()), Ok(state));
    assert_eq!(State::decode(bytes.slice(..24)), Err(Unreadable));
}

fn check_letter(bytes: &Bytes) {
    let Ok(letter) = StoredDeadLetter::decode(bytes.clone()) else { return };
    assert_eq!(letter.encode(), bytes);
    assert_eq!(letter.reason.code(), bytes[1]);
    assert_eq!(DeadReason::from_code(bytes[1]), letter.reason);
    assert_fit_for_a_log(letter.reason.as_str(), 20);
    let state_ends = 14 + letter.state.len();
    assert_eq!(StoredDeadLetter::decode(bytes.slice(..state_ends - 1)), Err(Unreadable));
    check_record(&letter.record);
    check_state(&letter.state);
}

/// However long a history somebody has written, what is added to it is bounded.
fn check_history(bytes: &[u8]) {
    let mut history = History::decode(bytes);
    assert_eq!(History::decode(&history.encode()), history);
    let failed = FailedAttempt {
        attempt: 1,
        at: std::time::UNIX_EPOCH,
        kind: "error".into(),
        error: "é".repeat(ERROR_LENGTH),
    };
    history.push(failed);
    let last = history.0.last().expect("one was added");
    assert!(history.0.len() <= HISTORY_LENGTH && last.error.len() <= ERROR_LENGTH);
}

/// Whether these bytes have a head of this length, and of our version.
fn is_readable(bytes: &[u8], head: usize) -> bool {
    bytes.len() >= head && bytes[0] == 1
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("as long as asked for")
}
