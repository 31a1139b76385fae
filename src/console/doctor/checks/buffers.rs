//! How much may wait for a subscriber before the server cuts it off.

use super::super::case::Case;
use super::super::codes;

/// A quarter of the server's defaults: about 80,000 expiries at once.
const HARD: u64 = 8 << 20;
const SOFT: u64 = 2 << 20;

pub(super) fn check(case: &mut Case) {
    let Some((hard, soft)) = case.setting("client-output-buffer-limit").and_then(of_subscribers) else {
        return;
    };
    let is_small = |limit: u64, least| limit > 0 && limit < least;
    if is_small(hard, HARD) || is_small(soft, SOFT) {
        case.say(&codes::BUFFER_SMALL, format!("client-output-buffer-limit pubsub {hard} {soft}"));
    }
}

/// The hard and the soft limit in bytes; 0 is none.
fn of_subscribers(setting: &str) -> Option<(u64, u64)> {
    let mut words = setting.split_whitespace().skip_while(|word| *word != "pubsub").skip(1);
    Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::of_subscribers;

    #[test]
    fn the_limits_of_subscribers_are_found_among_the_others() {
        let all = "normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60";
        assert_eq!(of_subscribers(all), Some((33_554_432, 8_388_608)));
        assert_eq!(of_subscribers("normal 0 0 0"), None);
        assert_eq!(of_subscribers("pubsub 32mb 8mb 60"), None);
    }
}
