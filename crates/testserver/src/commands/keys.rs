//! The commands for keys of any type.

use super::CommandCall;
use crate::glob;
use crate::reply::{CommandResult, ErrorReply, RedisReply};

/// Implements EXISTS and TOUCH. A key that is named twice counts twice.
pub(super) fn exists(call: &mut CommandCall<'_>) -> CommandResult {
    let count = call.args[1..].iter().filter(|key| call.state.has(key)).count();
    Ok(RedisReply::count(count))
}

pub(super) fn del(call: &mut CommandCall<'_>) -> CommandResult {
    let deleted = call.args[1..].iter().filter(|key| call.state.delete(key)).count();
    Ok(RedisReply::count(deleted))
}

pub(super) fn type_of(call: &mut CommandCall<'_>) -> CommandResult {
    let name = call.state.value(call.arg(1)).map_or("none", |value| value.type_name());
    Ok(RedisReply::Status(name.into()))
}

pub(super) fn encoding(call: &mut CommandCall<'_>) -> CommandResult {
    Ok(call.state.value(call.arg(2)).map_or(RedisReply::Nil, |value| RedisReply::bulk(value.encoding())))
}

/// Returns a random key. Deletes expired keys that it finds.
pub(super) fn randomkey(call: &mut CommandCall<'_>) -> CommandResult {
    loop {
        let point = (call.state.random.next() >> 32) as u32;
        let Some(key) = call.state.keys.near(point) else { return Ok(RedisReply::Nil) };
        if call.state.has(&key) {
            return Ok(RedisReply::Bulk(key));
        }
    }
}

/// Returns the keys that match, without expired ones. Deletes no expired key.
pub(super) fn keys(call: &mut CommandCall<'_>) -> CommandResult {
    let pattern = call.arg(1);
    let live = call.state.keys.iter().filter(|(_, entry)| !call.state.is_expired(entry));
    let found = live.map(|(key, _)| key).filter(|key| glob::matches(pattern, key));
    Ok(RedisReply::Array(found.cloned().map(RedisReply::Bulk).collect()))
}

/// Returns the number of keys, with expired keys that are not deleted yet.
pub(super) fn dbsize(call: &mut CommandCall<'_>) -> CommandResult {
    Ok(RedisReply::count(call.state.keys.len()))
}

/// Deletes all keys without publishing events.
pub(super) fn flush(call: &mut CommandCall<'_>) -> CommandResult {
    if call.args.len() > 2 || call.args.len() == 2 && !call.is(1, "ASYNC") && !call.is(1, "SYNC") {
        return Err(ErrorReply::SYNTAX);
    }
    call.state.keys.clear();
    call.state.watches.all_changed();
    Ok(RedisReply::OK)
}
