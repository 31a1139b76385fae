//! The commands that read strings, and those that change them in place.

use bytes::Bytes;

use super::CommandCall;
use super::expiry::{ExpiryOption, set_expiry};
use crate::events::EventClass;
use crate::reply::{CommandResult, ErrorReply, RedisReply};
use crate::value::StoredValue;

/// The limit of Redis for the size of a string.
const MAX_STRING_BYTES: usize = 512 * 1024 * 1024;

pub(super) fn get(call: &mut CommandCall<'_>) -> CommandResult {
    let text = call.state.get::<Bytes>(call.arg(1))?;
    Ok(RedisReply::bytes_or_nil(text.cloned()))
}

/// Returns the strings of keys. A value of another type counts as nil.
pub(super) fn mget(call: &mut CommandCall<'_>) -> CommandResult {
    let mut texts = Vec::with_capacity(call.args.len());
    for key in &call.args[1..] {
        texts.push(RedisReply::bytes_or_nil(call.state.get::<Bytes>(key).ok().flatten().cloned()));
    }
    Ok(RedisReply::Array(texts))
}

pub(super) fn strlen(call: &mut CommandCall<'_>) -> CommandResult {
    let text = call.state.get::<Bytes>(call.arg(1))?;
    Ok(RedisReply::count(text.map_or(0, |text| text.len())))
}

pub(super) fn getdel(call: &mut CommandCall<'_>) -> CommandResult {
    let text = call.state.get::<Bytes>(call.arg(1))?.cloned();
    if text.is_some() {
        call.state.delete(call.arg(1));
    }
    Ok(RedisReply::bytes_or_nil(text))
}

/// Returns a string and changes its expiry. The syntax of options is checked before the key is read, their numbers after.
pub(super) fn getex(call: &mut CommandCall<'_>) -> CommandResult {
    let persist = call.args.len() == 3 && call.is(2, "PERSIST");
    let expires = call.args.len() == 4 && ExpiryOption::is_option(call, 2);
    if call.args.len() > 2 && !persist && !expires {
        return Err(ErrorReply::SYNTAX);
    }
    let key = call.arg(1);
    let Some(text) = call.state.get::<Bytes>(key)?.cloned() else { return Ok(RedisReply::Nil) };
    if let Some(expiry) = ExpiryOption::option(call, 2)? {
        set_expiry(call.state, key, expiry.at);
    } else if persist && call.state.keys.get(key).is_some_and(|entry| entry.expires().is_some()) {
        call.state.keys.set_expiry(key, None);
        call.state.notify(EventClass::GENERIC, "persist", key);
    }
    Ok(RedisReply::Bulk(text))
}

pub(super) fn getrange(call: &mut CommandCall<'_>) -> CommandResult {
    let (from, to) = (call.int(2)?, call.int(3)?);
    let Some(text) = call.state.get::<Bytes>(call.arg(1))? else { return Ok(RedisReply::Bulk(Bytes::new())) };
    Ok(RedisReply::Bulk(byte_range(from, to, text.len()).map_or_else(Bytes::new, |range| text.slice(range))))
}

/// Converts a range of GETRANGE. An end before the first byte means the first byte.
fn byte_range(from: i64, to: i64, length: usize) -> Option<std::ops::RangeInclusive<usize>> {
    if from < 0 && to < 0 && from > to {
        return None;
    }
    let end = i64::try_from(length).ok()?;
    let to = if to < 0 { to.saturating_add(end).max(0) } else { to };
    positions(from, to, length)
}

/// Converts a range of positions, which count from the end if negative. Returns `None` if the range is empty.
pub(super) fn positions(from: i64, to: i64, length: usize) -> Option<std::ops::RangeInclusive<usize>> {
    let length = i64::try_from(length).ok()?;
    let position = |at: i64| if at < 0 { length.saturating_add(at) } else { at };
    let (from, to) = (position(from).max(0), position(to).min(length - 1));
    if from > to {
        return None;
    }
    Some(usize::try_from(from).ok()?..=usize::try_from(to).ok()?)
}

pub(super) fn append(call: &mut CommandCall<'_>) -> CommandResult {
    let (key, more) = (call.arg(1), call.arg(2));
    let old = call.state.get::<Bytes>(key)?.cloned();
    let length = old.as_ref().map_or(0, Bytes::len) + more.len();
    if length > MAX_STRING_BYTES {
        return Err(ErrorReply::of("ERR string exceeds maximum allowed size (proto-max-bulk-len)"));
    }
    match old {
        None => call.state.put(key, StoredValue::Text(more.clone())),
        Some(old) => replace(call, [&old[..], more].concat().into()),
    }
    call.state.notify(EventClass::TEXT, "append", key);
    Ok(RedisReply::count(length))
}

/// Changes an existing string, and keeps its expiry.
pub(super) fn replace(call: &mut CommandCall<'_>, text: Bytes) {
    if let Some(value) = call.state.keys.value_mut(call.arg(1)) {
        *value = StoredValue::Text(text);
    }
}
