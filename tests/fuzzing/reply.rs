//! What a server says, as it comes over the wire, read as the answer of each script.

use std::time::Duration;

use keylapse_connection::{Value, parse_redis_value};

use crate::fuzzing::assert_fit_for_a_log;
use keylapse_connection::error::Result;
use keylapse_wire::time::{ClockReading, ServerTime};
use keylapse_wire::{Reply, read_claimed, read_followed, read_peeked, read_places, read_settled};

/// It is read whole or refused in words fit for a log; whatever times it names can be reckoned with.
pub(crate) fn reply(data: &[u8]) {
    let Ok(value) = parse_redis_value(data) else { return };
    let items = length(&value);
    let reply = || Reply::new("script", value.clone());
    let stamped = || reply().and_then(Reply::stamped);
    if let Some(claimed) = told(stamped().and_then(read_claimed)) {
        let Value::Array(items) = &value else { panic!("{value:?}") };
        assert_eq!(claimed.timers.len(), length(&items[5]));
        check_time(claimed.stamp, [claimed.heads.due, claimed.heads.quarantine].into_iter().flatten());
    }
    if let Some(places) = told(reply().and_then(read_places)) {
        assert_eq!(places.len(), items);
    }
    if let Some(followed) = told(reply().and_then(read_followed)) {
        assert_eq!(3 * followed.len(), items);
    }
    told(reply().and_then(|mut reply| read_settled(&mut reply)));
    if let Some((stamp, heads)) = told(stamped().and_then(read_peeked)) {
        assert_eq!(2 + 2 * heads.len(), items);
        check_time(stamp, heads.into_iter().flat_map(|heads| [heads.due, heads.quarantine]).flatten());
    }
    let _ = told(reply().and_then(|mut reply| reply.maybe_text()));
}

fn length(value: &Value) -> usize {
    match value {
        Value::Array(items) => items.len(),
        _ => 0,
    }
}

fn told<T>(result: Result<T>) -> Option<T> {
    result.inspect_err(|error| assert_fit_for_a_log(&error.to_string(), 3000)).ok()
}

/// A client waits for these moments, and asks how late it is.
fn check_time(stamp: ServerTime, moments: impl Iterator<Item = u64>) {
    let reading = ClockReading::now(stamp);
    assert_eq!(reading.at(reading.arrived), stamp);
    assert!(reading.at(reading.arrived + Duration::from_secs(86_400)) >= stamp);
    for ms in moments {
        let when = reading.when(ms);
        assert!(when >= reading.arrived);
        assert!(ServerTime::from_ms(ms) <= stamp || reading.at(when) >= ServerTime::from_ms(ms));
    }
}
