//! Reading keys that other programs write: their deadlines, and copies of their values.

use bytes::Bytes;
use redis::{Cmd, Pipeline, Value, pipe};

use crate::error::Result;
use crate::policy::{Capture, Fields};
use crate::time::ServerTime;
use crate::wire::Reply;
use crate::wire::run::script_call;
use crate::wire::scripts;

/// A key as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// What there was.
    pub life: Life,
    /// A copy of the value, as touch.lua makes it; empty where none was asked for.
    pub copy: Bytes,
}

/// Whether a key exists, and until when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// There is no such key.
    Gone,
    /// It has no deadline.
    Lasting,
    /// Its deadline, in ms since 1970.
    Until(u64),
}

impl Life {
    /// As `PEXPIRETIME` says it.
    fn read(reply: &mut Reply) -> Result<Self> {
        Ok(match reply.signed()? {
            -2 => Self::Gone,
            deadline => u64::try_from(deadline).map_or(Self::Lasting, Self::Until),
        })
    }
}

/// The touch of keys, as it is sent on the connection of the subscription, too; copies of those alone whose
/// deadlines are not beyond the horizon, in ms.
pub(crate) fn touch_command(keys: &[Bytes], capture: &Capture, horizon: Option<u64>) -> Cmd {
    let mut command = script_call(&scripts::TOUCH, &keys.iter().map(|key| &key[..]).collect::<Vec<_>>());
    command.arg(capture.cap).arg(i32::from(capture.dumps)).arg(horizon.unwrap_or_default());
    match &capture.fields {
        Fields::None => command.arg("none"),
        Fields::All => command.arg("all"),
        Fields::Named(names) => command.arg("named").arg(&names[..]),
    };
    command
}

/// What touch.lua answers: without copies where none were asked for.
pub(crate) fn read_touched(
    answer: Value,
    count: usize,
    capture: &Capture,
) -> Result<(ServerTime, Vec<Found>)> {
    let mut reply = Reply::new("touch", answer)?.stamped()?;
    let found = reply.each(|reply| {
        Ok(Found {
            life: Life::read(reply)?,
            copy: if capture.cap > 0 { reply.bytes()? } else { Bytes::new() },
        })
    })?;
    if found.len() == count { Ok((reply.stamp, found)) } else { Err(reply.unexpected()) }
}

/// Asks for deadlines alone, one by one, which costs the server less than a script that does. What it finds is not of
/// one moment, and all of it before the time that is answered.
pub(crate) fn glance_commands(keys: &[Bytes]) -> Pipeline {
    let mut commands = pipe();
    for key in keys {
        commands.cmd("PEXPIRETIME").arg(&key[..]);
    }
    commands.cmd("TIME");
    commands
}

/// What is answered to that.
pub(crate) fn read_glanced(mut answers: Vec<Value>) -> Result<(ServerTime, Vec<Found>)> {
    let time = answers.pop().unwrap_or(Value::Nil);
    let stamp = Reply::new("TIME", time)?.stamped()?.stamp;
    let mut lives = Reply::new("PEXPIRETIME", Value::Array(answers))?;
    let found = lives.each(|reply| Ok(Found { life: Life::read(reply)?, copy: Bytes::new() }))?;
    Ok((stamp, found))
}
