//! SCAN and its like.

use bytes::Bytes;

use super::Call;
use crate::glob;
use crate::number;
use crate::reply::{Answer, Refusal, Reply};
use crate::value::{Fields, Members, Typed, Zset};

struct Options {
    cursor: u64,
    count: usize,
    pattern: Option<Bytes>,
    of_type: Option<Bytes>,
}

impl Options {
    fn parse(call: &Call<'_>, at: usize, typed: bool) -> Result<Self, Refusal> {
        let mut options = Self { cursor: cursor(call, at)?, count: 10, pattern: None, of_type: None };
        for at in (at + 1..call.args.len()).step_by(2) {
            let value = call.args.get(at + 1).ok_or(Refusal::SYNTAX)?;
            if call.is(at, "COUNT") {
                let count = usize::try_from(call.int(at + 1)?).ok();
                options.count = count.filter(|count| *count > 0).ok_or(Refusal::SYNTAX)?;
            } else if call.is(at, "MATCH") {
                options.pattern = Some(value.clone());
            } else if typed && call.is(at, "TYPE") {
                options.of_type = Some(value.clone());
            } else {
                return Err(Refusal::SYNTAX);
            }
        }
        Ok(options)
    }

    fn wants(&self, name: &[u8]) -> bool {
        self.pattern.as_ref().is_none_or(|pattern| glob::matches(pattern, name))
    }
}

fn cursor(call: &Call<'_>, at: usize) -> Result<u64, Refusal> {
    let cursor = std::str::from_utf8(call.arg(at)).ok().and_then(|cursor| cursor.parse().ok());
    cursor.ok_or(Refusal::of("ERR invalid cursor"))
}

/// The options of a scan of one key, if it is there and of this type: that is asked first.
fn options_if_there<T: Typed>(call: &mut Call<'_>) -> Result<Option<Options>, Refusal> {
    cursor(call, 2)?;
    let there = call.state.get::<T>(call.arg(1))?.is_some();
    if there { Options::parse(call, 2, false).map(Some) } else { Ok(None) }
}

fn page(cursor: u64, items: Vec<Reply>) -> Answer {
    Ok(Reply::Array(vec![Reply::bulk(cursor.to_string()), Reply::Array(items)]))
}

/// The server notices what has expired, of the keys that match.
pub(super) fn scan(call: &mut Call<'_>) -> Answer {
    let options = Options::parse(call, 1, true)?;
    let (next, mut keys) = call.state.keys.scan(options.cursor, options.count);
    keys.retain(|key| {
        let wanted = options.wants(key) && call.state.has(key);
        wanted && is_of_type(call, key, &options)
    });
    page(next, keys.into_iter().map(Reply::Bulk).collect())
}

fn is_of_type(call: &mut Call<'_>, key: &Bytes, options: &Options) -> bool {
    let Some(wanted) = &options.of_type else { return true };
    call.state.value(key).is_some_and(|value| wanted.eq_ignore_ascii_case(value.type_name().as_bytes()))
}

pub(super) fn hscan(call: &mut Call<'_>) -> Answer {
    let Some(options) = options_if_there::<Fields>(call)? else { return page(0, vec![]) };
    let Some(fields) = call.state.get::<Fields>(call.arg(1))? else { return page(0, vec![]) };
    let (next, found) = fields.scan(options.cursor, options.count);
    let wanted = found.into_iter().filter(|(field, _)| options.wants(field));
    page(next, wanted.flat_map(|(field, value)| [field, value]).cloned().map(Reply::Bulk).collect())
}

pub(super) fn zscan(call: &mut Call<'_>) -> Answer {
    let Some(options) = options_if_there::<Zset>(call)? else { return page(0, vec![]) };
    let Some(zset) = call.state.get::<Zset>(call.arg(1))? else { return page(0, vec![]) };
    let (next, found) = zset.scan(options.cursor, options.count);
    let wanted = found.into_iter().filter(|(member, _)| options.wants(member));
    let pair =
        |(member, score): (&Bytes, &f64)| [Reply::Bulk(member.clone()), Reply::bulk(number::print(*score))];
    page(next, wanted.flat_map(pair).collect())
}

pub(super) fn sscan(call: &mut Call<'_>) -> Answer {
    let Some(options) = options_if_there::<Members>(call)? else { return page(0, vec![]) };
    let Some(members) = call.state.get::<Members>(call.arg(1))? else { return page(0, vec![]) };
    let (next, found) = members.scan(options.cursor, options.count);
    let wanted = found.into_iter().filter(|member| options.wants(member));
    page(next, wanted.cloned().map(Reply::Bulk).collect())
}
