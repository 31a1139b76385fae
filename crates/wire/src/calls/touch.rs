//! Reading keys that other programs write: their deadlines, and copies of their values.

use std::collections::BTreeMap;

use bytes::Bytes;
use keylapse_connection::{Cmd, Pipeline, Value, pipe};

use crate::Reply;
use crate::connection::slot_of;
use crate::error::{Error, Result};
use crate::policy::{Capture, Fields};
use crate::run::script_call;
use crate::scripts;
use crate::time::ServerTime;

/// A key as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// When: of keys that lie in several slots, each is read by itself.
    pub stamp: ServerTime,
    /// What there was.
    pub life: Life,
    /// A copy of the value, as touch.lua makes it; empty where none was asked for.
    pub copy: Bytes,
}

impl Found {
    /// Nothing was: the server that was asked does not have the key's slot.
    pub const ELSEWHERE: Self = Self { stamp: ServerTime(0), life: Life::Elsewhere, copy: Bytes::new() };
}

/// Deadlines from here on are none, in ms: a script, whose numbers are floating, reads others than a command, and the
/// watch of a key on a cluster has 56 bits for them.
const FAR: u64 = 1 << 53;

/// Whether a key exists, and until when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// Another server of the cluster knows, as the key's slot is there, or on its way there.
    Elsewhere,
    /// There is no such key.
    Gone,
    /// It has no deadline.
    Lasting,
    /// Its deadline, in ms since 1970.
    Until(u64),
}

impl Life {
    /// As `PEXPIRETIME` says it. What is too far for a script to read exactly is none.
    fn read(reply: &mut Reply) -> Result<Self> {
        Ok(match reply.signed()? {
            -2 => Self::Gone,
            deadline => match u64::try_from(deadline) {
                Ok(deadline @ ..FAR) => Self::Until(deadline),
                _ => Self::Lasting,
            },
        })
    }
}

/// The touch of keys, as it is sent on the connection of the subscription, too; copies of those alone whose
/// deadlines are not beyond the horizon, in ms.
pub fn touch_command(keys: &[Bytes], capture: &Capture, horizon: Option<u64>) -> Cmd {
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
pub fn read_touched(answer: Value, count: usize, capture: &Capture) -> Result<(ServerTime, Vec<Found>)> {
    let mut reply = Reply::new("touch", answer)?.stamped()?;
    let stamp = reply.stamp;
    let found = reply.each(|reply| {
        Ok(Found {
            stamp,
            life: Life::read(reply)?,
            copy: if capture.cap > 0 { reply.bytes()? } else { Bytes::new() },
        })
    })?;
    if found.len() == count { Ok((stamp, found)) } else { Err(reply.unexpected()) }
}

/// The commands that touch.lua calls for this, each about a key beside this one: so nothing large is answered.
pub fn touch_steps(key: &[u8], capture: &Capture) -> (Vec<&'static str>, Pipeline) {
    let mut names = vec!["pexpiretime"];
    if capture.cap > 0 {
        names.extend(["type", "strlen", "get"]);
    }
    match capture.fields {
        Fields::None => {}
        Fields::All => names.extend(["hlen", "hkeys", "hstrlen", "hmget"]),
        Fields::Named(_) => names.extend(["hstrlen", "hmget"]),
    }
    if capture.dumps {
        names.extend(["hlen", "llen", "scard", "zcard", "xlen", "dump"]);
    }
    let (beside, mut commands) = ([key, b":"].concat(), pipe());
    for name in &names {
        let command = commands.cmd(name).arg(&beside);
        if matches!(*name, "hstrlen" | "hmget") {
            command.arg("");
        }
    }
    (names, commands)
}

/// Asks for deadlines alone, one by one, which costs the server less than a script that does. What it finds is not of
/// one moment, and all of it before the time that is answered.
pub fn glance_commands(keys: &[Bytes]) -> Pipeline {
    let mut commands = pipe();
    for key in keys {
        commands.cmd("PEXPIRETIME").arg(&key[..]);
    }
    commands.cmd("TIME");
    commands
}

/// What is answered to that.
pub fn read_glanced(mut answers: Vec<Result<Value>>) -> Result<(ServerTime, Vec<Found>)> {
    let stamp = read_time(answers.pop())?;
    let read = |answer| match answer {
        Ok(life) => {
            let life = Life::read(&mut Reply::new("PEXPIRETIME", Value::Array(vec![life]))?)?;
            Ok(Found { stamp, life, copy: Bytes::new() })
        }
        Err(error) => elsewhere(error),
    };
    Ok((stamp, answers.into_iter().map(read).collect::<Result<_>>()?))
}

/// Touches of these keys, with the time behind them. Of several servers each call names the keys of one slot: none may
/// name those of two, though one server may have both. Returns the places of each command's keys, too.
pub fn touches(
    keys: &[Bytes],
    capture: &Capture,
    horizon: Option<u64>,
    several: bool,
) -> (Vec<Vec<usize>>, Pipeline) {
    let slot = |key: &[u8]| if several { slot_of(key) } else { 0 };
    let (groups, mut commands): (Vec<_>, _) = (by_slot(keys, slot).into_values().collect(), pipe());
    for places in &groups {
        let some: Vec<_> = places.iter().map(|place| keys[*place].clone()).collect();
        commands.add_command(touch_command(&some, capture, horizon));
    }
    commands.cmd("TIME");
    (groups, commands)
}

/// The places of the keys of each slot.
pub(super) fn by_slot(keys: &[Bytes], slot_of: impl Fn(&[u8]) -> u16) -> BTreeMap<u16, Vec<usize>> {
    let mut slots: BTreeMap<u16, Vec<usize>> = BTreeMap::new();
    for (place, key) in keys.iter().enumerate() {
        slots.entry(slot_of(key)).or_default().push(place);
    }
    slots
}

/// What is answered to that.
pub fn read_touches(
    groups: &[Vec<usize>],
    mut answers: Vec<Result<Value>>,
    capture: &Capture,
) -> Result<(ServerTime, Vec<Found>)> {
    let time = read_time(answers.pop())?;
    let mut found = vec![Found::ELSEWHERE; groups.iter().map(Vec::len).sum()];
    for (places, answer) in groups.iter().zip(answers) {
        let some = match answer {
            Ok(answer) => read_touched(answer, places.len(), capture)?.1,
            Err(error) => vec![elsewhere(error)?; places.len()],
        };
        for (place, one) in places.iter().zip(some) {
            found[*place] = one;
        }
    }
    Ok((time, found))
}

fn read_time(answer: Option<Result<Value>>) -> Result<ServerTime> {
    Ok(Reply::new("TIME", answer.unwrap_or(Ok(Value::Nil))?)?.stamped()?.stamp)
}

/// What another server is to be asked about was not found here; any other error stays one.
fn elsewhere(error: Error) -> Result<Found> {
    let moved = error.redirect().is_some() || error.code() == Some("TRYAGAIN");
    if moved { Ok(Found::ELSEWHERE) } else { Err(error) }
}
