//! How late the server announces keys that nobody reads, by the law of its expiry.
//!
//! In each of its `hz` cycles a second it looks at twenty keys with a time to live, five more for each step of
//! `active-expire-effort`, and goes on at once only where many of them have expired. So it takes that long to come round
//! to a key.

use crate::counted;

use super::super::case::Case;
use super::super::codes;

const DEFAULT_HZ: u64 = 10;
const DEFAULT_EFFORT: u64 = 1;
/// Seconds. A second is what a server without other keys takes at most.
const LATE: f64 = 2.0;

pub(super) fn check(case: &mut Case) {
    if !case.takes_writes() || case.info.is_empty() {
        return;
    }
    let number = |name| case.setting(name).and_then(|value| value.parse::<u64>().ok());
    let (hz, effort) = (number("hz"), number("active-expire-effort"));
    let keys = case.info.volatile_keys(case.patient.db);
    let worst = worst_s(keys, hz.unwrap_or(DEFAULT_HZ), effort.unwrap_or(DEFAULT_EFFORT));
    case.lateness.plain_late_predicted_max_s = Some(worst);
    let known = if hz.is_some() { "" } else { ", as is usual: the settings cannot be read" };
    let observed = format!(
        "{worst:.1} s at worst: {} with a time to live, hz {}, active-expire-effort {}{known}",
        counted(keys, "key"),
        hz.unwrap_or(DEFAULT_HZ),
        effort.unwrap_or(DEFAULT_EFFORT)
    );
    if worst > LATE {
        case.say_with(&codes::PLAIN_LATE, observed, &[("faster", faster(case))]);
    } else {
        case.say(&codes::PLAIN_PREDICTED, observed);
    }
}

/// What has the server look at more keys, at the price of its processor's time: the setting that helps most first.
pub(super) fn faster(case: &Case) -> &'static str {
    let number = |name, usual| case.setting(name).and_then(|value| value.parse().ok()).unwrap_or(usual);
    match (number("hz", DEFAULT_HZ), number("active-expire-effort", DEFAULT_EFFORT)) {
        (..100, _) => "hz 100",
        (_, ..10) => "active-expire-effort 10",
        _ => "hz 500",
    }
}

#[allow(clippy::cast_precision_loss)] // a prediction
fn worst_s(keys: u64, hz: u64, effort: u64) -> f64 {
    let each_second = hz.max(1) * (20 + 5 * effort.saturating_sub(1));
    keys as f64 / each_second as f64
}

#[cfg(test)]
mod tests {
    use super::worst_s;

    /// Beside what was measured on four servers: 97.8, 30.3 and 9.8 s at worst.
    #[test]
    fn the_law_is_the_one_that_was_measured() {
        for (keys, hz, effort, seconds) in
            [(0, 10, 1, 0.0), (20_000, 10, 1, 100.0), (20_000, 10, 10, 30.769), (20_000, 100, 1, 10.0)]
        {
            let predicted = worst_s(keys, hz, effort);
            assert!((predicted - seconds).abs() < 0.001, "{keys} {hz} {effort}: {predicted}");
        }
    }
}
