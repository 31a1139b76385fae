//! Keys outside of the index: marker keys, keys that are written back until their retries, and the lists and streams of
//! workers in other languages.

use std::time::Duration;

use bytes::Bytes;
use keylapse_connection::{Value, cmd, from_redis_value};
use tokio::time::timeout;

use crate::error::{Error, ErrorKind, Result};
use crate::log::debug;
use crate::run::ScriptCall;
use crate::{DUMP, MarkerKey, Store, scripts};

/// The time limit for marker keys that need own calls. It is short, because timers fire without them.
const MARKER_TIMEOUT: Duration = Duration::from_millis(500);

/// A marker key to set.
#[derive(Clone, Debug)]
pub struct MarkerWrite {
    /// The key.
    pub key: Bytes,
    /// When the key expires, in ms since 1970.
    pub deadline: u64,
    /// The number of the next attempt; 0 keeps the number in the key.
    pub attempt: u32,
    /// True if the timer existed before. Then a small number with another deadline counts as its marker key, too.
    pub moved: bool,
}

impl Store {
    /// Returns whether marker keys need own calls. In a Redis Cluster they are in other slots than the index, and a script
    /// writes to one slot.
    pub fn markers_need_own_calls(&self) -> bool {
        self.0.topology.is_cluster()
    }

    /// Sets marker keys, each by a call of its own.
    pub async fn set_markers(&self, markers: &[MarkerWrite]) -> Vec<MarkerKey> {
        let call = |marker: &MarkerWrite| {
            let mut call = self.call_with(&scripts::SET_MARKER, &[&marker.key[..]]);
            call.arg(marker.deadline).arg(marker.attempt).arg(i32::from(marker.moved));
            call
        };
        let calls: Vec<_> = markers.iter().map(call).collect();
        let read = |answer: Result<Value>| match answer.map(from_redis_value::<Vec<u64>>) {
            Ok(Ok(codes)) if codes == [0] => MarkerKey::None,
            Ok(Ok(codes)) if codes == [1] => MarkerKey::Set,
            Ok(Ok(codes)) if codes == [2] => MarkerKey::Taken,
            Ok(_) => MarkerKey::Failed(marker_refusal("the server refuses to write the marker key")),
            Err(error) => MarkerKey::Failed(error),
        };
        match timeout(MARKER_TIMEOUT, ScriptCall::run_all(&calls)).await {
            Ok(answers) => answers.into_iter().map(read).collect(),
            Err(_) => vec![MarkerKey::Failed(marker_timeout()); markers.len()],
        }
    }

    /// Deletes marker keys that expire at these times, and logs an error.
    pub(super) async fn delete_markers(&self, markers: &[(Bytes, u64)]) {
        let call = |(key, deadline): &(Bytes, u64)| {
            let mut call = self.call_with(&scripts::DELETE_MARKER, &[&key[..]]);
            call.arg(deadline);
            call
        };
        let calls: Vec<_> = markers.iter().map(call).collect();
        let failed = match timeout(MARKER_TIMEOUT, ScriptCall::run_all(&calls)).await {
            Ok(answers) => answers.into_iter().find_map(Result::err),
            Err(_) => Some(marker_timeout()),
        };
        if let Some(error) = failed {
            debug!(%error, "cannot delete marker keys: they stay until they expire");
        }
    }

    /// Deletes a marker key that expires at `deadline`. Returns whether there was one.
    pub async fn delete_marker(&self, key: &[u8], deadline: u64) -> Result<bool> {
        Ok(self.call_with(&scripts::DELETE_MARKER, &[key]).arg(deadline).run().await? == Value::Int(1))
    }

    /// Writes a key back, if the key is free. The copy has the format of read_keys.lua. A repeat finds the key of the first
    /// call, and returns `Taken`.
    pub async fn write_back(&self, key: &[u8], deadline: u64, copy: &[u8]) -> Result<MarkerKey> {
        let (kind, value) = copy.split_first().map_or((0, copy), |(kind, value)| (*kind, value));
        let mut call = self.call_with(&scripts::WRITE_BACK, &[key]);
        call.arg(deadline).arg(if kind == DUMP { "dump" } else { "string" }).arg(value);
        Ok(read_write_back(from_redis_value(call.run().await?).unwrap_or_default()))
    }

    /// Checks marker keys, so that the server expires those that are due.
    pub async fn check_markers(&self, keys: &[Bytes]) -> Result<()> {
        let servers = &self.0.topology;
        if !servers.is_cluster() {
            let keys: Vec<_> = keys.iter().map(|key| &key[..]).collect();
            return self.send("checking marker keys", b"", cmd("EXISTS").arg(keys)).await.map(drop);
        }
        let checks = keys.iter().map(|key| (servers.slot_of(key), cmd("EXISTS").arg(&key[..]).clone()));
        let answers = servers.each("checking marker keys", checks.collect()).await;
        answers.into_iter().find_map(Result::err).map_or(Ok(()), Err)
    }
}

/// Reads the code of a write-back. A key whose deadline has passed is not written.
fn read_write_back(code: u64) -> MarkerKey {
    match code {
        1 => MarkerKey::Set,
        2 => MarkerKey::None,
        _ => MarkerKey::Taken,
    }
}

fn marker_timeout() -> Error {
    Error::new(
        ErrorKind::Timeout,
        "the server of the marker key did not answer in time; the timer fires without the key",
    )
}

/// Explains why a marker key was refused. The user lacks the right to write it, or the server lets scripts write only the
/// keys that their calls declare.
pub(super) fn marker_refusal(reason: &str) -> Error {
    if reason.contains("same slot") || reason.contains("undeclared") {
        let message = format!("{reason}; marker keys do not work here: switch them off (Topic::marker_keys)");
        return Error::new(ErrorKind::Unsupported, message);
    }
    let message = format!("{reason}; grant this user the keys of its timers (~…), or switch marker keys off");
    Error::new(ErrorKind::Permission, message)
}

/// A message to add to a list or a stream, once.
#[derive(Clone, Debug)]
pub struct Forwarding<'a> {
    /// The list or stream.
    pub into: &'a [u8],
    /// The key that records the addition. It is in the slot of `into`.
    pub memory: &'a [u8],
    /// True if `into` is a stream; false for a list.
    pub is_stream: bool,
    /// The maximum length of the list or stream; 0: no limit.
    pub max_length: u64,
    /// How long the addition is recorded, in ms.
    pub remember_ms: u64,
    /// The ID of the message, which is added once.
    pub id: &'a [u8],
    /// The message that workers receive.
    pub message: &'a [u8],
}

/// The result of a forward call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Forwarded {
    /// The message was added.
    Added,
    /// An earlier attempt has added the message already.
    Duplicate,
    /// The list or stream has no room, so nothing was added.
    Full,
}

impl Store {
    /// Adds a message, if it was not added before and there is room.
    ///
    /// # Errors
    /// If the server cannot be reached or refuses.
    pub async fn forward(&self, what: &Forwarding<'_>) -> Result<Forwarded> {
        if self.0.topology.slot_of(what.into) != self.0.topology.slot_of(what.memory) {
            return Err(Error::invalid("a list or stream with a } in its name needs a hash tag before it"));
        }
        let mut call = self.call_with(&scripts::FORWARD, &[what.into, what.memory]);
        call.arg(if what.is_stream { "stream" } else { "list" }).arg(what.max_length).arg(what.remember_ms);
        call.arg(what.id).arg(what.message);
        match call.run().await? {
            Value::Int(1) => Ok(Forwarded::Added),
            Value::Int(0) => Ok(Forwarded::Duplicate),
            Value::Int(2) => Ok(Forwarded::Full),
            _ => Err(Error::new(ErrorKind::Server, "forward: unexpected reply")),
        }
    }
}
