//! Writes keys back for their retries, with the number of the next attempt, if a topic enables that.
//!
//! The retry is in the index like any other. The key is a copy for other programs:
//!
//! 1. Once the retry is settled, the key is written with the retry's deadline, if its name is free.
//! 2. When the retry is claimed, the key is read. If its writer has created it again, the retry is superseded.
//! 3. Otherwise the expiry of the key is recorded as no lapse (`write_back_expired.lua`, `record_expiries.lua`).
//!    Events and reads of a key that was written back are compared with its deadline (`expiry_history.lua`).
//!
//! docs/attach.md describes the consequences: other programs see a key that exists again. A crash between the
//! settlement and step 1 loses the key, never the retry. A key that is deleted before its retry looks like an expired
//! one, and is retried. The value is the one last read. If no value was read, or only fields of a hash are kept, no
//! key is written, and the retry still runs.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use crate::error::Result;
use crate::escape::Escaped;
use crate::log::{debug, warn};
use crate::policy::CopySpec;
use crate::runtime::{Partition, RunningTopic};
use crate::wire::{AttemptEnd, KeyDeadline, MarkerKey, MarkerWrite, State, written_back};

/// The maximum wait for the expiry of a key whose deadline has passed. The server expires no keys while clients are paused.
const MAX_EXPIRY_DELAY: Duration = Duration::from_secs(1);
/// The pause before the next read of a key that still exists, as it does in the millisecond of its deadline.
const REREAD_PAUSE: Duration = Duration::from_millis(2);

/// Returns the value to write back after this end of an attempt, with its type byte. Only a retry with the next
/// attempt number has one: an undecodable payload is retried as the same attempt.
pub(crate) fn value_to_write_back(
    topic: &RunningTopic,
    payload: &Bytes,
    state: &State,
    end: Option<&AttemptEnd>,
) -> Option<Bytes> {
    match end {
        Some(AttemptEnd::Retry { attempt, .. }) if *attempt > state.attempt => {
            written_value(topic, payload, *attempt)
        }
        _ => None,
    }
}

/// Returns whether the key may have been written back for this attempt. Other keys cause no further expiry, so they
/// need no check.
pub(crate) fn may_be_written_back(topic: &RunningTopic, payload: &Bytes, state: &State) -> bool {
    state.attempt > 1 && written_value(topic, payload, state.attempt).is_some()
}

/// Returns the value that is written back for this attempt, if any.
fn written_value(topic: &RunningTopic, payload: &Bytes, attempt: u32) -> Option<Bytes> {
    topic.config.attach.as_ref()?;
    written_back(payload, &topic.policy().topic.write_back, attempt)
}

/// Writes keys back until their retries. The retry of a key that cannot be written still runs.
pub(crate) async fn write_back(
    partition: &Partition,
    retries: &[MarkerWrite],
    values: &HashMap<Bytes, Bytes>,
) {
    for retry in retries.iter().filter(|retry| retry.attempt > 1) {
        let Some(value) = values.get(&retry.key) else { continue };
        match partition.store.write_back(&retry.key, retry.deadline, value).await {
            Ok(MarkerKey::Set) => partition.topic.attached.restored.add(1),
            Ok(_) => {}
            Err(error) => {
                let topic = &partition.topic.config.name;
                warn!(%topic, key = %Escaped(&retry.key), %error, "cannot write the key back: its retry runs from the index alone");
            }
        }
    }
}

/// Returns whether the key's writer has created it again since it was written back for this attempt, which supersedes the
/// attempt. If not, records that the key's expiry is no lapse.
pub(crate) async fn is_superseded(partition: &Partition, key: &Bytes, deadline: u64) -> bool {
    match was_recreated(partition, key, deadline).await {
        Ok(true) => {
            debug!(key = %Escaped(key), "the key's writer has created it again: the retry is superseded");
            return true;
        }
        Ok(false) => {
            if let Err(error) = partition.store.write_back_expired(&partition.names, key, deadline).await {
                debug!(%error, "cannot record that the key was written back: its expiry may run as another lapse");
            }
        }
        Err(error) => {
            debug!(%error, "cannot check whether the key's writer has created it again: the retry runs");
        }
    }
    false
}

/// Returns whether the key exists with another deadline than the `deadline` until which it was written back. Waits for the
/// expiry of a key that still has that deadline.
async fn was_recreated(partition: &Partition, key: &Bytes, deadline: u64) -> Result<bool> {
    let give_up_at = Instant::now() + MAX_EXPIRY_DELAY;
    loop {
        let found = partition.store.read(std::slice::from_ref(key), &CopySpec::default()).await?;
        match found.first().map(|found| found.life) {
            None | Some(KeyDeadline::Gone | KeyDeadline::Elsewhere) => return Ok(false),
            Some(KeyDeadline::Until(until)) if until == deadline && Instant::now() < give_up_at => {
                tokio::time::sleep(REREAD_PAUSE).await;
            }
            Some(KeyDeadline::Until(until)) => return Ok(until != deadline),
            Some(KeyDeadline::Persistent) => return Ok(true),
        }
    }
}
