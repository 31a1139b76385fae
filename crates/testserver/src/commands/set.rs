//! The commands that write strings.

use bytes::Bytes;

use super::CommandCall;
use super::expiry::{ExpiryOption, invalid};
use crate::events::EventClass;
use crate::reply::{CommandResult, ErrorReply, RedisReply};
use crate::value::StoredValue;

#[derive(Default)]
struct Options {
    absent: bool,
    present: bool,
    keep: bool,
    get: bool,
    expiry: Option<ExpiryOption>,
}

impl Options {
    fn parse(call: &CommandCall<'_>) -> Result<Self, ErrorReply> {
        let mut options = Self::default();
        // A syntax error comes before an error in a number.
        let (mut at, mut expires) = (3, None);
        while at < call.args.len() {
            let take = |option: &mut bool, excluded: bool| {
                *option = true;
                if excluded { Err(ErrorReply::SYNTAX) } else { Ok(()) }
            };
            if call.is(at, "NX") {
                take(&mut options.absent, options.present)?;
            } else if call.is(at, "XX") {
                take(&mut options.present, options.absent)?;
            } else if call.is(at, "GET") {
                options.get = true;
            } else if call.is(at, "KEEPTTL") {
                take(&mut options.keep, expires.is_some())?;
            } else {
                let known = ExpiryOption::is_option(call, at) && at + 1 < call.args.len();
                if !known || options.keep || expires.is_some() {
                    return Err(ErrorReply::SYNTAX);
                }
                expires = Some(at);
                at += 1;
            }
            at += 1;
        }
        if let Some(at) = expires {
            options.expiry = ExpiryOption::option(call, at)?;
        }
        Ok(options)
    }
}

pub(super) fn set(call: &mut CommandCall<'_>) -> CommandResult {
    let options = Options::parse(call)?;
    let key = call.arg(1);
    let old = if options.get { call.state.get::<Bytes>(key)?.cloned() } else { None };
    let exists = call.state.has(key);
    if options.absent && exists || options.present && !exists {
        return Ok(RedisReply::bytes_or_nil(old));
    }
    write(call, call.arg(2).clone(), options.expiry, options.keep);
    Ok(if options.get { RedisReply::bytes_or_nil(old) } else { RedisReply::OK })
}

/// Writes a string and publishes the events. Removes an old expiry, unless `keep` is true.
fn write(call: &mut CommandCall<'_>, text: Bytes, expiry: Option<ExpiryOption>, keep: bool) {
    let key = call.arg(1);
    let kept = call.state.entry(key).and_then(|entry| entry.expires()).filter(|_| keep);
    call.state.put(key, StoredValue::Text(text));
    call.state.keys.set_expiry(key, expiry.as_ref().map(|expiry| expiry.at).or(kept));
    call.state.notify(EventClass::TEXT, "set", key);
    if expiry.is_some() {
        call.state.notify(EventClass::GENERIC, "expire", key);
    }
}

pub(super) fn setnx(call: &mut CommandCall<'_>) -> CommandResult {
    let free = !call.state.has(call.arg(1));
    if free {
        write(call, call.arg(2).clone(), None, false);
    }
    Ok(RedisReply::flag(free))
}

pub(super) fn setex(call: &mut CommandCall<'_>) -> CommandResult {
    with_ttl(call, 1000)
}

pub(super) fn psetex(call: &mut CommandCall<'_>) -> CommandResult {
    with_ttl(call, 1)
}

fn with_ttl(call: &mut CommandCall<'_>, unit: i64) -> CommandResult {
    let ttl = call.int(2)?;
    let expiry = ExpiryOption::after(call, ttl, unit).filter(|_| ttl > 0).ok_or_else(|| invalid(call))?;
    write(call, call.arg(3).clone(), Some(expiry), false);
    Ok(RedisReply::OK)
}

pub(super) fn getset(call: &mut CommandCall<'_>) -> CommandResult {
    let old = call.state.get::<Bytes>(call.arg(1))?.cloned();
    write(call, call.arg(2).clone(), None, false);
    Ok(RedisReply::bytes_or_nil(old))
}

pub(super) fn mset(call: &mut CommandCall<'_>) -> CommandResult {
    if call.args.len().is_multiple_of(2) {
        return call.wrong_arity();
    }
    for pair in call.args[1..].chunks_exact(2) {
        call.state.has(&pair[0]);
        call.state.put(&pair[0], StoredValue::Text(pair[1].clone()));
        call.state.notify(EventClass::TEXT, "set", &pair[0]);
    }
    Ok(RedisReply::OK)
}
