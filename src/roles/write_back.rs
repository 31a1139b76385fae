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

/// How long a key may outlive its deadline: while clients are paused, it does.
const OUTLIVES: Duration = Duration::from_secs(1);
/// In its deadline's own millisecond a key is still there.
const REREAD_PAUSE: Duration = Duration::from_millis(2);

/// The value to be written back where an attempt ends so, with the byte that says what it is. None but for a retry
/// with the next attempt number: what could not be decoded is put off, and comes again as the same attempt.
pub(crate) fn value(
    topic: &RunningTopic,
    payload: &Bytes,
    state: &State,
    end: Option<&AttemptEnd>,
) -> Option<Bytes> {
    match end {
        Some(AttemptEnd::Retry { attempt, .. }) if *attempt > state.attempt => {
            written(topic, payload, *attempt)
        }
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
    written_back(payload, &topic.policy().topic.write_back, attempt)
}

/// Writes keys back until their retries. One that is not written is retried all the same.
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
            if let Err(error) = partition.store.write_back_expired(&partition.names, key, deadline).await {
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
        let found = partition.store.read(std::slice::from_ref(key), &CopySpec::default()).await?;
        match found.first().map(|found| found.life) {
            None | Some(KeyDeadline::Gone | KeyDeadline::Elsewhere) => return Ok(false),
            Some(KeyDeadline::Until(until)) if until == deadline && Instant::now() < patience => {
                tokio::time::sleep(REREAD_PAUSE).await;
            }
            Some(KeyDeadline::Until(until)) => return Ok(until != deadline),
            Some(KeyDeadline::Persistent) => return Ok(true),
        }
    }
}
