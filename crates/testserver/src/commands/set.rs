//! Strings: writing them.

use bytes::Bytes;

use super::Call;
use super::expiry::{Expiry, invalid};
use crate::events::Class;
use crate::reply::{Answer, Refusal, Reply};
use crate::value::Value;

#[derive(Default)]
struct Options {
    absent: bool,
    present: bool,
    keep: bool,
    get: bool,
    expiry: Option<Expiry>,
}

impl Options {
    fn parse(call: &Call<'_>) -> Result<Self, Refusal> {
        let mut options = Self::default();
        // The whole line is understood before its numbers are read.
        let (mut at, mut expires) = (3, None);
        while at < call.args.len() {
            let one = |taken: &mut bool, excluded: bool| {
                *taken = true;
                if excluded { Err(Refusal::SYNTAX) } else { Ok(()) }
            };
            if call.is(at, "NX") {
                one(&mut options.absent, options.present)?;
            } else if call.is(at, "XX") {
                one(&mut options.present, options.absent)?;
            } else if call.is(at, "GET") {
                options.get = true;
            } else if call.is(at, "KEEPTTL") {
                one(&mut options.keep, expires.is_some())?;
            } else {
                let known = Expiry::is_option(call, at) && at + 1 < call.args.len();
                if !known || options.keep || expires.is_some() {
                    return Err(Refusal::SYNTAX);
                }
                expires = Some(at);
                at += 1;
            }
            at += 1;
        }
        if let Some(at) = expires {
            options.expiry = Expiry::option(call, at)?;
        }
        Ok(options)
    }
}

pub(super) fn set(call: &mut Call<'_>) -> Answer {
    let options = Options::parse(call)?;
    let key = call.arg(1);
    let old = if options.get { call.state.get::<Bytes>(key)?.cloned() } else { None };
    let there = call.state.has(key);
    if options.absent && there || options.present && !there {
        return Ok(Reply::bytes_or_nil(old));
    }
    write(call, call.arg(2).clone(), options.expiry, options.keep);
    Ok(if options.get { Reply::bytes_or_nil(old) } else { Reply::OK })
}

/// Writes the string and says so; the key's other expiry goes, unless it is kept.
fn write(call: &mut Call<'_>, text: Bytes, expiry: Option<Expiry>, keep: bool) {
    let key = call.arg(1);
    let kept = call.state.entry(key).and_then(|entry| entry.expires()).filter(|_| keep);
    call.state.put(key, Value::Text(text));
    call.state.keys.set_expiry(key, expiry.as_ref().map(|expiry| expiry.at).or(kept));
    call.state.notify(Class::TEXT, "set", key);
    if expiry.is_some() {
        call.state.notify(Class::GENERIC, "expire", key);
    }
}

pub(super) fn setnx(call: &mut Call<'_>) -> Answer {
    let free = !call.state.has(call.arg(1));
    if free {
        write(call, call.arg(2).clone(), None, false);
    }
    Ok(Reply::flag(free))
}

pub(super) fn setex(call: &mut Call<'_>) -> Answer {
    with_ttl(call, 1000)
}

pub(super) fn psetex(call: &mut Call<'_>) -> Answer {
    with_ttl(call, 1)
}

fn with_ttl(call: &mut Call<'_>, unit: i64) -> Answer {
    let ttl = call.int(2)?;
    let expiry = Expiry::after(call, ttl, unit).filter(|_| ttl > 0).ok_or_else(|| invalid(call))?;
    write(call, call.arg(3).clone(), Some(expiry), false);
    Ok(Reply::OK)
}

pub(super) fn getset(call: &mut Call<'_>) -> Answer {
    let old = call.state.get::<Bytes>(call.arg(1))?.cloned();
    write(call, call.arg(2).clone(), None, false);
    Ok(Reply::bytes_or_nil(old))
}

pub(super) fn mset(call: &mut Call<'_>) -> Answer {
    if call.args.len().is_multiple_of(2) {
        return call.wrong_arity();
    }
    for pair in call.args[1..].chunks_exact(2) {
        call.state.has(&pair[0]);
        call.state.put(&pair[0], Value::Text(pair[1].clone()));
        call.state.notify(Class::TEXT, "set", &pair[0]);
    }
    Ok(Reply::OK)
}
