//! The commands for strings that are numbers.

use bytes::Bytes;

use super::CommandCall;
use super::texts::replace;
use crate::events::EventClass;
use crate::number;
use crate::reply::{CommandResult, ErrorReply, RedisReply};
use crate::value::StoredValue;

pub(super) fn incr(call: &mut CommandCall<'_>) -> CommandResult {
    add(call, 1)
}

pub(super) fn decr(call: &mut CommandCall<'_>) -> CommandResult {
    add(call, -1)
}

pub(super) fn incrby(call: &mut CommandCall<'_>) -> CommandResult {
    let by = call.int(2)?;
    add(call, by)
}

pub(super) fn decrby(call: &mut CommandCall<'_>) -> CommandResult {
    let by = call.int(2)?.checked_neg().ok_or(ErrorReply::of("ERR decrement would overflow"))?;
    add(call, by)
}

fn add(call: &mut CommandCall<'_>, by: i64) -> CommandResult {
    let key = call.arg(1);
    let old = call.state.get::<Bytes>(key)?;
    let number =
        old.as_ref().map(|text| number::integer(text).ok_or(ErrorReply::NOT_AN_INTEGER)).transpose()?;
    let overflow = ErrorReply::of("ERR increment or decrement would overflow");
    let sum = number.unwrap_or_default().checked_add(by).ok_or(overflow)?;
    let text = Bytes::from(sum.to_string());
    match number {
        Some(_) => replace(call, text),
        None => call.state.put(key, StoredValue::Text(text)),
    }
    call.state.notify(EventClass::TEXT, "incrby", key);
    Ok(RedisReply::Int(sum))
}
