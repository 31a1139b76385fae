//! What is asked on the connection of the subscription: canaries and touches.
//!
//! *The canary* is proof that events flow, from flag to network. A numbered key of 1 ms whose expired event
//! comes back on the subscription proves the notification flag, the ACL, the channel and the link. It also
//! proves the role, as only a primary takes the write and publishes `expired` for it; so no ROLE is asked for.
//!
//! *Touches* read attached keys on the connection on which their expiry is announced. **An answer is taken at the answer
//! of a command behind it**, TIME, in the same request. By then all has arrived that was announced before the keys were
//! read, and what the reading itself has caused. Redis 7.0 announces the latter before the command's own answer; since
//! Redis 7.2 (its pull request 12326), and in Valkey, it comes after that, and before the next answer.
//! `tests/attached/order.rs` shows both. So whoever reads the stream up to the answer has read what was announced before.

use std::time::Duration;

use bytes::Bytes;
use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, Value, cmd};

use crate::backlog::Sender;
use crate::connection::classify;
use crate::error::{Error, Result};
use crate::events::decoder::Decoded;
use crate::events::event::{Answer, Event, Question, Touch};
use crate::wire::scripts::{CANARY, Script, TOUCH};
use crate::wire::{Reply, glance_commands, read_glanced, read_touches, script_call, touches};

/// How long a canary lives.
const TTL_MS: u64 = 1;
/// When to read it: in its deadline's own millisecond it is still alive.
const TOUCH_AFTER: Duration = Duration::from_millis(3);
/// How often to read it before leaving it to the server.
const TOUCHES: u32 = 5;

const MAKING: &str = "making a canary";
const READING: &str = "reading keys";

/// Makes a canary, unless one is alive: what its name says, behind that of the counter. The answer precedes the canary's
/// event, which is announced a millisecond later at the earliest.
pub(super) async fn make_canary(counter: String, connection: MultiplexedConnection) -> Result<String> {
    let mut call = script_call(&CANARY, &[&counter]);
    let made = run(&connection, MAKING, &CANARY, call.arg(TTL_MS)).await?;
    Ok(Reply::new("canary", made)?.maybe_text()?.unwrap_or_default())
}

/// Reads a canary once it is due, so that the server announces it: before or after the answer, by its version.
pub(super) async fn release_canary(name: String, connection: MultiplexedConnection) -> Result<()> {
    for _ in 0..TOUCHES {
        tokio::time::sleep(TOUCH_AFTER).await;
        if send(&connection, MAKING, cmd("EXISTS").arg(&name)).await? == Value::Int(0) {
            break;
        }
    }
    Ok(())
}

/// Reads the keys; the answer finds its place in the stream by itself. `several`: whether it is one of several servers.
pub(super) async fn touch(
    asked: Touch,
    several: bool,
    connection: MultiplexedConnection,
    queue: Sender<Decoded>,
) {
    let answer = match &asked.question {
        Question::Glance => glance(&connection, &asked.keys).await,
        Question::Read { capture, horizon } => {
            let (groups, commands) = touches(&asked.keys, capture, *horizon, several);
            let answers = send_scripts(&connection, &commands).await;
            answers.and_then(|answers| read_touches(groups, answers, capture))
        }
    };
    // There are as many as touches may wait, and no more.
    queue.push_always(Decoded::Event(Event::Touched(asked.answered(answer))));
}

async fn glance(connection: &MultiplexedConnection, keys: &[Bytes]) -> Result<Answer> {
    read_glanced(send_all(connection, &glance_commands(keys)).await?)
}

/// The same as below for calls of the script that touches, which is loaded first where the server does not have it.
async fn send_scripts(connection: &MultiplexedConnection, commands: &Pipeline) -> Result<Vec<Result<Value>>> {
    let answers = send_all(connection, commands).await?;
    let lacks_it =
        |answer: &Result<Value>| answer.as_ref().is_err_and(|error: &Error| error.code() == Some("NOSCRIPT"));
    if !answers.iter().any(lacks_it) {
        return Ok(answers);
    }
    load(connection, READING, &TOUCH).await?;
    send_all(connection, commands).await
}

/// Each command's own answer, or the error of all.
async fn send_all(connection: &MultiplexedConnection, commands: &Pipeline) -> Result<Vec<Result<Value>>> {
    let answers = connection.clone().send_packed_commands(commands, 0, commands.len()).await;
    let read = |answer: Value| answer.extract_error().map_err(|error| classify(READING, &error));
    Ok(answers.map_err(|error| classify(READING, &error))?.into_iter().map(read).collect())
}

/// Makes a call of a script, and loads the script first where the server does not have it.
async fn run(connection: &MultiplexedConnection, doing: &str, script: &Script, call: &Cmd) -> Result<Value> {
    match send(connection, doing, call).await {
        Err(error) if error.code() == Some("NOSCRIPT") => {
            load(connection, doing, script).await?;
            send(connection, doing, call).await
        }
        other => other,
    }
}

async fn load(connection: &MultiplexedConnection, doing: &str, script: &Script) -> Result<()> {
    send(connection, doing, cmd("SCRIPT").arg("LOAD").arg(&script.text)).await.map(drop)
}

pub(super) async fn send(connection: &MultiplexedConnection, doing: &str, command: &Cmd) -> Result<Value> {
    let answer = connection.clone().send_packed_command(command).await;
    answer.and_then(Value::extract_error).map_err(|error| classify(doing, &error))
}
