//! The other commands for sorted sets.

use bytes::Bytes;

use super::CommandCall;
use super::texts::positions;
use crate::events::EventClass;
use crate::reply::{CommandResult, ErrorReply, RedisReply};
use crate::value::{Bound, Zset};

pub(super) fn zrem(call: &mut CommandCall<'_>) -> CommandResult {
    let key = call.arg(1);
    let Some(zset) = call.state.get::<Zset>(key)? else { return Ok(RedisReply::Int(0)) };
    let gone = call.args[2..].iter().filter(|member| zset.remove(member)).count();
    removed(call, gone, "zrem")
}

fn removed(call: &mut CommandCall<'_>, count: usize, event: &str) -> CommandResult {
    if count > 0 {
        call.state.notify(EventClass::ZSET, event, call.arg(1));
        call.state.delete_if_empty(call.arg(1));
    }
    Ok(RedisReply::count(count))
}

pub(super) fn zscore(call: &mut CommandCall<'_>) -> CommandResult {
    let (key, member) = (call.arg(1), call.arg(2));
    let zset = call.state.get::<Zset>(key)?;
    Ok(zset.and_then(|zset| zset.score(member)).map_or(RedisReply::Nil, RedisReply::Double))
}

pub(super) fn zmscore(call: &mut CommandCall<'_>) -> CommandResult {
    let zset = call.state.get::<Zset>(call.arg(1))?;
    let score = |member| {
        zset.as_ref().and_then(|zset| zset.score(member)).map_or(RedisReply::Nil, RedisReply::Double)
    };
    Ok(RedisReply::Array(call.args[2..].iter().map(score).collect()))
}

pub(super) fn zcard(call: &mut CommandCall<'_>) -> CommandResult {
    Ok(RedisReply::count(call.state.get::<Zset>(call.arg(1))?.map_or(0, |zset| zset.len())))
}

/// Parses the bounds of a range of scores.
fn bounds(call: &CommandCall<'_>) -> Result<(Bound, Bound), ErrorReply> {
    let bound = |at| Bound::parse(call.arg(at)).ok_or(ErrorReply::NOT_A_RANGE);
    Ok((bound(2)?, bound(3)?))
}

pub(super) fn zcount(call: &mut CommandCall<'_>) -> CommandResult {
    let (low, high) = bounds(call)?;
    let zset = call.state.get::<Zset>(call.arg(1))?;
    Ok(RedisReply::count(zset.map_or(0, |zset| zset.between(low, high).count())))
}

pub(super) fn zrank(call: &mut CommandCall<'_>) -> CommandResult {
    rank(call, false)
}

pub(super) fn zrevrank(call: &mut CommandCall<'_>) -> CommandResult {
    rank(call, true)
}

fn rank(call: &mut CommandCall<'_>, reverse: bool) -> CommandResult {
    let (key, member) = (call.arg(1), call.arg(2));
    let zset = call.state.get::<Zset>(key)?;
    Ok(zset.and_then(|zset| zset.rank(member, reverse)).map_or(RedisReply::Nil, RedisReply::count))
}

pub(super) fn zpopmin(call: &mut CommandCall<'_>) -> CommandResult {
    let key = call.arg(1);
    let single = call.args.len() == 2;
    let range = ErrorReply::of("ERR value is out of range, must be positive");
    let count = if single { 1 } else { call.int(2).map_err(|_| range.clone())? };
    let count = usize::try_from(count).map_err(|_| range)?;
    if call.args.len() > 3 {
        return Err(ErrorReply::SYNTAX);
    }
    let Some(zset) = call.state.get::<Zset>(key)? else { return Ok(RedisReply::Array(vec![])) };
    let popped: Vec<(Bytes, f64)> =
        zset.iter().take(count).map(|(member, score)| (member.clone(), score)).collect();
    for (member, _) in &popped {
        zset.remove(member);
    }
    removed(call, popped.len(), "zpopmin")?;
    if single {
        let pair = popped
            .into_iter()
            .flat_map(|(member, score)| [RedisReply::Bulk(member), RedisReply::Double(score)]);
        return Ok(RedisReply::Array(pair.collect()));
    }
    Ok(super::zranges::with_scores(call, popped, true))
}

pub(super) fn zremrangebyscore(call: &mut CommandCall<'_>) -> CommandResult {
    let (low, high) = bounds(call)?;
    let Some(zset) = call.state.get::<Zset>(call.arg(1))? else { return Ok(RedisReply::Int(0)) };
    let members: Vec<Bytes> = zset.between(low, high).map(|(member, _)| member.clone()).collect();
    let gone = members.iter().filter(|member| zset.remove(member)).count();
    removed(call, gone, "zremrangebyscore")
}

pub(super) fn zremrangebyrank(call: &mut CommandCall<'_>) -> CommandResult {
    let (from, to) = (call.int(2)?, call.int(3)?);
    let Some(zset) = call.state.get::<Zset>(call.arg(1))? else { return Ok(RedisReply::Int(0)) };
    let Some(positions) = positions(from, to, zset.len()) else { return Ok(RedisReply::Int(0)) };
    let members: Vec<Bytes> = zset.at(positions).map(|(member, _)| member.clone()).collect();
    let gone = members.iter().filter(|member| zset.remove(member)).count();
    removed(call, gone, "zremrangebyrank")
}
