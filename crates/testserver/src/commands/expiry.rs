//! The commands that set and return expiries.

use bytes::Bytes;

use super::CommandCall;
use crate::events::EventClass;
use crate::reply::{CommandResult, ErrorReply, RedisReply};
use crate::state::State;

/// A deadline that an option of a command sets.
#[derive(Clone, Copy)]
pub(super) struct ExpiryOption {
    /// In ms since 1970.
    pub(super) at: u64,
}

/// Returns the error for an invalid expiry.
pub(super) fn invalid(call: &CommandCall<'_>) -> ErrorReply {
    format!("ERR invalid expire time in '{}' command", call.command.name).into()
}

impl ExpiryOption {
    /// Returns the deadline after `ttl` units from now. `unit` is in ms.
    pub(super) fn after(call: &CommandCall<'_>, ttl: i64, unit: i64) -> Option<Self> {
        let now = i64::try_from(call.state.now_ms()).ok()?;
        let at = ttl.checked_mul(unit)?.checked_add(now)?;
        Some(Self { at: u64::try_from(at).ok()? })
    }

    fn at(when: i64, unit: i64) -> Option<Self> {
        Some(Self { at: u64::try_from(when.checked_mul(unit)?).ok()? })
    }

    pub(super) fn is_option(call: &CommandCall<'_>, at: usize) -> bool {
        ["EX", "PX", "EXAT", "PXAT"].iter().any(|word| call.is(at, word))
    }

    /// Parses EX, PX, EXAT or PXAT. Returns `None` for another option.
    pub(super) fn option(call: &CommandCall<'_>, at: usize) -> Result<Option<Self>, ErrorReply> {
        let (unit, absolute) = match () {
            () if call.is(at, "EX") => (1000, false),
            () if call.is(at, "PX") => (1, false),
            () if call.is(at, "EXAT") => (1000, true),
            () if call.is(at, "PXAT") => (1, true),
            () => return Ok(None),
        };
        let number = call.int(at + 1)?;
        let expiry = if absolute { Self::at(number, unit) } else { Self::after(call, number, unit) };
        expiry.filter(|_| number > 0).map(Some).ok_or_else(|| invalid(call))
    }
}

/// Sets the expiry of an existing key. A deadline in the past deletes the key, with the event `del`, not `expired`.
pub(super) fn set_expiry(state: &mut State, key: &Bytes, at: u64) {
    if at <= state.now_ms() {
        state.delete(key);
    } else {
        state.keys.set_expiry(key, Some(at));
        state.notify(EventClass::GENERIC, "expire", key);
    }
}

#[derive(Default)]
struct Conditions {
    absent: bool,
    present: bool,
    greater: bool,
    less: bool,
}

impl Conditions {
    fn parse(call: &CommandCall<'_>) -> Result<Self, ErrorReply> {
        let mut all = Self::default();
        for at in 3..call.args.len() {
            let known = [
                ("NX", &mut all.absent),
                ("XX", &mut all.present),
                ("GT", &mut all.greater),
                ("LT", &mut all.less),
            ];
            let option = known.into_iter().find(|(word, _)| call.is(at, word));
            let unknown = || format!("ERR Unsupported option {}", String::from_utf8_lossy(&call.args[at]));
            *option.ok_or_else(unknown)?.1 = true;
        }
        if all.absent && (all.present || all.greater || all.less) {
            let text = "ERR NX and XX, GT or LT options at the same time are not compatible";
            return Err(ErrorReply::of(text));
        }
        if all.greater && all.less {
            return Err(ErrorReply::of("ERR GT and LT options at the same time are not compatible"));
        }
        Ok(all)
    }

    /// Returns whether the conditions hold. A key without an expiry never expires.
    fn hold(&self, current: Option<u64>, new: i64) -> bool {
        let new = u64::try_from(new).unwrap_or_default();
        !(self.absent && current.is_some()
            || self.present && current.is_none()
            || self.greater && current.is_none_or(|current| new <= current)
            || self.less && current.is_some_and(|current| new >= current))
    }
}

pub(super) fn expire(call: &mut CommandCall<'_>) -> CommandResult {
    change(call, 1000, false)
}

pub(super) fn pexpire(call: &mut CommandCall<'_>) -> CommandResult {
    change(call, 1, false)
}

pub(super) fn expireat(call: &mut CommandCall<'_>) -> CommandResult {
    change(call, 1000, true)
}

pub(super) fn pexpireat(call: &mut CommandCall<'_>) -> CommandResult {
    change(call, 1, true)
}

fn change(call: &mut CommandCall<'_>, unit: i64, absolute: bool) -> CommandResult {
    let conditions = Conditions::parse(call)?;
    let (key, number) = (call.arg(1), call.int(2)?);
    let base = if absolute { 0 } else { i64::try_from(call.state.now_ms()).unwrap_or(i64::MAX) };
    let at = number.checked_mul(unit).and_then(|ms| ms.checked_add(base)).ok_or_else(|| invalid(call))?;
    let Some(current) = call.state.entry(key).map(|entry| entry.expires()) else {
        return Ok(RedisReply::Int(0));
    };
    if !conditions.hold(current, at) {
        return Ok(RedisReply::Int(0));
    }
    set_expiry(call.state, key, u64::try_from(at).unwrap_or_default());
    Ok(RedisReply::Int(1))
}

pub(super) fn persist(call: &mut CommandCall<'_>) -> CommandResult {
    let key = call.arg(1);
    let volatile = call.state.entry(key).is_some_and(|entry| entry.expires().is_some());
    if volatile {
        call.state.keys.set_expiry(key, None);
        call.state.notify(EventClass::GENERIC, "persist", key);
    }
    Ok(RedisReply::flag(volatile))
}

/// Returns the deadline of a key in ms since 1970, -1 if it never expires, or -2 if it does not exist.
fn deadline(call: &mut CommandCall<'_>) -> i64 {
    match call.state.entry(call.arg(1)) {
        None => -2,
        Some(entry) => entry.expires().map_or(-1, |at| i64::try_from(at).unwrap_or(i64::MAX)),
    }
}

fn remaining(call: &mut CommandCall<'_>) -> i64 {
    match deadline(call) {
        none if none < 0 => none,
        at => (at - i64::try_from(call.state.now_ms()).unwrap_or(i64::MAX)).max(0),
    }
}

fn in_seconds(ms: i64) -> i64 {
    if ms < 0 { ms } else { ms.saturating_add(500) / 1000 }
}

pub(super) fn pttl(call: &mut CommandCall<'_>) -> CommandResult {
    Ok(RedisReply::Int(remaining(call)))
}

pub(super) fn ttl(call: &mut CommandCall<'_>) -> CommandResult {
    Ok(RedisReply::Int(in_seconds(remaining(call))))
}

pub(super) fn pexpiretime(call: &mut CommandCall<'_>) -> CommandResult {
    Ok(RedisReply::Int(deadline(call)))
}

pub(super) fn expiretime(call: &mut CommandCall<'_>) -> CommandResult {
    Ok(RedisReply::Int(in_seconds(deadline(call))))
}
