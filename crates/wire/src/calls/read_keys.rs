//! Reads keys that other programs write: their deadlines, and copies of their values.
//!
//! A copy is a byte for its kind, and the content. read_keys.lua makes copies, and a test compares the bytes.

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
    /// When the key was read. Keys of different slots are read at different times.
    pub stamp: ServerTime,
    /// The deadline, or why there is none.
    pub life: KeyDeadline,
    /// A copy of the value; empty if none was requested.
    pub copy: Bytes,
}

impl KeySnapshot {
    /// The result of a server that does not have the key's slot.
    const ELSEWHERE: Self = Self { stamp: ServerTime(0), life: KeyDeadline::Elsewhere, copy: Bytes::new() };
}

/// A deadline from here on, in ms, counts as none. The numbers of scripts are floating-point, and only exact below. In a
/// Redis Cluster the entry of a tracked key has 56 bits for the deadline.
const DEADLINE_LIMIT: u64 = 1 << 53;

/// The deadline of a key, or why it has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyDeadline {
    /// Not known: the key's slot is on another server, or is being moved there.
    Elsewhere,
    /// The key does not exist.
    Gone,
    /// The key has no deadline.
    Persistent,
    /// The deadline, in ms since 1970.
    Until(u64),
}

impl KeyDeadline {
    /// Reads a reply of PEXPIRETIME. A deadline that scripts cannot read exactly counts as none.
    fn read(reply: &mut Reply) -> Result<Self> {
        Ok(match reply.signed()? {
            -2 => Self::Gone,
            deadline => match u64::try_from(deadline) {
                Ok(deadline @ ..DEADLINE_LIMIT) => Self::Until(deadline),
                _ => Self::Persistent,
            },
        })
    }
}

/// Creates a call of read_keys.lua, which the connection of the subscription sends, too. Keys without a deadline, and keys
/// with one after `horizon`, in ms, are not copied.
fn read_command(keys: &[Bytes], capture: &CopySpec, horizon: Option<u64>) -> Cmd {
    let mut command = script_call(&scripts::READ_KEYS, &keys.iter().map(|key| &key[..]).collect::<Vec<_>>());
    command.arg(capture.cap).arg(i32::from(capture.dumps)).arg(horizon.unwrap_or_default());
    match &capture.fields {
        FieldSelection::None => command.arg("none"),
        FieldSelection::All => command.arg("all"),
        FieldSelection::Named(names) => command.arg("named").arg(&names[..]),
    };
    command
}

/// Reads the reply of read_keys.lua, which has copies only if they were requested.
fn read_snapshots(answer: Value, count: usize, capture: &CopySpec) -> Result<(ServerTime, Vec<KeySnapshot>)> {
    let mut reply = Reply::new(scripts::READ_KEYS.name, answer)?.stamped()?;
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

/// Returns the commands that read_keys.lua runs, with their names. Each reads a missing key with the same prefix, so that no
/// reply is large.
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
    let (missing, mut commands) = ([key, b":"].concat(), pipe());
    for name in &names {
        let command = commands.cmd(name).arg(&missing);
        if matches!(*name, "hstrlen" | "hmget") {
            command.arg("");
        }
    }
    (names, commands)
}

/// Creates commands that read the deadlines alone. This costs the server less than a script does. The deadlines are read one
/// after another, and the time is read last.
pub fn glance_commands(keys: &[Bytes]) -> Pipeline {
    let mut commands = pipe();
    for key in keys {
        commands.cmd("PEXPIRETIME").arg(&key[..]);
    }
    commands.cmd("TIME");
    commands
}

/// Reads the replies to [`glance_commands`].
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

/// Creates calls of read_keys.lua, and reads the time last. If there are `several` servers, each call has the keys of one
/// slot, because a call must not name keys of two slots. Also returns the positions of each call's keys.
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
        commands.add_command(read_command(&some, capture, horizon));
    }
    commands.cmd("TIME");
    (groups, commands)
}

/// Groups the positions of keys by slot.
fn by_slot(keys: &[Bytes], slot_of: impl Fn(&[u8]) -> u16) -> BTreeMap<u16, Vec<usize>> {
    let mut slots: BTreeMap<u16, Vec<usize>> = BTreeMap::new();
    for (place, key) in keys.iter().enumerate() {
        slots.entry(slot_of(key)).or_default().push(place);
    }
    slots
}

/// Reads the replies to [`touches`].
pub fn read_touches(
    groups: &[Vec<usize>],
    mut answers: Vec<Result<Value>>,
    capture: &CopySpec,
) -> Result<(ServerTime, Vec<KeySnapshot>)> {
    let time = read_time(answers.pop())?;
    let mut found = vec![KeySnapshot::ELSEWHERE; groups.iter().map(Vec::len).sum()];
    for (places, answer) in groups.iter().zip(answers) {
        let some = match answer {
            Ok(answer) => read_snapshots(answer, places.len(), capture)?.1,
            Err(error) => vec![elsewhere(error)?; places.len()],
        };
        scatter(&mut found, places, some);
    }
    Ok((time, found))
}

fn read_time(answer: Option<Result<Value>>) -> Result<ServerTime> {
    Ok(Reply::new("TIME", answer.unwrap_or(Ok(Value::Nil))?)?.stamped()?.stamp)
}

/// Converts a redirection to another server into [`KeyDeadline::Elsewhere`]. Passes on any other error.
fn elsewhere(error: Error) -> Result<KeySnapshot> {
    let moved = error.redirect().is_some() || error.code() == Some("TRYAGAIN");
    if moved { Ok(KeySnapshot::ELSEWHERE) } else { Err(error) }
}

impl Store {
    /// Reads keys from all servers, with one call for each slot.
    pub async fn read(&self, keys: &[Bytes], capture: &CopySpec) -> Result<Vec<KeySnapshot>> {
        let mut found = vec![KeySnapshot::ELSEWHERE; keys.len()];
        for (slot, places) in by_slot(keys, |key| self.0.topology.slot_of(key)) {
            let some: Vec<_> = places.iter().map(|place| keys[*place].clone()).collect();
            let call = self.call_of(&scripts::READ_KEYS, slot, read_command(&some, capture, None));
            let (_, read) = read_snapshots(call.run().await?, some.len(), capture)?;
            scatter(&mut found, &places, read);
        }
        Ok(found)
    }
}

/// The kind of a value that was too large to copy. Its size follows, if it is known.
pub const TOO_LARGE: u8 = 1;
/// The kind of a string. Its bytes follow.
pub const STRING: u8 = 2;
/// The kind of a value of another type. The reply of DUMP follows.
pub const DUMP: u8 = 3;

/// The kind of a hash. Its fields follow one by one.
pub const FIELDS: u8 = 5;

/// Returns the fields of a hash in the payload of a lapse; `None` if the payload has no fields, or they are cut short.
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

/// The flag of a payload that has before the copy the time of its reading, in ms.
const READ_AT: u8 = 16;

/// Takes the bytes before the copy from the payload of a lapse. Returns the flags, and when the copy was read, in ms.
pub fn take_head(payload: &mut Bytes) -> Option<(u8, Option<u64>)> {
    let flags = payload.try_get_u8().ok()?;
    let read_at = if flags & READ_AT != 0 { Some(payload.try_get_u64().ok()?) } else { None };
    Some((flags, read_at))
}

/// Returns the bytes of the copied value in the payload of a lapse; empty without a copy.
pub fn value_of(payload: &Bytes) -> Bytes {
    let mut copy = payload.clone();
    match take_head(&mut copy).and_then(|_| copy.first().copied()) {
        Some(STRING | DUMP | FIELDS) => copy.slice(1..),
        _ => Bytes::new(),
    }
}

/// Returns the copy to write back until this attempt; `None` if there is nothing to write.
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

/// Sets a field of a JSON object to the number of the attempt. All other text stays as it was written. Returns `None` if the
/// value is not an object.
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
            // Of two equal fields the last one counts.
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
        // The time of the reading comes before the copy.
        assert_eq!(copied(b"\x10\x00\x00\x01\x8b\xcf\xe5\xa2\x98\x02x", None).unwrap(), &b"\x02x"[..]);
        assert_eq!(copied(b"\x10\x00\x00\x01", None), None);
    }
}
