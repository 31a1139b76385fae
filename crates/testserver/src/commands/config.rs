//! CONFIG.

use super::Call;
use crate::config::failed;
use crate::glob;
use crate::reply::{Answer, Refusal, Reply};

pub(super) fn get(call: &mut Call<'_>) -> Answer {
    let patterns: Vec<String> =
        call.args[2..].iter().map(|arg| String::from_utf8_lossy(arg).to_lowercase()).collect();
    let asked =
        |name: &str| patterns.iter().any(|pattern| glob::matches(pattern.as_bytes(), name.as_bytes()));
    let all = call.state.config.all().into_iter().filter(|(name, _)| asked(name));
    Ok(Reply::Map(all.map(|(name, value)| (Reply::bulk(name), Reply::bulk(value))).collect()))
}

pub(super) fn set(call: &mut Call<'_>) -> Answer {
    if !call.args.len().is_multiple_of(2) {
        return Err(Refusal::SYNTAX);
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
    Ok(Reply::OK)
}

pub(super) fn resetstat(call: &mut Call<'_>) -> Answer {
    (call.state.expired, call.state.commands) = (0, 0);
    Ok(Reply::OK)
}
