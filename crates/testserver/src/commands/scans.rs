//! SCAN, HSCAN, ZSCAN and SSCAN.

use bytes::Bytes;

use super::CommandCall;
use crate::glob;
use crate::number;
use crate::reply::{CommandResult, ErrorReply, RedisReply};
use crate::value::{HashFields, Members, Typed, Zset};

struct Options {
    cursor: u64,
    count: usize,
    pattern: Option<Bytes>,
    of_type: Option<Bytes>,
}

impl Options {
    fn parse(call: &CommandCall<'_>, at: usize, typed: bool) -> Result<Self, ErrorReply> {
        let mut options = Self { cursor: cursor(call, at)?, count: 10, pattern: None, of_type: None };
        for at in (at + 1..call.args.len()).step_by(2) {
            let value = call.args.get(at + 1).ok_or(ErrorReply::SYNTAX)?;
            if call.is(at, "COUNT") {
                let count = usize::try_from(call.int(at + 1)?).ok();
                options.count = count.filter(|count| *count > 0).ok_or(ErrorReply::SYNTAX)?;
            } else if call.is(at, "MATCH") {
                options.pattern = Some(value.clone());
            } else if typed && call.is(at, "TYPE") {
                options.of_type = Some(value.clone());
            } else {
                return Err(ErrorReply::SYNTAX);
            }
        }
        Ok(options)
    }

    fn wants(&self, name: &[u8]) -> bool {
        self.pattern.as_ref().is_none_or(|pattern| glob::matches(pattern, name))
    }
}

fn cursor(call: &CommandCall<'_>, at: usize) -> Result<u64, ErrorReply> {
    let cursor = std::str::from_utf8(call.arg(at)).ok().and_then(|cursor| cursor.parse().ok());
    cursor.ok_or(ErrorReply::of("ERR invalid cursor"))
}

/// Parses the options of HSCAN, ZSCAN or SSCAN. First checks the cursor and the type of the key. Returns `None` if the key
/// does not exist.
fn options_if_exists<T: Typed>(call: &mut CommandCall<'_>) -> Result<Option<Options>, ErrorReply> {
    cursor(call, 2)?;
    let exists = call.state.get::<T>(call.arg(1))?.is_some();
    if exists { Options::parse(call, 2, false).map(Some) } else { Ok(None) }
}

fn page(cursor: u64, items: Vec<RedisReply>) -> CommandResult {
    Ok(RedisReply::Array(vec![RedisReply::bulk(cursor.to_string()), RedisReply::Array(items)]))
}

/// Scans all keys. Deletes expired keys that match.
pub(super) fn scan(call: &mut CommandCall<'_>) -> CommandResult {
    let options = Options::parse(call, 1, true)?;
    let (next, mut keys) = call.state.keys.scan(options.cursor, options.count);
    keys.retain(|key| {
        let wanted = options.wants(key) && call.state.has(key);
        wanted && is_of_type(call, key, &options)
    });
    page(next, keys.into_iter().map(RedisReply::Bulk).collect())
}

fn is_of_type(call: &mut CommandCall<'_>, key: &Bytes, options: &Options) -> bool {
    let Some(wanted) = &options.of_type else { return true };
    call.state.value(key).is_some_and(|value| wanted.eq_ignore_ascii_case(value.type_name().as_bytes()))
}

pub(super) fn hscan(call: &mut CommandCall<'_>) -> CommandResult {
    let Some(options) = options_if_exists::<HashFields>(call)? else { return page(0, vec![]) };
    let Some(fields) = call.state.get::<HashFields>(call.arg(1))? else { return page(0, vec![]) };
    let (next, found) = fields.scan(options.cursor, options.count);
    let wanted = found.into_iter().filter(|(field, _)| options.wants(field));
    page(next, wanted.flat_map(|(field, value)| [field, value]).cloned().map(RedisReply::Bulk).collect())
}

pub(super) fn zscan(call: &mut CommandCall<'_>) -> CommandResult {
    let Some(options) = options_if_exists::<Zset>(call)? else { return page(0, vec![]) };
    let Some(zset) = call.state.get::<Zset>(call.arg(1))? else { return page(0, vec![]) };
    let (next, found) = zset.scan(options.cursor, options.count);
    let wanted = found.into_iter().filter(|(member, _)| options.wants(member));
    let pair = |(member, score): (&Bytes, &f64)| {
        [RedisReply::Bulk(member.clone()), RedisReply::bulk(number::print(*score))]
    };
    page(next, wanted.flat_map(pair).collect())
}

pub(super) fn sscan(call: &mut CommandCall<'_>) -> CommandResult {
    let Some(options) = options_if_exists::<Members>(call)? else { return page(0, vec![]) };
    let Some(members) = call.state.get::<Members>(call.arg(1))? else { return page(0, vec![]) };
    let (next, found) = members.scan(options.cursor, options.count);
    let wanted = found.into_iter().filter(|member| options.wants(member));
    page(next, wanted.cloned().map(RedisReply::Bulk).collect())
}
