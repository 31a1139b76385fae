//! What suspects are tried in.

use super::groups::{Scene, Work};

const SECOND: u64 = 1_000;

/// So many healthy timers, due at once.
fn healthy(count: usize, takes: u64) -> Vec<Work> {
    vec![Work { due: 0, takes, pill: false }; count]
}

/// A full listener with the default lease, whose handlers take ten seconds.
fn full() -> Scene {
    Scene {
        work: healthy(100, 10 * SECOND),
        listeners: 1,
        places: 100,
        lease: 30 * SECOND,
        restart: SECOND / 2,
        kills: vec![],
        until: 3_600 * SECOND,
    }
}

/// A full listener that is killed twice, by nothing that it runs.
pub fn two_crashes() -> Scene {
    Scene { kills: vec![SECOND, 35 * SECOND], ..full() }
}

/// When the second of these is.
pub const SECOND_CRASH: u64 = 35 * SECOND;

/// A pill that strikes after a while among 100 bystanders.
pub fn a_pill(strikes_after: u64) -> Scene {
    let mut scene = full();
    scene.work.insert(50, Work { due: 0, takes: strikes_after, pill: true });
    Scene { places: 101, ..scene }
}

/// Ten healthy timers of a second each second, and a pill, for 25 seconds.
pub fn a_pill_each_second(lease: u64, listeners: usize) -> Scene {
    let healthy = (0..247).map(|n| Work { due: n * 100, takes: SECOND, pill: false });
    let pills = (1..=25).map(|n| Work { due: n * SECOND, takes: 20, pill: true });
    let work = healthy.chain(pills).collect();
    Scene { work, listeners, lease, restart: SECOND / 5, ..full() }
}

/// A full listener that is killed every seven seconds for two minutes, before anything is done.
pub fn a_crash_loop() -> Scene {
    Scene { kills: (1..18).map(|n| n * 7 * SECOND).collect(), lease: 6 * SECOND, ..full() }
}

/// A healthy timer of three seconds five times a second, and a pill every ten seconds, for five minutes.
pub fn a_pill_now_and_then() -> Scene {
    let healthy = (0..1_500).map(|n| Work { due: n * 200, takes: 3 * SECOND, pill: false });
    let pills = (1..=30).map(|n| Work { due: n * 10 * SECOND, takes: 20, pill: true });
    Scene { work: healthy.chain(pills).collect(), lease: 10 * SECOND, ..full() }
}

/// Two crashes of a full listener whose handlers take from half a second to a minute and a half.
pub fn two_crashes_of_mixed_work() -> Scene {
    let mut scene = two_crashes();
    // Spread as chance would spread them, the same in each run.
    for (n, work) in (1_u64..).zip(&mut scene.work) {
        work.takes = (-10_000.0 * (1.0 - (n * 37 % 101) as f64 / 101.0).ln()) as u64 + SECOND / 2;
    }
    Scene { kills: vec![SECOND / 2, 35 * SECOND], ..scene }
}
