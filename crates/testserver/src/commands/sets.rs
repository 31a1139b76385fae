//! The commands for sets.

use super::CommandCall;
use crate::events::EventClass;
use crate::reply::{CommandResult, RedisReply};
use crate::value::Members;

pub(super) fn sadd(call: &mut CommandCall<'_>) -> CommandResult {
    let key = call.arg(1);
    let members = call.state.get_or_create::<Members>(key)?;
    let new = call.args[2..].iter().filter(|member| members.add(member)).count();
    if new > 0 {
        call.state.notify(EventClass::SET, "sadd", key);
    }
    Ok(RedisReply::count(new))
}

pub(super) fn srem(call: &mut CommandCall<'_>) -> CommandResult {
    let key = call.arg(1);
    let Some(members) = call.state.get::<Members>(key)? else { return Ok(RedisReply::Int(0)) };
    let gone = call.args[2..].iter().filter(|member| members.remove(member)).count();
    if gone > 0 {
        call.state.notify(EventClass::SET, "srem", key);
        call.state.delete_if_empty(key);
    }
    Ok(RedisReply::count(gone))
}

pub(super) fn scard(call: &mut CommandCall<'_>) -> CommandResult {
    Ok(RedisReply::count(call.state.get::<Members>(call.arg(1))?.map_or(0, |members| members.len())))
}

pub(super) fn smembers(call: &mut CommandCall<'_>) -> CommandResult {
    let members = call.state.get::<Members>(call.arg(1))?;
    let all = members.as_ref().map(|members| members.iter().cloned().map(RedisReply::Bulk).collect());
    Ok(RedisReply::Set(all.unwrap_or_default()))
}

pub(super) fn sismember(call: &mut CommandCall<'_>) -> CommandResult {
    let (key, member) = (call.arg(1), call.arg(2));
    let members = call.state.get::<Members>(key)?;
    Ok(RedisReply::flag(members.is_some_and(|members| members.contains(member))))
}
