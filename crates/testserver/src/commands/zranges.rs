//! The commands for ranges of sorted sets, by position or by score.

use bytes::Bytes;

use super::CommandCall;
use super::texts::positions;
use crate::reply::{CommandResult, ErrorReply, RedisReply};
use crate::resp::Protocol;
use crate::value::{Bound, Zset};

#[derive(Default)]
struct Options {
    by_score: bool,
    reverse: bool,
    scores: bool,
    /// The number of members to skip and to return. A negative number returns all.
    limit: Option<(i64, i64)>,
}

impl Options {
    /// Parses the options. `plain` is true for ZRANGE, which has options for the order and the kind of range.
    fn parse(call: &CommandCall<'_>, mut options: Self, plain: bool) -> Result<Self, ErrorReply> {
        let by_score = options.by_score;
        let mut at = 4;
        while at < call.args.len() {
            if call.is(at, "WITHSCORES") {
                options.scores = true;
            } else if call.is(at, "LIMIT") && at + 2 < call.args.len() {
                options.limit = Some((call.int(at + 1)?, call.int(at + 2)?));
                at += 2;
            } else if plain && call.is(at, "REV") {
                options.reverse = true;
            } else if plain && call.is(at, "BYSCORE") {
                options.by_score = true;
            } else {
                return Err(ErrorReply::SYNTAX);
            }
            at += 1;
        }
        if options.limit.is_some() && !options.by_score && !by_score {
            let text =
                "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX";
            return Err(ErrorReply::of(text));
        }
        Ok(options)
    }
}

pub(super) fn zrange(call: &mut CommandCall<'_>) -> CommandResult {
    let options = Options::parse(call, Options::default(), true)?;
    range(call, &options)
}

pub(super) fn zrevrange(call: &mut CommandCall<'_>) -> CommandResult {
    let options = Options::parse(call, Options { reverse: true, ..Options::default() }, false)?;
    range(call, &options)
}

pub(super) fn zrangebyscore(call: &mut CommandCall<'_>) -> CommandResult {
    let options = Options::parse(call, Options { by_score: true, ..Options::default() }, false)?;
    range(call, &options)
}

pub(super) fn zrevrangebyscore(call: &mut CommandCall<'_>) -> CommandResult {
    let options = Options { by_score: true, reverse: true, ..Options::default() };
    let options = Options::parse(call, options, false)?;
    range(call, &options)
}

fn range(call: &mut CommandCall<'_>, options: &Options) -> CommandResult {
    let found = if options.by_score { by_score(call, options)? } else { by_position(call, options.reverse)? };
    Ok(with_scores(call, found, options.scores))
}

fn by_position(call: &mut CommandCall<'_>, reverse: bool) -> Result<Vec<(Bytes, f64)>, ErrorReply> {
    let (from, to) = (call.int(2)?, call.int(3)?);
    let Some(zset) = call.state.get::<Zset>(call.arg(1))? else { return Ok(Vec::new()) };
    let length = zset.len();
    let Some(positions) = positions(from, to, length) else { return Ok(Vec::new()) };
    if !reverse {
        return Ok(owned(zset.at(positions)));
    }
    let (from, to) = (length - 1 - positions.end(), length - 1 - positions.start());
    let mut found = owned(zset.at(from..=to));
    found.reverse();
    Ok(found)
}

fn by_score(call: &mut CommandCall<'_>, options: &Options) -> Result<Vec<(Bytes, f64)>, ErrorReply> {
    let bound = |at| Bound::parse(call.arg(at)).ok_or(ErrorReply::NOT_A_RANGE);
    let (low, high) = if options.reverse { (bound(3)?, bound(2)?) } else { (bound(2)?, bound(3)?) };
    let Some(zset) = call.state.get::<Zset>(call.arg(1))? else { return Ok(Vec::new()) };
    let (skip, take) = options.limit.unwrap_or((0, -1));
    let Ok(skip) = usize::try_from(skip) else { return Ok(Vec::new()) };
    let take = usize::try_from(take).unwrap_or(usize::MAX);
    let members = zset.between(low, high);
    Ok(if options.reverse {
        owned(members.rev().skip(skip).take(take))
    } else {
        owned(members.skip(skip).take(take))
    })
}

fn owned<'a>(found: impl Iterator<Item = (&'a Bytes, f64)>) -> Vec<(Bytes, f64)> {
    found.map(|(member, score)| (member.clone(), score)).collect()
}

/// Converts members, with scores if requested. Scores follow the members in RESP2, and are in pairs in RESP3.
pub(super) fn with_scores(call: &CommandCall<'_>, found: Vec<(Bytes, f64)>, scores: bool) -> RedisReply {
    let pairs =
        found.into_iter().map(|(member, score)| [RedisReply::Bulk(member), RedisReply::Double(score)]);
    RedisReply::Array(match (scores, call.client.protocol) {
        (false, _) => pairs.map(|[member, _]| member).collect(),
        (true, Protocol::Resp2) => pairs.flatten().collect(),
        (true, Protocol::Resp3) => pairs.map(|pair| RedisReply::Array(pair.into())).collect(),
    })
}
