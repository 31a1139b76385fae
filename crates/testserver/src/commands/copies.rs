//! RENAME, COPY, DUMP and RESTORE.

use bytes::Bytes;

use super::CommandCall;
use crate::dump;
use crate::events::EventClass;
use crate::reply::{CommandResult, ErrorReply, RedisReply};

pub(super) fn rename(call: &mut CommandCall<'_>) -> CommandResult {
    move_to(call, true)?;
    Ok(RedisReply::OK)
}

pub(super) fn renamenx(call: &mut CommandCall<'_>) -> CommandResult {
    Ok(RedisReply::flag(move_to(call, false)?))
}

/// Moves a value with its expiry. Publishes no event for a value that it replaces.
fn move_to(call: &mut CommandCall<'_>, replace: bool) -> Result<bool, ErrorReply> {
    let (from, to) = (call.arg(1), call.arg(2));
    if !call.state.has(from) {
        return Err(ErrorReply::NO_SUCH_KEY);
    }
    if from == to {
        return Ok(replace);
    }
    if call.state.has(to) && !replace {
        return Ok(false);
    }
    if let Some(entry) = call.state.keys.remove(from) {
        call.state.keys.remove(to);
        let expires = entry.expires();
        call.state.put(to, entry.value);
        call.state.keys.set_expiry(to, expires);
    }
    call.state.notify(EventClass::GENERIC, "rename_from", from);
    call.state.notify(EventClass::GENERIC, "rename_to", to);
    Ok(true)
}

pub(super) fn copy(call: &mut CommandCall<'_>) -> CommandResult {
    let (from, to) = (call.arg(1), call.arg(2));
    let mut replace = false;
    let mut at = 3;
    while at < call.args.len() {
        if call.is(at, "REPLACE") {
            replace = true;
        } else if call.is(at, "DB") && at + 1 < call.args.len() {
            at += 1;
            if call.int(at)? != 0 {
                return Err(ErrorReply::of("ERR DB index is out of range"));
            }
        } else {
            return Err(ErrorReply::SYNTAX);
        }
        at += 1;
    }
    if from == to {
        return Err(ErrorReply::of("ERR source and destination objects are the same"));
    }
    let Some(entry) = call.state.entry(from).cloned() else { return Ok(RedisReply::Int(0)) };
    if call.state.has(to) && !replace {
        return Ok(RedisReply::Int(0));
    }
    call.state.keys.remove(to);
    let expires = entry.expires();
    call.state.put(to, entry.value);
    call.state.keys.set_expiry(to, expires);
    call.state.notify(EventClass::GENERIC, "copy_to", to);
    Ok(RedisReply::Int(1))
}

pub(super) fn dump(call: &mut CommandCall<'_>) -> CommandResult {
    let value = call.state.value(call.arg(1));
    Ok(RedisReply::bytes_or_nil(value.map(|value| dump::write(value))))
}

#[derive(Default)]
struct Options {
    replace: bool,
    absolute: bool,
}

impl Options {
    fn parse(call: &CommandCall<'_>) -> Result<Self, ErrorReply> {
        let mut options = Self::default();
        let mut at = 4;
        while at < call.args.len() {
            if call.is(at, "REPLACE") {
                options.replace = true;
            } else if call.is(at, "ABSTTL") {
                options.absolute = true;
            } else if call.is(at, "IDLETIME") || call.is(at, "FREQ") {
                at += 1;
                call.int(at)?;
            } else {
                return Err(ErrorReply::SYNTAX);
            }
            at += 1;
        }
        Ok(options)
    }
}

pub(super) fn restore(call: &mut CommandCall<'_>) -> CommandResult {
    let options = Options::parse(call)?;
    let key = call.arg(1);
    if !options.replace && call.state.has(key) {
        return Err(ErrorReply::of("BUSYKEY Target key name already exists."));
    }
    let ttl = u64::try_from(call.int(2)?);
    let ttl = ttl.map_err(|_| ErrorReply::of("ERR Invalid TTL value, must be >= 0"))?;
    let dump: &Bytes = call.arg(3);
    if !dump::is_whole(dump) {
        return Err(ErrorReply::of("ERR DUMP payload version or checksum are wrong"));
    }
    let value = dump::read(dump).ok_or(ErrorReply::of("ERR Bad data format"))?;
    if options.replace {
        call.state.delete(key);
    }
    let at = if options.absolute { ttl } else { ttl.saturating_add(call.state.now_ms()) };
    if ttl > 0 && at < call.state.now_ms() {
        return Ok(RedisReply::OK);
    }
    call.state.put(key, value);
    call.state.keys.set_expiry(key, (ttl > 0).then_some(at));
    call.state.notify(EventClass::GENERIC, "restore", key);
    Ok(RedisReply::OK)
}
