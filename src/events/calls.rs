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
use keylapse_connection::{Pipeline, Value, cmd};

use crate::connection::{Server, Subscription};
use crate::error::{Error, ErrorKind, Result};
use crate::events::event::{Question, Touch, Touched};
use crate::policy::Capture;
use crate::wire::scripts::{CANARY, Script, TOUCH};
use crate::wire::{
    Reply, call_by_text, glance_commands, read_glanced, read_touches, script_call, touch_steps, touches,
};

/// How long a canary lives.
const TTL_MS: u64 = 1;
/// When to read it: in its deadline's own millisecond it is still alive.
const TOUCH_AFTER: Duration = Duration::from_millis(3);
/// How often to read it before leaving it to the server.
const TOUCHES: u32 = 5;

const MAKING: &str = "making a canary";
const READING: &str = "reading keys";

/// Where keys are read.
pub(super) enum Reads {
    /// On the connection of the subscription: answers have their place among what is announced.
    InStream(Subscription),
    /// On that for calls, while there is no subscription.
    Aside(Server),
}

/// Makes a canary, unless one is alive: what its name says, behind that of the counter. The answer precedes the canary's
/// event, which is announced a millisecond later at the earliest.
pub(super) async fn make_canary(counter: String, connection: Subscription) -> Result<String> {
    let (mut call, mut calls) = (script_call(&CANARY, &[&counter]), Pipeline::new());
    calls.add_command(call.arg(TTL_MS).clone());
    let made = Reads::InStream(connection).run(MAKING, &CANARY, &calls).await.remove(0)?;
    Ok(Reply::new("canary", made)?.maybe_text()?.unwrap_or_default())
}

/// Reads a canary once it is due, so that the server announces it: before or after the answer, by its version.
pub(super) async fn release_canary(name: String, connection: Subscription) -> Result<()> {
    for _ in 0..TOUCHES {
        tokio::time::sleep(TOUCH_AFTER).await;
        if connection.call(MAKING, cmd("EXISTS").arg(&name)).await? == Value::Int(0) {
            break;
        }
    }
    Ok(())
}

impl Reads {
    /// Reads the keys. `several`: whether the server is one of several.
    pub(super) async fn touch(self, asked: Touch, several: bool) -> Touched {
        let answer = match &asked.question {
            Question::Glance => read_glanced(self.send(READING, &glance_commands(&asked.keys)).await),
            Question::Read { capture, horizon } => {
                let (groups, commands) = touches(&asked.keys, capture, *horizon, several);
                let read =
                    async || read_touches(&groups, self.run(READING, &TOUCH, &commands).await, capture);
                match read().await {
                    Err(error) if is_of_script(&error) => match self.refused(&asked.keys, capture).await {
                        Some(named) => Err(named),
                        // The right was granted meanwhile, unless the keys differ in it.
                        None => read().await,
                    },
                    answer => answer,
                }
            }
        };
        asked.answered(answer)
    }

    /// Returns the error that names the first command that the user may not run, if there is one. Redis 7.0 does not name
    /// the command that it refuses to a script; and no server does where the command is granted for other keys. So each is
    /// tried.
    async fn refused(&self, keys: &[Bytes], capture: &Capture) -> Option<Error> {
        let (names, steps) = touch_steps(keys.first()?, capture);
        let is_refused = |answer: &Result<Value>| {
            answer.as_ref().is_err_and(|error| error.kind() == ErrorKind::Permission)
        };
        let place = self.send(READING, &steps).await.iter().position(is_refused)?;
        let message = format!("{READING}: the user may not run the '{}' command on them", names[place]);
        Some(Error::new(ErrorKind::Permission, message))
    }

    /// Makes calls of a script. Where the server does not have it, the first brings its text, and the server keeps it.
    async fn run(&self, doing: &str, script: &Script, calls: &Pipeline) -> Vec<Result<Value>> {
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

    /// Each command's own answer, or the error of all.
    async fn send(&self, doing: &str, commands: &Pipeline) -> Vec<Result<Value>> {
        match self {
            Self::InStream(connection) => connection.call_each(doing, commands).await,
            Self::Aside(server) => server.call_each(doing, commands).await,
        }
    }
}

/// Returns whether a command was refused to a script, and not the script to the user.
fn is_of_script(error: &Error) -> bool {
    error.kind() == ErrorKind::Permission && error.code() == Some("ERR")
}
