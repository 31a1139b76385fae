//! The commands to write and count streams.

use super::CommandCall;
use crate::events::EventClass;
use crate::number;
use crate::reply::{CommandResult, ErrorReply, RedisReply};
use crate::value::Stream;

pub(super) fn xadd(call: &mut CommandCall<'_>) -> CommandResult {
    let (at, most, create) = options(call)?;
    let Some(id) = call.args.get(at) else { return Err(ErrorReply::SYNTAX) };
    let words = call.args.len() - at - 1;
    if words < 2 || !words.is_multiple_of(2) {
        return call.wrong_arity();
    }
    let (key, now) = (call.arg(1), call.state.now_ms());
    if !create && call.state.get::<Stream>(key)?.is_none() {
        return Ok(RedisReply::Nil);
    }
    let last = call.state.get::<Stream>(key)?.map_or_else(Stream::default, |stream| stream.clone());
    let id = if &id[..] == b"*" { last.next_id(now) } else { parse(id)? };
    if id <= last.last() {
        return Err(ErrorReply::of(
            "ERR The ID specified in XADD is equal or smaller than the target stream top item",
        ));
    }
    let stream = call.state.get_or_create::<Stream>(key)?;
    stream.add(id);
    stream.trim(most.unwrap_or(usize::MAX));
    call.state.notify(EventClass::STREAM, "xadd", key);
    Ok(RedisReply::bulk(format!("{}-{}", id.0, id.1)))
}

/// Returns the position of the ID, the maximum length, and whether a new stream may be created.
fn options(call: &CommandCall<'_>) -> Result<(usize, Option<usize>, bool), ErrorReply> {
    let (mut at, mut most, mut create) = (2, None, true);
    loop {
        if call.is(at, "NOMKSTREAM") {
            create = false;
        } else if call.is(at, "MAXLEN") {
            at += usize::from(call.is(at + 1, "~") || call.is(at + 1, "=")) + 1;
            most = Some(usize::try_from(call.int(at)?).map_err(|_| ErrorReply::SYNTAX)?);
        } else {
            return Ok((at, most, create));
        }
        at += 1;
    }
}

fn parse(id: &[u8]) -> Result<(u64, u64), ErrorReply> {
    let invalid = ErrorReply::of("ERR Invalid stream ID specified as stream command argument");
    let mut parts = id.splitn(2, |byte| *byte == b'-').map(number::integer);
    let part = |part: Option<Option<i64>>| u64::try_from(part.unwrap_or(Some(0))?).ok();
    let id = part(parts.next()).zip(part(parts.next()));
    id.ok_or(invalid)
}

pub(super) fn xlen(call: &mut CommandCall<'_>) -> CommandResult {
    Ok(RedisReply::count(call.state.get::<Stream>(call.arg(1))?.map_or(0, |stream| stream.len())))
}
