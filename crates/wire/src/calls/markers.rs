//! Keys outside of the index: those that expire at a deadline, as trigger keys and those that are written back for their
//! retries; and the lists and streams of workers in other languages.

use std::time::Duration;

use bytes::Bytes;
use keylapse_connection::{Value, cmd, from_redis_value};
use tokio::time::timeout;

use crate::error::{Error, ErrorKind, Result};
use crate::log::debug;
use crate::run::ScriptCall;
use crate::{DUMP, MarkerKey, Store, scripts};

/// No call waits longer than this for trigger keys that lie elsewhere: the index fires without them.
const MARKER_TIMEOUT: Duration = Duration::from_millis(500);

/// A trigger key to set.
#[derive(Clone, Debug)]
pub struct MarkerWrite {
    /// The key.
    pub key: Bytes,
    /// When it expires, in ms since 1970.
    pub deadline: u64,
    /// The attempt to come; 0: as the key says it.
    pub attempt: u32,
    /// Whether the timer was there before, so that a number that expires at another time is taken for its key.
    pub moved: bool,
}

impl Store {
    /// Whether trigger keys lie elsewhere than the index, so that scripts cannot see to them.
    pub fn markers_need_own_calls(&self) -> bool {
        self.0.topology.is_cluster()
    }

    /// Sets trigger keys where they lie elsewhere than the index, each by a call of its own.
    pub async fn set_markers(&self, triggers: &[MarkerWrite]) -> Vec<MarkerKey> {
        let call = |trigger: &MarkerWrite| {
            let mut call = self.call_with(&scripts::SET_MARKER, &[&trigger.key[..]]);
            call.arg(trigger.deadline).arg(trigger.attempt).arg(i32::from(trigger.moved));
            call
        };
        let calls: Vec<_> = triggers.iter().map(call).collect();
        let read = |answer: Result<Value>| match answer.map(from_redis_value::<Vec<u64>>) {
            Ok(Ok(codes)) if codes == [0] => MarkerKey::None,
            Ok(Ok(codes)) if codes == [1] => MarkerKey::Set,
            Ok(Ok(codes)) if codes == [2] => MarkerKey::Taken,
            Ok(_) => MarkerKey::Failed(no_right("the server refuses to have the trigger key written")),
            Err(error) => MarkerKey::Failed(error),
        };
        match timeout(MARKER_TIMEOUT, ScriptCall::run_all(&calls)).await {
            Ok(answers) => answers.into_iter().map(read).collect(),
            Err(_) => vec![MarkerKey::Failed(late()); triggers.len()],
        }
    }

    /// Deletes trigger keys that are ours and expire then.
    pub(super) async fn delete_markers(&self, triggers: &[(Bytes, u64)]) {
        let call = |(key, deadline): &(Bytes, u64)| {
            let mut call = self.call_with(&scripts::DELETE_MARKER, &[&key[..]]);
            call.arg(deadline);
            call
        };
        let calls: Vec<_> = triggers.iter().map(call).collect();
        let failed = match timeout(MARKER_TIMEOUT, ScriptCall::run_all(&calls)).await {
            Ok(answers) => answers.into_iter().find_map(Result::err),
            Err(_) => Some(late()),
        };
        if let Some(error) = failed {
            debug!(%error, "trigger keys not deleted: they expire for nothing");
        }
    }

    /// Deletes a trigger key if it is ours and expires then.
    pub async fn delete_marker(&self, key: &[u8], deadline: u64) -> Result<bool> {
        Ok(self.call_with(&scripts::DELETE_MARKER, &[key]).arg(deadline).run().await? == Value::Int(1))
    }

    /// Writes a key back, if the name is free. The copy is as touch.lua makes it.
    pub async fn write_back(&self, key: &[u8], deadline: u64, copy: &[u8]) -> Result<MarkerKey> {
        let (kind, value) = copy.split_first().map_or((0, copy), |(kind, value)| (*kind, value));
        let mut call = self.call_with(&scripts::WRITE_BACK, &[key]);
        call.arg(deadline).arg(if kind == DUMP { "dump" } else { "string" }).arg(value);
        Ok(placed(from_redis_value(call.run().await?).unwrap_or_default()))
    }

    /// Reads trigger keys, so that the server expires those that are due.
    pub async fn check_markers(&self, keys: &[Bytes]) -> Result<()> {
        let servers = &self.0.topology;
        if !servers.is_cluster() {
            let keys: Vec<_> = keys.iter().map(|key| &key[..]).collect();
            return self.send("touching", b"", cmd("EXISTS").arg(keys)).await.map(drop);
        }
        let touches = keys.iter().map(|key| (servers.slot_of(key), cmd("EXISTS").arg(&key[..]).clone()));
        let answers = servers.each("touching", touches.collect()).await;
        answers.into_iter().find_map(Result::err).map_or(Ok(()), Err)
    }
}

/// What became of a key that was to be written back; none is kept whose deadline has passed.
fn placed(code: u64) -> MarkerKey {
    match code {
        1 => MarkerKey::Set,
        2 => MarkerKey::None,
        _ => MarkerKey::Taken,
    }
}

fn late() -> Error {
    Error::new(
        ErrorKind::Timeout,
        "the server of the trigger key did not answer in time; the timer fires without it",
    )
}

/// The caller may not write trigger keys; or the server takes no script that does, as its keys lie on several shards, or
/// it takes only those that a call names.
pub(super) fn no_right(said: &str) -> Error {
    if said.contains("same slot") || said.contains("undeclared") {
        let message =
            format!("{said}; this server cannot have trigger keys: switch them off (Topic::triggers)");
        return Error::new(ErrorKind::Unsupported, message);
    }
    let message = format!("{said}; grant this user the names of its timers (~…) or switch triggers off");
    Error::new(ErrorKind::Permission, message)
}

/// Something to put into a list or a stream, once.
#[derive(Clone, Debug)]
pub struct Forwarding<'a> {
    /// The list or stream.
    pub into: &'a [u8],
    /// Remembers that it was put there; in the slot of `into`.
    pub memory: &'a [u8],
    /// Else it is a list.
    pub is_stream: bool,
    /// While it has so many, nothing is put there; 0: any number.
    pub max_length: u64,
    /// For how long, in ms.
    pub remember_ms: u64,
    /// What is put there once.
    pub id: &'a [u8],
    /// What workers get.
    pub message: &'a [u8],
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Forwarded {
    /// It was put there.
    Added,
    /// It had been put there before, by an attempt whose end was not heard.
    Duplicate,
    /// There is no room: it was not put there.
    Full,
}

impl Store {
    /// Puts something there, if it was not and there is room.
    ///
    /// # Errors
    /// When the server cannot be reached or refuses.
    pub async fn forward(&self, what: &Forwarding<'_>) -> Result<Forwarded> {
        if self.0.topology.slot_of(what.into) != self.0.topology.slot_of(what.memory) {
            return Err(Error::invalid("a list or stream with a } in its name needs a hash tag before that"));
        }
        let mut call = self.call_with(&scripts::FORWARD, &[what.into, what.memory]);
        call.arg(if what.is_stream { "stream" } else { "list" }).arg(what.max_length).arg(what.remember_ms);
        call.arg(what.id).arg(what.message);
        match call.run().await? {
            Value::Int(1) => Ok(Forwarded::Added),
            Value::Int(0) => Ok(Forwarded::Duplicate),
            Value::Int(2) => Ok(Forwarded::Full),
            _ => Err(Error::new(ErrorKind::Server, "forward: the server's answer makes no sense")),
        }
    }
}
