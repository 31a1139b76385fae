//! Strings that are numbers.

use bytes::Bytes;

use super::Call;
use super::texts::replace;
use crate::events::Class;
use crate::number;
use crate::reply::{Answer, Refusal, Reply};
use crate::value::Value;

pub(super) fn incr(call: &mut Call<'_>) -> Answer {
    add(call, 1)
}

pub(super) fn decr(call: &mut Call<'_>) -> Answer {
    add(call, -1)
}

pub(super) fn incrby(call: &mut Call<'_>) -> Answer {
    let by = call.int(2)?;
    add(call, by)
}

pub(super) fn decrby(call: &mut Call<'_>) -> Answer {
    let by = call.int(2)?.checked_neg().ok_or(Refusal::of("ERR decrement would overflow"))?;
    add(call, by)
}

fn add(call: &mut Call<'_>, by: i64) -> Answer {
    let key = call.arg(1);
    let old = call.state.get::<Bytes>(key)?;
    let number = old.as_ref().map(|text| number::integer(text).ok_or(Refusal::NOT_AN_INTEGER)).transpose()?;
    let overflow = Refusal::of("ERR increment or decrement would overflow");
    let sum = number.unwrap_or_default().checked_add(by).ok_or(overflow)?;
    let text = Bytes::from(sum.to_string());
    match number {
        Some(_) => replace(call, text),
        None => call.state.put(key, Value::Text(text)),
    }
    call.state.notify(Class::TEXT, "incrby", key);
    Ok(Reply::Int(sum))
}
