//! Calls on the subscribed connection: they create and read heartbeat keys, and read attached keys.
//!
//! A *heartbeat key* proves that events arrive. It is numbered, and lives for 1 ms. Its expired event proves the
//! notification flags, the ACL, the channel and the connection. It also proves the role, without a ROLE command: only
//! a primary accepts the key and announces its end.
//!
//! *Key reads* use the connection on which the keys' expiries are announced. A read counts **once TIME, the last
//! command of its request, is answered**. By then, the session has received every event from before the read, and
//! those that the read caused. Redis 7.0 announces the latter before the command's own answer. Redis 7.2 (pull
//! request 12326) and Valkey announce them between this answer and the next. `tests/attached/order.rs` shows both.

use std::time::Duration;

use bytes::Bytes;
use keylapse_connection::{Pipeline, Value, cmd};

use crate::connection::{Server, Subscription};
use crate::error::{Error, ErrorKind, Result};
use crate::events::event::{KeyRead, KeyReadKind, KeyReadReply};
use crate::policy::CopySpec;
use crate::wire::scripts::{CANARY, READ_KEYS, Script};
use crate::wire::{
    Reply, call_by_text, glance_commands, read_glanced, read_touches, script_call, touch_steps, touches,
};

/// The TTL of a heartbeat key.
const TTL_MS: u64 = 1;
/// The pause before each read. In the millisecond of its deadline, a key still exists.
const CANARY_READ_DELAY: Duration = Duration::from_millis(3);
/// Maximum number of reads of a heartbeat key. After that, the server is left to expire it by itself.
const MAX_CANARY_READS: u32 = 5;

const CREATING_CANARY: &str = "creating a heartbeat key";
const READING: &str = "reading keys";

/// Reads keys on a connection.
pub(super) enum KeyReader {
    /// The subscribed connection: each answer has a position among the events.
    InStream(Subscription),
    /// The connection for calls, while no subscription exists.
    OutOfStream(Server),
}

/// Creates a heartbeat key, unless the last one still exists. Returns the part of its name after the counter's name, with
/// the numbers. The answer precedes the key's event by at least a millisecond.
pub(super) async fn make_canary(counter: String, connection: Subscription) -> Result<String> {
    let (mut call, mut calls) = (script_call(&CANARY, &[&counter]), Pipeline::new());
    calls.add_command(call.arg(TTL_MS).clone());
    let made =
        KeyReader::InStream(connection).call_script(CREATING_CANARY, &CANARY, &calls).await.remove(0)?;
    Ok(Reply::new("canary", made)?.maybe_text()?.unwrap_or_default())
}

/// Reads a heartbeat key after its deadline, which makes the server announce its expiry. The server's version decides
/// whether the event precedes the answer.
pub(super) async fn check_canary(name: String, connection: Subscription) -> Result<()> {
    for _ in 0..MAX_CANARY_READS {
        tokio::time::sleep(CANARY_READ_DELAY).await;
        if connection.call(CREATING_CANARY, cmd("EXISTS").arg(&name)).await? == Value::Int(0) {
            break;
        }
    }
    Ok(())
}

impl KeyReader {
    /// Reads the keys. `several` is true for a cluster node, where each call names keys of one slot.
    pub(super) async fn read_keys(self, asked: KeyRead, several: bool) -> KeyReadReply {
        let answer = match &asked.kind {
            KeyReadKind::Deadlines => read_glanced(self.send(READING, &glance_commands(&asked.keys)).await),
            KeyReadKind::DeadlinesAndValues { capture, horizon } => {
                let (groups, commands) = touches(&asked.keys, capture, *horizon, several);
                let read = async || {
                    read_touches(&groups, self.call_script(READING, &READ_KEYS, &commands).await, capture)
                };
                match read().await {
                    Err(error) if is_of_script(&error) => {
                        match self.find_refused_command(&asked.keys, capture).await {
                            Some(named) => Err(named),
                            // The right was granted since, or is missing for other keys only.
                            None => read().await,
                        }
                    }
                    answer => answer,
                }
            }
        };
        asked.into_reply(answer)
    }

    /// Runs each command of the script on the first key, and returns an error that names the first one that the user may
    /// not run. Redis 7.0 does not name a command that it refuses inside a script. No server names it if the user may run
    /// it on other keys.
    async fn find_refused_command(&self, keys: &[Bytes], capture: &CopySpec) -> Option<Error> {
        let (names, steps) = touch_steps(keys.first()?, capture);
        let is_refused = |answer: &Result<Value>| {
            answer.as_ref().is_err_and(|error| error.kind() == ErrorKind::Permission)
        };
        let place = self.send(READING, &steps).await.iter().position(is_refused)?;
        let message = format!("{READING}: the user may not run the '{}' command on them", names[place]);
        Some(Error::new(ErrorKind::Permission, message))
    }

    /// Calls a script. If the server lacks it, a second request sends its text with the first call.
    async fn call_script(&self, doing: &str, script: &Script, calls: &Pipeline) -> Vec<Result<Value>> {
        let answers = self.send(doing, calls).await;
        let lacks_it = |answer: &Result<Value>| {
            answer.as_ref().is_err_and(|error: &Error| error.code() == Some("NOSCRIPT"))
        };
        if !answers.iter().any(lacks_it) {
            return answers;
        }
        let mut again = Pipeline::new();
        for (place, call) in calls.cmd_iter().enumerate() {
            again.add_command(if place == 0 { call_by_text(script, call) } else { call.clone() });
        }
        self.send(doing, &again).await
    }

    /// Returns the answer to each command. A connection error is the answer to all of them.
    async fn send(&self, doing: &str, commands: &Pipeline) -> Vec<Result<Value>> {
        match self {
            Self::InStream(connection) => connection.call_each(doing, commands).await,
            Self::OutOfStream(server) => server.call_each(doing, commands).await,
        }
    }
}

/// Returns whether the server refused a command inside the script, rather than the script.
fn is_of_script(error: &Error) -> bool {
    error.kind() == ErrorKind::Permission && error.code() == Some("ERR")
}
