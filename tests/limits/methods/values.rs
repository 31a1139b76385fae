//! The smallest and the largest values of each type.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use keylapse::When;

pub(super) const DURATIONS: [Duration; 6] = [
    Duration::ZERO,
    Duration::from_nanos(1),
    Duration::from_secs(1),
    Duration::from_millis(1 << 53),
    Duration::from_millis(u64::MAX),
    Duration::MAX,
];

pub(super) const COUNTS: [u64; 6] = [0, 1, u32::MAX as u64, 1 << 53, i64::MAX as u64, u64::MAX];
pub(super) const SIZES: [usize; 4] = [0, 1, isize::MAX as usize, usize::MAX];
pub(super) const NUMBERS: [u32; 4] = [0, 1, i32::MAX as u32, u32::MAX];

pub(super) const SHARES: [f64; 10] = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    f64::NAN,
    f64::INFINITY,
    f64::NEG_INFINITY,
    f64::MAX,
    f64::MIN_POSITIVE,
    f64::EPSILON,
];

/// As long as whatever nobody has bounded.
pub(super) fn long() -> String {
    "x".repeat(1 << 20)
}

/// Texts that are odd in each way of their own.
pub(super) fn texts() -> Vec<String> {
    let odd = [
        "",
        "0",
        "a",
        " ",
        "\0",
        "\n",
        "a\u{1b}[31m",
        "\u{202e}ä🦀",
        "{",
        "}",
        "{}",
        "*",
        "%",
        ":",
        "/",
        "\\",
        "a:b:c",
        "\"'",
    ];
    odd.map(str::to_owned).into_iter().chain([long(), "{".repeat(10_000), "é".repeat(10_000)]).collect()
}

pub(super) fn times() -> Vec<SystemTime> {
    let far = Duration::from_secs(1 << 40);
    let most = Duration::from_secs(i64::MAX as u64);
    let mut times = vec![UNIX_EPOCH, UNIX_EPOCH + far, UNIX_EPOCH - far, SystemTime::now()];
    times.extend(UNIX_EPOCH.checked_add(most).into_iter().chain(UNIX_EPOCH.checked_sub(most)));
    times
}

pub(super) fn whens() -> Vec<When> {
    DURATIONS.into_iter().map(When::from).chain(times().into_iter().map(When::from)).collect()
}
