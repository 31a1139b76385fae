//! The commands for hashes.

use bytes::Bytes;

use super::CommandCall;
use crate::events::EventClass;
use crate::number;
use crate::reply::{CommandResult, ErrorReply, RedisReply};
use crate::value::HashFields;

/// Implements HSET and HMSET.
pub(super) fn hset(call: &mut CommandCall<'_>) -> CommandResult {
    if !call.args.len().is_multiple_of(2) {
        return call.wrong_arity();
    }
    let key = call.arg(1);
    let fields = call.state.get_or_create::<HashFields>(key)?;
    let pairs = call.args[2..].chunks_exact(2);
    let new = pairs.filter(|pair| fields.set(&pair[0], pair[1].clone())).count();
    call.state.notify(EventClass::HASH, "hset", key);
    Ok(if call.command.name == "hmset" { RedisReply::OK } else { RedisReply::count(new) })
}

pub(super) fn hsetnx(call: &mut CommandCall<'_>) -> CommandResult {
    let (key, field, value) = (call.arg(1), call.arg(2), call.arg(3));
    let fields = call.state.get_or_create::<HashFields>(key)?;
    let free = !fields.contains(field);
    if free {
        fields.set(field, value.clone());
        call.state.notify(EventClass::HASH, "hset", key);
    }
    Ok(RedisReply::flag(free))
}

fn field(call: &mut CommandCall<'_>) -> Result<Option<Bytes>, ErrorReply> {
    let (key, field) = (call.arg(1), call.arg(2));
    let fields = call.state.get::<HashFields>(key)?;
    Ok(fields.and_then(|fields| fields.get(field)).cloned())
}

pub(super) fn hget(call: &mut CommandCall<'_>) -> CommandResult {
    Ok(RedisReply::bytes_or_nil(field(call)?))
}

pub(super) fn hexists(call: &mut CommandCall<'_>) -> CommandResult {
    Ok(RedisReply::flag(field(call)?.is_some()))
}

pub(super) fn hstrlen(call: &mut CommandCall<'_>) -> CommandResult {
    Ok(RedisReply::count(field(call)?.map_or(0, |value| value.len())))
}

pub(super) fn hmget(call: &mut CommandCall<'_>) -> CommandResult {
    let fields = call.state.get::<HashFields>(call.arg(1))?;
    let get = |field| RedisReply::bytes_or_nil(fields.as_ref().and_then(|fields| fields.get(field)).cloned());
    Ok(RedisReply::Array(call.args[2..].iter().map(get).collect()))
}

pub(super) fn hdel(call: &mut CommandCall<'_>) -> CommandResult {
    let key = call.arg(1);
    let Some(fields) = call.state.get::<HashFields>(key)? else { return Ok(RedisReply::Int(0)) };
    let gone = call.args[2..].iter().filter(|field| fields.remove(field)).count();
    if gone > 0 {
        call.state.notify(EventClass::HASH, "hdel", key);
        call.state.delete_if_empty(key);
    }
    Ok(RedisReply::count(gone))
}

pub(super) fn hlen(call: &mut CommandCall<'_>) -> CommandResult {
    Ok(RedisReply::count(call.state.get::<HashFields>(call.arg(1))?.map_or(0, |fields| fields.len())))
}

/// Applies `make` to each field and value.
fn each<T>(call: &mut CommandCall<'_>, make: fn(&Bytes, &Bytes) -> T) -> Result<Vec<T>, ErrorReply> {
    let fields = call.state.get::<HashFields>(call.arg(1))?;
    let pairs = fields.as_ref().map(|fields| fields.iter().map(|(field, value)| make(field, value)));
    Ok(pairs.map(Iterator::collect).unwrap_or_default())
}

pub(super) fn hgetall(call: &mut CommandCall<'_>) -> CommandResult {
    let pair =
        |field: &Bytes, value: &Bytes| (RedisReply::Bulk(field.clone()), RedisReply::Bulk(value.clone()));
    Ok(RedisReply::Map(each(call, pair)?))
}

pub(super) fn hkeys(call: &mut CommandCall<'_>) -> CommandResult {
    Ok(RedisReply::Array(each(call, |field, _| RedisReply::Bulk(field.clone()))?))
}

pub(super) fn hvals(call: &mut CommandCall<'_>) -> CommandResult {
    Ok(RedisReply::Array(each(call, |_, value| RedisReply::Bulk(value.clone()))?))
}

pub(super) fn hincrby(call: &mut CommandCall<'_>) -> CommandResult {
    let (key, field, by) = (call.arg(1), call.arg(2), call.int(3)?);
    let fields = call.state.get_or_create::<HashFields>(key)?;
    let old = fields.get(field).map_or(Some(0), |value| number::integer(value));
    let old = old.ok_or(ErrorReply::of("ERR hash value is not an integer"))?;
    let overflow = ErrorReply::of("ERR increment or decrement would overflow");
    let sum = old.checked_add(by).ok_or(overflow)?;
    fields.set(field, sum.to_string().into());
    call.state.notify(EventClass::HASH, "hincrby", key);
    Ok(RedisReply::Int(sum))
}
