//! How much the server lets clients ask, and how much may wait for them, before it cuts them off.

use super::super::case::Case;
use super::super::codes;

/// A quarter of the server's defaults: about 80,000 expiries at once.
const HARD: u64 = 8 << 20;
const SOFT: u64 = 2 << 20;
/// A few answers of a mebibyte at once, or one timer with the largest payload. All clients together need the same.
const ANSWERS: u64 = 16 << 20;
/// The largest payload, and what goes with it.
const REQUEST: u64 = 16 << 20;

pub(super) fn check(case: &mut Case) {
    let is_small = |limit: u64, least| limit > 0 && limit < least;
    for (class, code, least) in
        [("pubsub", &codes::BUFFER_SMALL, (HARD, SOFT)), ("normal", &codes::ANSWERS_CUT, (ANSWERS, ANSWERS))]
    {
        let limits = case.setting("client-output-buffer-limit").and_then(|setting| of_class(setting, class));
        if let Some((hard, soft)) =
            limits.filter(|(hard, soft)| is_small(*hard, least.0) || is_small(*soft, least.1))
        {
            case.say(code, format!("client-output-buffer-limit {class} {hard} {soft}"));
        }
    }
    let memory = case.info.number("maxmemory").unwrap_or_default();
    if let Some(setting) = case.setting("maxmemory-clients")
        && of_clients(setting, memory).is_some_and(|limit| is_small(limit, ANSWERS))
    {
        case.say(&codes::CLIENTS_EVICTED, format!("maxmemory-clients {setting}"));
    }
    for name in ["proto-max-bulk-len", "client-query-buffer-limit"] {
        if let Some(limit) = number(case, name).filter(|limit| is_small(*limit, REQUEST)) {
            let fields = [("setting", name), ("bytes", &REQUEST.to_string())];
            case.say_with(&codes::REQUESTS_CUT, format!("{name} {limit}"), &fields);
        }
    }
    if let Some(seconds) = number(case, "timeout").filter(|seconds| is_small(*seconds, IDLE)) {
        case.say(&codes::IDLE_CLOSED, format!("timeout {seconds}"));
    }
}

/// A listener that has nothing to do asks something every few seconds: see the sweeps.
const IDLE: u64 = 10;

fn number(case: &Case, name: &str) -> Option<u64> {
    case.setting(name)?.parse().ok()
}

/// The hard and the soft limit in bytes; 0 is none.
fn of_class(setting: &str, class: &str) -> Option<(u64, u64)> {
    let mut words = setting.split_whitespace().skip_while(|word| *word != class).skip(1);
    Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?))
}

/// Bytes, or so many of a hundred of the server's memory; 0 is no limit.
fn of_clients(setting: &str, memory: u64) -> Option<u64> {
    match setting.strip_suffix('%') {
        None => setting.parse().ok(),
        Some(percent) => Some(memory / 100 * percent.parse::<u64>().ok()?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limits_of_a_class_are_found_among_the_others() {
        let all = "normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60";
        assert_eq!(of_class(all, "pubsub"), Some((33_554_432, 8_388_608)));
        assert_eq!(of_class(all, "normal"), Some((0, 0)));
        assert_eq!(of_class("normal 0 0 0", "pubsub"), None);
        assert_eq!(of_class("pubsub 32mb 8mb 60", "pubsub"), None);
    }

    #[test]
    fn what_all_clients_may_take_is_bytes_or_a_part_of_the_memory() {
        assert_eq!(of_clients("1048576", 0), Some(1 << 20));
        assert_eq!(of_clients("5%", 1000), Some(50));
        assert_eq!(of_clients("5%", 0), Some(0));
        assert_eq!(of_clients("all", 1000), None);
    }
}
