//! The subcommands of CONFIG.

use super::CommandCall;
use crate::config::failed;
use crate::glob;
use crate::reply::{CommandResult, ErrorReply, RedisReply};

pub(super) fn get(call: &mut CommandCall<'_>) -> CommandResult {
    let patterns: Vec<String> =
        call.args[2..].iter().map(|arg| String::from_utf8_lossy(arg).to_lowercase()).collect();
    let asked =
        |name: &str| patterns.iter().any(|pattern| glob::matches(pattern.as_bytes(), name.as_bytes()));
    let all = call.state.config.all().into_iter().filter(|(name, _)| asked(name));
    Ok(RedisReply::Map(all.map(|(name, value)| (RedisReply::bulk(name), RedisReply::bulk(value))).collect()))
}

pub(super) fn set(call: &mut CommandCall<'_>) -> CommandResult {
    if !call.args.len().is_multiple_of(2) {
        return Err(ErrorReply::SYNTAX);
    }
    let pairs: Vec<(String, String)> = call.args[2..]
        .chunks_exact(2)
        .map(|pair| [&pair[0], &pair[1]].map(|word| String::from_utf8_lossy(word).into_owned()).into())
        .collect();
    for (at, (name, _)) in pairs.iter().enumerate() {
        if pairs[..at].iter().any(|(before, _)| before.eq_ignore_ascii_case(name)) {
            return Err(failed(name, "duplicate parameter"));
        }
    }
    for (name, value) in &pairs {
        call.state.config.set(name, value)?;
    }
    Ok(RedisReply::OK)
}

pub(super) fn resetstat(call: &mut CommandCall<'_>) -> CommandResult {
    (call.state.expired, call.state.commands) = (0, 0);
    Ok(RedisReply::OK)
}
