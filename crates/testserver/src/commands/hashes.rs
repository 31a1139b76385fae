//! Hashes.

use bytes::Bytes;

use super::Call;
use crate::events::Class;
use crate::number;
use crate::reply::{Answer, Refusal, Reply};
use crate::value::Fields;

/// HSET and HMSET.
pub(super) fn hset(call: &mut Call<'_>) -> Answer {
    if !call.args.len().is_multiple_of(2) {
        return call.wrong_arity();
    }
    let key = call.arg(1);
    let fields = call.state.get_or_create::<Fields>(key)?;
    let pairs = call.args[2..].chunks_exact(2);
    let new = pairs.filter(|pair| fields.set(&pair[0], pair[1].clone())).count();
    call.state.notify(Class::HASH, "hset", key);
    Ok(if call.command.name == "hmset" { Reply::OK } else { Reply::count(new) })
}

pub(super) fn hsetnx(call: &mut Call<'_>) -> Answer {
    let (key, field, value) = (call.arg(1), call.arg(2), call.arg(3));
    let fields = call.state.get_or_create::<Fields>(key)?;
    let free = !fields.contains(field);
    if free {
        fields.set(field, value.clone());
        call.state.notify(Class::HASH, "hset", key);
    }
    Ok(Reply::flag(free))
}

fn field(call: &mut Call<'_>) -> Result<Option<Bytes>, Refusal> {
    let (key, field) = (call.arg(1), call.arg(2));
    let fields = call.state.get::<Fields>(key)?;
    Ok(fields.and_then(|fields| fields.get(field)).cloned())
}

pub(super) fn hget(call: &mut Call<'_>) -> Answer {
    Ok(Reply::bytes_or_nil(field(call)?))
}

pub(super) fn hexists(call: &mut Call<'_>) -> Answer {
    Ok(Reply::flag(field(call)?.is_some()))
}

pub(super) fn hstrlen(call: &mut Call<'_>) -> Answer {
    Ok(Reply::count(field(call)?.map_or(0, |value| value.len())))
}

pub(super) fn hmget(call: &mut Call<'_>) -> Answer {
    let fields = call.state.get::<Fields>(call.arg(1))?;
    let get = |field| Reply::bytes_or_nil(fields.as_ref().and_then(|fields| fields.get(field)).cloned());
    Ok(Reply::Array(call.args[2..].iter().map(get).collect()))
}

pub(super) fn hdel(call: &mut Call<'_>) -> Answer {
    let key = call.arg(1);
    let Some(fields) = call.state.get::<Fields>(key)? else { return Ok(Reply::Int(0)) };
    let gone = call.args[2..].iter().filter(|field| fields.remove(field)).count();
    if gone > 0 {
        call.state.notify(Class::HASH, "hdel", key);
        call.state.delete_if_empty(key);
    }
    Ok(Reply::count(gone))
}

pub(super) fn hlen(call: &mut Call<'_>) -> Answer {
    Ok(Reply::count(call.state.get::<Fields>(call.arg(1))?.map_or(0, |fields| fields.len())))
}

/// What is made of each field and value.
fn each<T>(call: &mut Call<'_>, make: fn(&Bytes, &Bytes) -> T) -> Result<Vec<T>, Refusal> {
    let fields = call.state.get::<Fields>(call.arg(1))?;
    let pairs = fields.as_ref().map(|fields| fields.iter().map(|(field, value)| make(field, value)));
    Ok(pairs.map(Iterator::collect).unwrap_or_default())
}

pub(super) fn hgetall(call: &mut Call<'_>) -> Answer {
    let pair = |field: &Bytes, value: &Bytes| (Reply::Bulk(field.clone()), Reply::Bulk(value.clone()));
    Ok(Reply::Map(each(call, pair)?))
}

pub(super) fn hkeys(call: &mut Call<'_>) -> Answer {
    Ok(Reply::Array(each(call, |field, _| Reply::Bulk(field.clone()))?))
}

pub(super) fn hvals(call: &mut Call<'_>) -> Answer {
    Ok(Reply::Array(each(call, |_, value| Reply::Bulk(value.clone()))?))
}

pub(super) fn hincrby(call: &mut Call<'_>) -> Answer {
    let (key, field, by) = (call.arg(1), call.arg(2), call.int(3)?);
    let fields = call.state.get_or_create::<Fields>(key)?;
    let old = fields.get(field).map_or(Some(0), |value| number::integer(value));
    let old = old.ok_or(Refusal::of("ERR hash value is not an integer"))?;
    let overflow = Refusal::of("ERR increment or decrement would overflow");
    let sum = old.checked_add(by).ok_or(overflow)?;
    fields.set(field, sum.to_string().into());
    call.state.notify(Class::HASH, "hincrby", key);
    Ok(Reply::Int(sum))
}
