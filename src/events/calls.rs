//! What is asked on the connection of the subscription: canaries and touches.
//!
//! *The canary* is proof that events flow, from flag to network. A numbered key of 1 ms whose expired event
//! comes back on the subscription proves the notification flag, the ACL, the channel and the link. It also
//! proves the role, as only a primary takes the write and publishes `expired` for it; so no ROLE is asked for.
//!
//! *Touches* read attached keys on the connection on which their expiry is announced. There the announcement
//! precedes the answer. So an answer is put behind everything that was heard before it, and whoever reads the
//! stream up to it knows what was published before the key was read.

use std::time::Duration;

use bytes::Bytes;
use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, Value, cmd};

use crate::backlog::Sender;
use crate::connection::classify;
use crate::error::{Error, ErrorKind, Result};
use crate::events::decoder::Decoded;
use crate::events::event::{Answer, Event, Question, Touch, Touched};
use crate::log::debug;
use crate::policy::Capture;
use crate::wire::scripts::{CANARY, Script, TOUCH};
use crate::wire::{
    Reply, glance_commands, read_glanced, read_touched, read_touches, script_call, touch_command, touches_by_slot,
};

/// How long a canary lives.
const TTL_MS: u64 = 1;
/// When to read it: in its deadline's own millisecond it is still alive.
const TOUCH_AFTER: Duration = Duration::from_millis(3);
/// How often to read it before leaving it to the server.
const TOUCHES: u32 = 5;

const MAKING: &str = "making a canary";
const READING: &str = "reading keys";

/// Makes a canary, unless one is alive: what its name says, behind that of the counter. On a connection the answer
/// precedes the canary's event.
pub(super) async fn make_canary(counter: String, connection: MultiplexedConnection) -> Result<String> {
    let mut call = script_call(&CANARY, &[&counter]);
    let made = run(&connection, MAKING, &CANARY, call.arg(TTL_MS)).await?;
    Ok(Reply::new("canary", made)?.maybe_text()?.unwrap_or_default())
}

/// Reads a canary once it is due. Its event then precedes the answer on this connection.
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
        Question::Read { capture, horizon } if several => {
            read_by_slot(&connection, &asked.keys, capture, *horizon).await
        }
        Question::Read { capture, horizon } => {
            let call = touch_command(&asked.keys, capture, *horizon);
            let answer = run(&connection, READING, &TOUCH, &call).await;
            answer.and_then(|answer| read_touched(answer, asked.keys.len(), capture))
        }
    };
    let answer = answer.inspect_err(|error| debug!(%error, "keys were not read"));
    let refused = answer.as_ref().err().filter(|error| error.kind() == ErrorKind::Permission);
    let refused = refused.map(ToString::to_string);
    let touched = Event::Touched(Touched { id: asked.id, answer: answer.ok(), refused });
    // There are as many as touches may wait, and no more.
    queue.push_always(Decoded::Event(touched));
}

async fn glance(connection: &MultiplexedConnection, keys: &[Bytes]) -> Result<Answer> {
    read_glanced(send_all(connection, &glance_commands(keys)).await?)
}

async fn read_by_slot(
    connection: &MultiplexedConnection,
    keys: &[Bytes],
    capture: &Capture,
    horizon: Option<u64>,
) -> Result<Answer> {
    let (groups, commands) = touches_by_slot(keys, capture, horizon);
    let mut answers = send_all(connection, &commands).await?;
    let lacks_it = |answer: &Result<Value>| {
        answer.as_ref().is_err_and(|error: &Error| error.code() == Some("NOSCRIPT"))
    };
    if answers.iter().any(lacks_it) {
        load(connection, READING, &TOUCH).await?;
        answers = send_all(connection, &commands).await?;
    }
    read_touches(groups, answers, capture)
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
