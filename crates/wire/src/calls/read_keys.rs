//! Reading keys that other programs write: their deadlines, and copies of their values.
//!
//! A copy is a byte that says what it is, and what follows. As touch.lua makes them, which a test compares.

use std::collections::BTreeMap;

use bytes::{Buf, Bytes};
use keylapse_connection::{Cmd, Pipeline, Value, pipe};
use serde_json::value::RawValue;

use super::attached::scatter;
use crate::connection::slot_of;
use crate::error::{Error, Result};
use crate::policy::{CopySpec, FieldSelection, WriteBackValue};
use crate::run::script_call;
use crate::time::ServerTime;
use crate::{Reply, Store, scripts};

/// A key as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeySnapshot {
    /// When: of keys that lie in several slots, each is read by itself.
    pub stamp: ServerTime,
    /// What there was.
    pub life: KeyDeadline,
    /// A copy of the value, as touch.lua makes it; empty where none was asked for.
    pub copy: Bytes,
}

impl KeySnapshot {
    /// Nothing was: the server that was asked does not have the key's slot.
    const ELSEWHERE: Self = Self { stamp: ServerTime(0), life: KeyDeadline::Elsewhere, copy: Bytes::new() };
}

/// Deadlines from here on are none, in ms: a script, whose numbers are floating, reads others than a command, and the
/// watch of a key on a cluster has 56 bits for them.
const FAR: u64 = 1 << 53;

/// Whether a key exists, and until when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyDeadline {
    /// Another server of the cluster knows, as the key's slot is there, or on its way there.
    Elsewhere,
    /// There is no such key.
    Gone,
    /// It has no deadline.
    Persistent,
    /// Its deadline, in ms since 1970.
    Until(u64),
}

impl KeyDeadline {
    /// As `PEXPIRETIME` says it. What is too far for a script to read exactly is none.
    fn read(reply: &mut Reply) -> Result<Self> {
        Ok(match reply.signed()? {
            -2 => Self::Gone,
            deadline => match u64::try_from(deadline) {
                Ok(deadline @ ..FAR) => Self::Until(deadline),
                _ => Self::Persistent,
            },
        })
    }
}

/// The touch of keys, as it is sent on the connection of the subscription, too; copies of those alone whose
/// deadlines are not beyond the horizon, in ms.
fn touch_command(keys: &[Bytes], capture: &CopySpec, horizon: Option<u64>) -> Cmd {
    let mut command = script_call(&scripts::READ_KEYS, &keys.iter().map(|key| &key[..]).collect::<Vec<_>>());
    command.arg(capture.cap).arg(i32::from(capture.dumps)).arg(horizon.unwrap_or_default());
    match &capture.fields {
        FieldSelection::None => command.arg("none"),
        FieldSelection::All => command.arg("all"),
        FieldSelection::Named(names) => command.arg("named").arg(&names[..]),
    };
    command
}

/// What touch.lua answers: without copies where none were asked for.
fn read_touched(answer: Value, count: usize, capture: &CopySpec) -> Result<(ServerTime, Vec<KeySnapshot>)> {
    let mut reply = Reply::new("touch", answer)?.stamped()?;
    let stamp = reply.stamp;
    let found = reply.each(|reply| {
        Ok(KeySnapshot {
            stamp,
            life: KeyDeadline::read(reply)?,
            copy: if capture.cap > 0 { reply.bytes()? } else { Bytes::new() },
        })
    })?;
    if found.len() == count { Ok((stamp, found)) } else { Err(reply.unexpected()) }
}

/// The commands that touch.lua calls for this, each about a key beside this one: so nothing large is answered.
pub fn touch_steps(key: &[u8], capture: &CopySpec) -> (Vec<&'static str>, Pipeline) {
    let mut names = vec!["pexpiretime"];
    if capture.cap > 0 {
        names.extend(["type", "strlen", "get"]);
    }
    match capture.fields {
        FieldSelection::None => {}
        FieldSelection::All => names.extend(["hlen", "hkeys", "hstrlen", "hmget"]),
        FieldSelection::Named(_) => names.extend(["hstrlen", "hmget"]),
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
pub fn read_glanced(mut answers: Vec<Result<Value>>) -> Result<(ServerTime, Vec<KeySnapshot>)> {
    let stamp = read_time(answers.pop())?;
    let read = |answer| match answer {
        Ok(life) => {
            let life = KeyDeadline::read(&mut Reply::new("PEXPIRETIME", Value::Array(vec![life]))?)?;
            Ok(KeySnapshot { stamp, life, copy: Bytes::new() })
        }
        Err(error) => elsewhere(error),
    };
    Ok((stamp, answers.into_iter().map(read).collect::<Result<_>>()?))
}

/// Touches of these keys, with the time behind them. Of several servers each call names the keys of one slot: none may
/// name those of two, though one server may have both. Returns the places of each command's keys, too.
pub fn touches(
    keys: &[Bytes],
    capture: &CopySpec,
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
fn by_slot(keys: &[Bytes], slot_of: impl Fn(&[u8]) -> u16) -> BTreeMap<u16, Vec<usize>> {
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
    capture: &CopySpec,
) -> Result<(ServerTime, Vec<KeySnapshot>)> {
    let time = read_time(answers.pop())?;
    let mut found = vec![KeySnapshot::ELSEWHERE; groups.iter().map(Vec::len).sum()];
    for (places, answer) in groups.iter().zip(answers) {
        let some = match answer {
            Ok(answer) => read_touched(answer, places.len(), capture)?.1,
            Err(error) => vec![elsewhere(error)?; places.len()],
        };
        scatter(&mut found, places, some);
    }
    Ok((time, found))
}

fn read_time(answer: Option<Result<Value>>) -> Result<ServerTime> {
    Ok(Reply::new("TIME", answer.unwrap_or(Ok(Value::Nil))?)?.stamped()?.stamp)
}

/// What another server is to be asked about was not found here; any other error stays one.
fn elsewhere(error: Error) -> Result<KeySnapshot> {
    let moved = error.redirect().is_some() || error.code() == Some("TRYAGAIN");
    if moved { Ok(KeySnapshot::ELSEWHERE) } else { Err(error) }
}

impl Store {
    /// Reads keys, anywhere: those of each slot in a call of their own.
    pub async fn read(&self, keys: &[Bytes], capture: &CopySpec) -> Result<Vec<KeySnapshot>> {
        let mut found = vec![KeySnapshot::ELSEWHERE; keys.len()];
        for (slot, places) in by_slot(keys, |key| self.0.topology.slot_of(key)) {
            let some: Vec<_> = places.iter().map(|place| keys[*place].clone()).collect();
            let call = self.call_of(&scripts::READ_KEYS, slot, touch_command(&some, capture, None));
            let (_, read) = read_touched(call.run().await?, some.len(), capture)?;
            scatter(&mut found, &places, read);
        }
        Ok(found)
    }
}

/// Too large to be copied; its size follows, where it is known.
pub const TOO_LARGE: u8 = 1;
/// A string, and its bytes.
pub const STRING: u8 = 2;
/// Another type, as the server's DUMP writes it.
pub const DUMP: u8 = 3;

/// The fields of a hash, one by one.
pub const FIELDS: u8 = 5;

/// The fields of a hash in the payload of a lapse; none where it has something else, or they are cut short.
pub fn fields_of(payload: &Bytes) -> Option<Vec<(Bytes, Bytes)>> {
    fn text(copy: &mut Bytes) -> Option<Bytes> {
        let length = copy.try_get_u32().ok()? as usize;
        (length <= copy.len()).then(|| copy.split_to(length))
    }
    let mut copy = payload.clone();
    take_head(&mut copy)?;
    (copy.try_get_u8().ok()? == FIELDS).then_some(())?;
    let mut fields = Vec::new();
    while !copy.is_empty() {
        fields.push((text(&mut copy)?, text(&mut copy)?));
    }
    Some(fields)
}

/// In the first byte of a lapse's payload: before the copy stands when it was read, in ms.
const READ_AT: u8 = 16;

/// Takes from a lapse's payload what stands before the copy: the flags, and when the copy was read.
pub fn take_head(payload: &mut Bytes) -> Option<(u8, Option<u64>)> {
    let flags = payload.try_get_u8().ok()?;
    let read_at = if flags & READ_AT != 0 { Some(payload.try_get_u64().ok()?) } else { None };
    Some((flags, read_at))
}

/// The bytes of the copy of a value, in the payload of a lapse; none where there is no copy.
pub fn value_of(payload: &Bytes) -> Bytes {
    let mut copy = payload.clone();
    match take_head(&mut copy).and_then(|_| copy.first().copied()) {
        Some(STRING | DUMP | FIELDS) => copy.slice(1..),
        _ => Bytes::new(),
    }
}

/// The copy in a lapse's payload, as it is written back for this attempt; none where there is nothing to write.
pub fn written_back(payload: &Bytes, how: &WriteBackValue, attempt: u32) -> Option<Bytes> {
    let mut copy = payload.clone();
    let kind = take_head(&mut copy).and_then(|_| copy.first());
    match (how, kind) {
        (WriteBackValue::Never, _) => None,
        (WriteBackValue::AttemptOnly, _) => {
            Some([&[STRING][..], attempt.to_string().as_bytes()].concat().into())
        }
        (WriteBackValue::AttemptInField(field), Some(&STRING)) => {
            Some(in_json(&copy[1..], field, attempt).unwrap_or(copy))
        }
        (_, Some(&(STRING | DUMP))) => Some(copy),
        _ => None,
    }
}

/// The JSON object with this field set to the number of the attempt; none if it is no object. All else stays as its writer
/// wrote it.
fn in_json(value: &[u8], field: &str, attempt: u32) -> Option<Bytes> {
    let fields: BTreeMap<String, &RawValue> = serde_json::from_slice(value).ok()?;
    let (place, text) = if let Some(before) = fields.get(field) {
        let begins = before.get().as_ptr().addr() - value.as_ptr().addr();
        (begins..begins + before.get().len(), attempt.to_string())
    } else {
        let brace = value.trim_ascii_end().len() - 1;
        let comma = if fields.is_empty() { "" } else { "," };
        (brace..brace, format!("{comma}{}:{attempt}", serde_json::to_string(field).ok()?))
    };
    Some([&[STRING], &value[..place.start], text.as_bytes(), &value[place.end..]].concat().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copied(payload: &'static [u8], field: Option<&str>) -> Option<Bytes> {
        let how =
            field.map_or(WriteBackValue::Unchanged, |field| WriteBackValue::AttemptInField(field.into()));
        written_back(&Bytes::from_static(payload), &how, 3)
    }

    #[test]
    fn the_attempt_is_counted_in_the_field_of_a_json_object_alone() {
        let json = |payload, field| copied(payload, field).map(|copy| copy.to_vec());
        assert_eq!(json(b"\x00\x02{\"a\":1}", None).unwrap(), b"\x02{\"a\":1}");
        assert_eq!(json(b"\x00\x02{\"a\":1,\"z\":0}", Some("a")).unwrap(), b"\x02{\"a\":3,\"z\":0}");
        for other in [&b"\x00\x02[1]"[..], b"\x00\x02plain", b"\x00\x02"] {
            assert_eq!(json(other, Some("a")).unwrap(), other[1..], "{}", other.escape_ascii());
        }
    }

    #[test]
    fn all_else_of_the_object_stays_as_it_was_written() {
        for (before, after) in [
            (r#"{"n":1.10,"a":1}"#, r#"{"n":1.10,"a":3}"#),
            (r#"{"a":"x","n":1234567890123456789012345}"#, r#"{"a":3,"n":1234567890123456789012345}"#),
            (r#"{"z":1,"b":2,"b":1e400}"#, r#"{"z":1,"b":2,"b":1e400,"a":3}"#),
            ("\n{ \"a\" : [1, {\"a\": 2}] }\n", "\n{ \"a\" : 3 }\n"),
            // Readers take the last of two.
            (r#"{"a":1,"a":2}"#, r#"{"a":1,"a":3}"#),
            (r#"{"\u0061":2}"#, r#"{"\u0061":3}"#),
            ("{ }", "{ \"a\":3}"),
        ] {
            let copy = in_json(before.as_bytes(), "a", 3).unwrap();
            assert_eq!(std::str::from_utf8(&copy[1..]), Ok(after), "{before}");
        }
    }

    #[test]
    fn a_count_needs_no_copy() {
        for payload in [&b"\x00\x022"[..], b"\x00\x00", b"\x00\x03dump", b""] {
            let value = written_back(&Bytes::from_static(payload), &WriteBackValue::AttemptOnly, 3);
            assert_eq!(value.as_deref(), Some(&b"\x023"[..]));
        }
    }

    #[test]
    fn without_a_copy_nothing_is_written() {
        for none in [&b"\x00\x00"[..], b"\x00\x0199", b"\x00\x05\0\0\0\0\0\0\0\0", b"\x00", b""] {
            assert_eq!((copied(none, None), copied(none, Some("a"))), (None, None));
        }
        assert_eq!(copied(b"\x00\x03dump", Some("a")).unwrap(), &b"\x03dump"[..]);
        // The time of its reading stands before it.
        assert_eq!(copied(b"\x10\x00\x00\x01\x8b\xcf\xe5\xa2\x98\x02x", None).unwrap(), &b"\x02x"[..]);
        assert_eq!(copied(b"\x10\x00\x00\x01", None), None);
    }
}
