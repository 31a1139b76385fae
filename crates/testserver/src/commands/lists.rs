//! The commands for lists.

use bytes::Bytes;

use super::CommandCall;
use super::texts::positions;
use crate::events::EventClass;
use crate::reply::{CommandResult, ErrorReply, RedisReply};
use crate::value::List;

pub(super) fn lpush(call: &mut CommandCall<'_>) -> CommandResult {
    let List(items) = call.state.get_or_create(call.arg(1))?;
    call.args[2..].iter().for_each(|item| items.push_front(item.clone()));
    let length = items.len();
    call.state.notify(EventClass::LIST, "lpush", call.arg(1));
    Ok(RedisReply::count(length))
}

pub(super) fn rpush(call: &mut CommandCall<'_>) -> CommandResult {
    let List(items) = call.state.get_or_create(call.arg(1))?;
    items.extend(call.args[2..].iter().cloned());
    let length = items.len();
    call.state.notify(EventClass::LIST, "rpush", call.arg(1));
    Ok(RedisReply::count(length))
}

pub(super) fn lpop(call: &mut CommandCall<'_>) -> CommandResult {
    pop(call, "lpop", |List(items)| items.pop_front())
}

pub(super) fn rpop(call: &mut CommandCall<'_>) -> CommandResult {
    pop(call, "rpop", |List(items)| items.pop_back())
}

fn pop(call: &mut CommandCall<'_>, event: &str, take: fn(&mut List) -> Option<Bytes>) -> CommandResult {
    let single = call.args.len() == 2;
    if call.args.len() > 3 {
        return call.wrong_arity();
    }
    let range = ErrorReply::of("ERR value is out of range, must be positive");
    let count = if single { 1 } else { call.int(2).map_err(|_| range.clone())? };
    let count = usize::try_from(count).map_err(|_| range)?;
    let key = call.arg(1);
    let Some(list) = call.state.get::<List>(key)? else { return Ok(RedisReply::Nil) };
    let popped: Vec<RedisReply> =
        std::iter::from_fn(|| take(list)).take(count).map(RedisReply::Bulk).collect();
    if !popped.is_empty() {
        call.state.notify(EventClass::LIST, event, key);
        call.state.delete_if_empty(key);
    }
    Ok(if single { popped.into_iter().next().unwrap_or(RedisReply::Nil) } else { RedisReply::Array(popped) })
}

pub(super) fn llen(call: &mut CommandCall<'_>) -> CommandResult {
    Ok(RedisReply::count(call.state.get::<List>(call.arg(1))?.map_or(0, |List(items)| items.len())))
}

pub(super) fn lrange(call: &mut CommandCall<'_>) -> CommandResult {
    let (from, to) = (call.int(2)?, call.int(3)?);
    let Some(List(items)) = call.state.get(call.arg(1))? else { return Ok(RedisReply::Array(vec![])) };
    let found = positions(from, to, items.len())
        .map(|positions| items.range(positions).cloned().map(RedisReply::Bulk));
    Ok(RedisReply::Array(found.map(Iterator::collect).unwrap_or_default()))
}
