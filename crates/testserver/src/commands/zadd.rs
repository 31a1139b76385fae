//! ZADD and ZINCRBY.

use bytes::Bytes;

use super::CommandCall;
use crate::events::EventClass;
use crate::number;
use crate::reply::{CommandResult, ErrorReply, RedisReply};
use crate::value::Zset;

#[derive(Default)]
struct Options {
    absent: bool,
    present: bool,
    greater: bool,
    less: bool,
    changed: bool,
    increment: bool,
}

impl Options {
    /// Returns the options, and the position of the first score.
    fn parse(call: &CommandCall<'_>) -> (Self, usize) {
        let mut all = Self::default();
        let mut from = 2;
        for at in 2.. {
            let known = [
                ("NX", &mut all.absent),
                ("XX", &mut all.present),
                ("GT", &mut all.greater),
                ("LT", &mut all.less),
                ("CH", &mut all.changed),
                ("INCR", &mut all.increment),
            ];
            let Some((_, option)) = known.into_iter().find(|(word, _)| call.is(at, word)) else {
                from = at;
                break;
            };
            *option = true;
        }
        (all, from)
    }

    fn check(&self, words: usize) -> Result<(), ErrorReply> {
        if words == 0 || !words.is_multiple_of(2) {
            return Err(ErrorReply::SYNTAX);
        }
        if self.absent && self.present {
            return Err(ErrorReply::of("ERR XX and NX options at the same time are not compatible"));
        }
        if self.greater && self.less || self.absent && (self.greater || self.less) {
            let text = "ERR GT, LT, and/or NX options at the same time are not compatible";
            return Err(ErrorReply::of(text));
        }
        if self.increment && words != 2 {
            return Err(ErrorReply::of("ERR INCR option supports a single increment-element pair"));
        }
        Ok(())
    }

    /// Returns the new score of a member, or `None` if it does not change.
    fn decide(&self, old: Option<f64>, given: f64) -> Result<Option<f64>, ErrorReply> {
        let new = old.filter(|_| self.increment).map_or(given, |old| old + given);
        if new.is_nan() {
            return Err(ErrorReply::of("ERR resulting score is not a number (NaN)"));
        }
        let stays = match old {
            None => self.present,
            Some(old) => self.absent || self.greater && new <= old || self.less && new >= old,
        };
        Ok((!stays).then_some(new))
    }
}

pub(super) fn zadd(call: &mut CommandCall<'_>) -> CommandResult {
    let (options, from) = Options::parse(call);
    let pairs = call.args.get(from..).unwrap_or_default();
    options.check(pairs.len())?;
    add(call, &options, pairs)
}

pub(super) fn zincrby(call: &mut CommandCall<'_>) -> CommandResult {
    let options = Options { increment: true, ..Options::default() };
    add(call, &options, &call.args[2..])
}

fn add(call: &mut CommandCall<'_>, options: &Options, pairs: &[Bytes]) -> CommandResult {
    let key = call.arg(1);
    let scores = pairs.iter().step_by(2).map(|score| number::float(score).ok_or(ErrorReply::NOT_A_FLOAT));
    let scores = scores.collect::<Result<Vec<f64>, _>>()?;
    if options.present && call.state.get::<Zset>(key)?.is_none() {
        return Ok(if options.increment { RedisReply::Nil } else { RedisReply::Int(0) });
    }
    let zset = call.state.get_or_create::<Zset>(key)?;
    let (mut added, mut changed, mut last) = (0, 0, None);
    for (member, score) in pairs.iter().skip(1).step_by(2).zip(scores) {
        let old = zset.score(member);
        last = match options.decide(old, score) {
            Ok(last) => last,
            Err(refusal) => {
                call.state.delete_if_empty(key);
                return Err(refusal);
            }
        };
        let Some(new) = last else { continue };
        zset.set(member, new);
        added += usize::from(old.is_none());
        changed += usize::from(old.is_some_and(|old| old != new));
    }
    if added + changed > 0 {
        let event = if options.increment { "zincr" } else { "zadd" };
        call.state.notify(EventClass::ZSET, event, key);
    }
    Ok(match last {
        _ if !options.increment => RedisReply::count(if options.changed { added + changed } else { added }),
        Some(score) => RedisReply::Double(score),
        None => RedisReply::Nil,
    })
}
