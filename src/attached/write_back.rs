//! Keys that are written back for their retries, where a topic asks for that: the value, the writing, and
//! finding out at the retry whether the key is still ours.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use serde_json::Value as Json;
use tokio::time::Instant;

use crate::error::Result;
use crate::escape::Escaped;
use crate::log::{debug, warn};
use crate::policy::{Capture, WriteBack};
use crate::runtime::Partition;
use crate::topic::TopicConfig;
use crate::wire::copy::{DUMP, STRING};
use crate::wire::{Life, Trigger, TriggerKey};

/// How long a key may outlive its deadline: while clients are paused, it does.
const OUTLIVES: Duration = Duration::from_secs(1);
/// In its deadline's own millisecond a key is still there.
const SOON: Duration = Duration::from_millis(2);

/// The value to be written back for an attempt, with the byte that says what it is; none if there is none, or
/// the topic does not ask for it.
pub(crate) fn value(payload: &Bytes, config: &TopicConfig, attempt: u32) -> Option<Bytes> {
    counted(payload, config.attach.as_ref()?.write_back.as_ref()?, attempt)
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
        let (_, found) = partition.store.read(std::slice::from_ref(key), Capture::default()).await?;
        match found.first().map(|found| found.life) {
            None | Some(Life::Gone) => return Ok(false),
            Some(Life::Until(until)) if until == deadline && Instant::now() < patience => {
                tokio::time::sleep(SOON).await;
            }
            Some(Life::Until(until)) => return Ok(until != deadline),
            Some(Life::Lasting) => return Ok(true),
        }
    }
}

/// The copy in a lapse's payload, with the attempt counted in it where that is asked for.
fn counted(payload: &Bytes, how: &WriteBack, attempt: u32) -> Option<Bytes> {
    let copy = payload.slice(payload.len().min(1)..);
    match *copy.first()? {
        DUMP => Some(copy),
        STRING => {
            Some(how.field.as_ref().and_then(|field| in_json(&copy[1..], field, attempt)).unwrap_or(copy))
        }
        _ => None,
    }
}

/// The JSON object with this field set to the number of the attempt; none if it is no object.
fn in_json(value: &[u8], field: &str, attempt: u32) -> Option<Bytes> {
    let Json::Object(mut object) = serde_json::from_slice(value).ok()? else { return None };
    object.insert(field.to_owned(), attempt.into());
    let mut copy = vec![STRING];
    serde_json::to_writer(&mut copy, &object).ok()?;
    Some(copy.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(payload: &'static [u8], field: Option<&str>) -> Option<Bytes> {
        let how = WriteBack { field: field.map(str::to_owned) };
        counted(&Bytes::from_static(payload), &how, 3)
    }

    #[test]
    fn the_attempt_is_counted_in_the_field_of_a_json_object_alone() {
        let json = |payload, field| written(payload, field).map(|copy| copy.to_vec());
        assert_eq!(json(b"\x00\x02{\"a\":1}", None).unwrap(), b"\x02{\"a\":1}");
        assert_eq!(json(b"\x00\x02{\"a\":1,\"z\":0}", Some("a")).unwrap(), b"\x02{\"a\":3,\"z\":0}");
        for other in [&b"\x00\x02[1]"[..], b"\x00\x02plain", b"\x00\x02"] {
            assert_eq!(json(other, Some("a")).unwrap(), other[1..], "{}", other.escape_ascii());
        }
    }

    #[test]
    fn without_a_copy_nothing_is_written() {
        for none in [&b"\x00\x00"[..], b"\x00\x0199", b"\x00", b""] {
            assert_eq!(written(none, None), None);
        }
        assert_eq!(written(b"\x00\x03dump", Some("a")).unwrap(), &b"\x03dump"[..]);
    }
}
