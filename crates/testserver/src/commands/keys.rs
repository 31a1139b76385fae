//! Keys of any type.

use super::Call;
use crate::glob;
use crate::reply::{Answer, Refusal, Reply};

/// EXISTS and TOUCH: a key that is named twice counts twice.
pub(super) fn exists(call: &mut Call<'_>) -> Answer {
    let there = call.args[1..].iter().filter(|key| call.state.has(key)).count();
    Ok(Reply::count(there))
}

pub(super) fn del(call: &mut Call<'_>) -> Answer {
    let deleted = call.args[1..].iter().filter(|key| call.state.delete(key)).count();
    Ok(Reply::count(deleted))
}

pub(super) fn type_of(call: &mut Call<'_>) -> Answer {
    let name = call.state.value(call.arg(1)).map_or("none", |value| value.type_name());
    Ok(Reply::Status(name.into()))
}

pub(super) fn encoding(call: &mut Call<'_>) -> Answer {
    Ok(call.state.value(call.arg(2)).map_or(Reply::Nil, |value| Reply::bulk(value.encoding())))
}

/// One at random; the server notices those that have expired.
pub(super) fn randomkey(call: &mut Call<'_>) -> Answer {
    loop {
        let point = (call.state.random.next() >> 32) as u32;
        let Some(key) = call.state.keys.near(point) else { return Ok(Reply::Nil) };
        if call.state.has(&key) {
            return Ok(Reply::Bulk(key));
        }
    }
}

/// What has expired is not shown, and not noticed either.
pub(super) fn keys(call: &mut Call<'_>) -> Answer {
    let pattern = call.arg(1);
    let live = call.state.keys.iter().filter(|(_, entry)| !call.state.is_expired(entry));
    let found = live.map(|(key, _)| key).filter(|key| glob::matches(pattern, key));
    Ok(Reply::Array(found.cloned().map(Reply::Bulk).collect()))
}

/// Counts what has expired, too, until it is noticed.
pub(super) fn dbsize(call: &mut Call<'_>) -> Answer {
    Ok(Reply::count(call.state.keys.len()))
}

/// Publishes nothing.
pub(super) fn flush(call: &mut Call<'_>) -> Answer {
    if call.args.len() > 2 || call.args.len() == 2 && !call.is(1, "ASYNC") && !call.is(1, "SYNC") {
        return Err(Refusal::SYNTAX);
    }
    call.state.keys.clear();
    call.state.watches.all_changed();
    Ok(Reply::OK)
}
