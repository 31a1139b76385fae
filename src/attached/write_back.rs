//! Keys that are written back for their retries, with the number of the attempt to come: off unless a topic asks
//! for it.
//!
//! The retry lives in the index, as any other; the key is a copy of it for others to see. So:
//!
//! 1. once the retry is settled, the key is written if its name is free, with the retry's deadline;
//! 2. when the retry is claimed, the key is read: if its writer has created it again, the retry gives way;
//! 3. otherwise it is said that the key was ours (returned.lua), so that its announcement is no lapse (note.lua);
//!    and what is heard or read of a key that was written back is compared with its deadline (history.lua).
//!
//! What follows from that stands in docs/attach.md, beside the setting: a key that is written back exists again, for
//! whoever looks. A crash between the settlement and 1 costs the key, never the retry. A key that is deleted
//! before its retry cannot be told from one that has expired, and is retried. The value is as it was last read. Where
//! none is known, or fields of a hash were kept, none is written, and the retry runs all the same.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use bytes::Bytes;
use serde_json::value::RawValue;
use tokio::time::Instant;

use crate::error::Result;
use crate::escape::Escaped;
use crate::log::{debug, warn};
use crate::policy::{Capture, Counting};
use crate::runtime::{Partition, RunningTopic};
use crate::wire::copy::{DUMP, STRING, take_head};
use crate::wire::{End, Life, State, Trigger, TriggerKey};

/// How long a key may outlive its deadline: while clients are paused, it does.
const OUTLIVES: Duration = Duration::from_secs(1);
/// In its deadline's own millisecond a key is still there.
const SOON: Duration = Duration::from_millis(2);

/// The value to be written back where an attempt ends so, with the byte that says what it is. None but for a retry
/// with the next attempt number: what could not be decoded is put off, and comes again as the same attempt.
pub(crate) fn value(
    topic: &RunningTopic,
    payload: &Bytes,
    state: &State,
    end: Option<&End>,
) -> Option<Bytes> {
    match end {
        Some(End::Retry { attempt, .. }) if *attempt > state.attempt => written(topic, payload, *attempt),
        _ => None,
    }
}

/// Whether the key may have been written back for this attempt, so that its writer may have been first. Of one that
/// cannot have been no announcement is to come.
pub(crate) fn may_be_back(topic: &RunningTopic, payload: &Bytes, state: &State) -> bool {
    state.attempt > 1 && written(topic, payload, state.attempt).is_some()
}

fn written(topic: &RunningTopic, payload: &Bytes, attempt: u32) -> Option<Bytes> {
    topic.config.attach.as_ref()?;
    counted(payload, &topic.policy().topic.write_back, attempt)
}

/// Writes keys back until their retries. One that is not written is retried all the same.
pub(crate) async fn write_back(partition: &Partition, retries: &[Trigger], values: &HashMap<Bytes, Bytes>) {
    for retry in retries.iter().filter(|retry| retry.attempt > 1) {
        let Some(value) = values.get(&retry.key) else { continue };
        match partition.store.write_back(&retry.key, retry.deadline, value).await {
            Ok(TriggerKey::Set) => partition.topic.attached.restored.add(1),
            Ok(_) => {}
            Err(error) => {
                let topic = &partition.topic.config.name;
                warn!(%topic, key = %Escaped(&retry.key), %error, "not written back; retried from the index alone");
            }
        }
    }
}

/// Whether the key was written back for this attempt, and its writer has created it again. If not, and it was
/// announced as expired or will be, that is said to be no lapse.
pub(crate) async fn writer_came_first(partition: &Partition, key: &Bytes, deadline: u64) -> bool {
    match is_theirs(partition, key, deadline).await {
        Ok(true) => {
            debug!(key = %Escaped(key), "its writer has created the key again: the retry gives way");
            return true;
        }
        Ok(false) => {
            if let Err(error) = partition.store.returned(&partition.names, key, deadline).await {
                debug!(%error, "not written down that the key was ours: its announcement may run as another lapse");
            }
        }
        Err(error) => {
            debug!(%error, "whether its writer has created the key again is not known: the retry runs");
        }
    }
    false
}

/// Whether a key that was written back until `deadline` is its writer's now. It is nobody's where it has
/// expired, or was never written back.
async fn is_theirs(partition: &Partition, key: &Bytes, deadline: u64) -> Result<bool> {
    let patience = Instant::now() + OUTLIVES;
    loop {
        let found = partition.store.read(std::slice::from_ref(key), &Capture::default()).await?;
        match found.first().map(|found| found.life) {
            None | Some(Life::Gone | Life::Elsewhere) => return Ok(false),
            Some(Life::Until(until)) if until == deadline && Instant::now() < patience => {
                tokio::time::sleep(SOON).await;
            }
            Some(Life::Until(until)) => return Ok(until != deadline),
            Some(Life::Lasting) => return Ok(true),
        }
    }
}

/// The copy in a lapse's payload, with the attempt counted in it where that is asked for.
fn counted(payload: &Bytes, how: &Counting, attempt: u32) -> Option<Bytes> {
    let mut copy = payload.clone();
    let kind = take_head(&mut copy).and_then(|_| copy.first());
    match (how, kind) {
        (Counting::Never, _) => None,
        (Counting::Alone, _) => Some([&[STRING][..], attempt.to_string().as_bytes()].concat().into()),
        (Counting::In(field), Some(&STRING)) => Some(in_json(&copy[1..], field, attempt).unwrap_or(copy)),
        (_, Some(&(STRING | DUMP))) => Some(copy),
        _ => None,
    }
}

/// The JSON object with this field set to the number of the attempt; none if it is no object. All else stays as its writer
/// wrote it.
fn in_json(value: &[u8], field: &str, attempt: u32) -> Option<Bytes> {
    let fields: BTreeMap<String, &RawValue> = serde_json::from_slice(value).ok()?;
    let (place, text) = if let Some(before) = fields.get(field) {
        let begins = before.get().as_ptr().addr() - value.as_ptr().addr();
        (begins..begins + before.get().len(), attempt.to_string())
    } else {
        let brace = value.trim_ascii_end().len() - 1;
        let comma = if fields.is_empty() { "" } else { "," };
        (brace..brace, format!("{comma}{}:{attempt}", serde_json::to_string(field).ok()?))
    };
    Some([&[STRING], &value[..place.start], text.as_bytes(), &value[place.end..]].concat().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copied(payload: &'static [u8], field: Option<&str>) -> Option<Bytes> {
        let how = field.map_or(Counting::Nowhere, |field| Counting::In(field.into()));
        counted(&Bytes::from_static(payload), &how, 3)
    }

    #[test]
    fn the_attempt_is_counted_in_the_field_of_a_json_object_alone() {
        let json = |payload, field| copied(payload, field).map(|copy| copy.to_vec());
        assert_eq!(json(b"\x00\x02{\"a\":1}", None).unwrap(), b"\x02{\"a\":1}");
        assert_eq!(json(b"\x00\x02{\"a\":1,\"z\":0}", Some("a")).unwrap(), b"\x02{\"a\":3,\"z\":0}");
        for other in [&b"\x00\x02[1]"[..], b"\x00\x02plain", b"\x00\x02"] {
            assert_eq!(json(other, Some("a")).unwrap(), other[1..], "{}", other.escape_ascii());
        }
    }

    #[test]
    fn all_else_of_the_object_stays_as_it_was_written() {
        for (before, after) in [
            (r#"{"n":1.10,"a":1}"#, r#"{"n":1.10,"a":3}"#),
            (r#"{"a":"x","n":1234567890123456789012345}"#, r#"{"a":3,"n":1234567890123456789012345}"#),
            (r#"{"z":1,"b":2,"b":1e400}"#, r#"{"z":1,"b":2,"b":1e400,"a":3}"#),
            ("\n{ \"a\" : [1, {\"a\": 2}] }\n", "\n{ \"a\" : 3 }\n"),
            // Readers take the last of two.
            (r#"{"a":1,"a":2}"#, r#"{"a":1,"a":3}"#),
            (r#"{"\u0061":2}"#, r#"{"\u0061":3}"#),
            ("{ }", "{ \"a\":3}"),
        ] {
            let copy = in_json(before.as_bytes(), "a", 3).unwrap();
            assert_eq!(std::str::from_utf8(&copy[1..]), Ok(after), "{before}");
        }
    }

    #[test]
    fn a_count_needs_no_copy() {
        for payload in [&b"\x00\x022"[..], b"\x00\x00", b"\x00\x03dump", b""] {
            let value = counted(&Bytes::from_static(payload), &Counting::Alone, 3);
            assert_eq!(value.as_deref(), Some(&b"\x023"[..]));
        }
    }

    #[test]
    fn without_a_copy_nothing_is_written() {
        for none in [&b"\x00\x00"[..], b"\x00\x0199", b"\x00\x05\0\0\0\0\0\0\0\0", b"\x00", b""] {
            assert_eq!((copied(none, None), copied(none, Some("a"))), (None, None));
        }
        assert_eq!(copied(b"\x00\x03dump", Some("a")).unwrap(), &b"\x03dump"[..]);
        // The time of its reading stands before it.
        assert_eq!(copied(b"\x10\x00\x00\x01\x8b\xcf\xe5\xa2\x98\x02x", None).unwrap(), &b"\x02x"[..]);
        assert_eq!(copied(b"\x10\x00\x00\x01", None), None);
    }
}
