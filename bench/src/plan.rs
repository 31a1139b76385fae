//! The cases of quick and long runs, in their order.

use std::time::Duration;

pub use crate::size::{LONG, QUICK, Size, TINY};
use crate::{Case, Who};

const THROUGHPUT: &[&str] = &["per_s", "handled", "per_claim", "server_us"];
const LATENESS: &[&str] = &["p50_ms", "p99_ms", "max_ms", "early", "handled", "claims_per_job"];
const REQUESTS: &[&str] = &["requests_per_job"];
const BYTES: &[&str] = &["bytes"];
const IDLE: &[&str] = &["requests_per_s", "commands_per_s", "cpu_ms_per_s"];
const KILL: &[&str] = &["again", "last_again_s"];
const ARM: &[&str] = &["single_per_s", "concurrent_per_s", "bulk_per_s"];
const CHANGE: &[&str] = &["arm_per_s", "over_per_s", "reschedule_per_s", "cancel_per_s"];
const ARM_CANCEL: &[&str] = &["pairs_per_s"];
const LIVES: &[&str] = &["lives_per_s", "handled"];
const ARM_LATENCY: &[&str] = &["p50_ms", "p99_ms", "zadd_p50_ms", "zadd_p99_ms", "probes", "handled"];
const SHARED: &[&str] =
    &["p50_ms", "p99_ms", "max_ms", "early", "handled", "empty_percent", "claims_per_job", "busiest_percent"];
const SATURATED: &[&str] = &["per_s", "handled", "empty_percent", "claims_per_job", "busiest_percent"];
const RECOVERY: &[&str] = &["first_s", "all_s", "handled"];
const RETRIES: &[&str] = &["attempts_per_s", "retries_per_s", "attempts"];

/// The sections that `--measures` selects: a measure, or the subject of several cases of one measure.
pub const SECTIONS: [&str; 16] = [
    "throughput",
    "concurrency",
    "lateness",
    "bytes",
    "idle",
    "kill",
    "arm",
    "change",
    "arm_cancel",
    "lives",
    "arm_latency",
    "besides",
    "listeners",
    "growth",
    "recovery",
    "retries",
];

/// How many handlers a system may run at a time.
const CONCURRENCY: usize = 1000;
/// Listeners that share a topic.
const LISTENERS: [usize; 4] = [1, 2, 4, 8];
/// The factor by which runs that saturate listeners have more jobs. Each listener makes empty claims at the end, which must
/// weigh little.
const SATURATION: usize = 3;
/// The numbers of far-future timers behind the measured jobs.
const ARMED: [usize; 4] = [10_000, 100_000, 1_000_000, 5_000_000];

/// Returns the cases that the last line needs.
pub fn quick(size: Size) -> Vec<Case> {
    let lateness = |foreign| lateness(size, 1000, foreign, 0).only(Who::Keylapse);
    vec![
        throughput(size, "shuffled"),
        lateness(0),
        lateness(size.foreign),
        bytes(size).only(Who::Both),
        idle(size, 1, 1).only(Who::Keylapse),
        arm(size).only(Who::KeylapseAndOthers),
        lives(size.lives).only(Who::KeylapseAndOthers),
    ]
}

/// Returns all cases.
pub fn long(size: Size) -> Vec<Case> {
    let mut cases = vec![
        throughput(size, "shuffled"),
        throughput(size, "due").times(1),
        lateness(size, 1000, 0, 0),
        lateness(size, 1000, size.foreign, 0).times(1),
        requests(size),
        bytes(size),
        idle(size, 1, 1).side_by_side(),
        Case::new("kill", KILL).times(1).side_by_side().within(Duration::from_secs(200)),
    ];
    cases.extend(producers(size));
    cases.extend(alone(size));
    cases
}

/// Returns the cases of programs that arm timers.
fn producers(size: Size) -> Vec<Case> {
    let seconds = 3 * size.seconds;
    vec![
        arm(size),
        Case::new("change", CHANGE).with("count", size.arms),
        Case::new("arm_cancel", ARM_CANCEL).with("count", size.arms),
        lives(size.lives),
        // One round, because most systems need minutes. The case shows whether the rate holds.
        lives(10 * size.lives).times(1),
        Case::new("arm_latency", ARM_LATENCY)
            .with("rate", 1000)
            .with("count", 1000 * seconds)
            .with("concurrency", CONCURRENCY)
            .only(Who::Both),
    ]
}

fn arm(size: Size) -> Case {
    Case::new("arm", ARM).with("count", size.arms)
}

fn lives(count: usize) -> Case {
    Case::new("lives", LIVES)
        .with("count", count)
        .with("concurrency", CONCURRENCY)
        .within(Duration::from_secs(300))
}

/// Returns the cases of keylapse alone.
fn alone(size: Size) -> Vec<Case> {
    let few = |handlers| throughput(size, "shuffled").with("concurrency", handlers).only(Who::Both);
    let mut cases: Vec<_> = [10, 100].map(few).into_iter().map(|case| case.part_of("concurrency")).collect();
    for rate in [10, 100, 1000, 10_000] {
        for foreign in [0, size.foreign / 10, size.foreign] {
            // At 1,000 a second, the cases of all systems already have the first and the last number.
            if rate != 1000 || foreign == size.foreign / 10 {
                // Foreign keys do not affect the machine's own timers.
                let who = if foreign == 0 { Who::KeylapseAndFloor } else { Who::Keylapse };
                cases.push(lateness(size, rate, foreign, 0).only(who).part_of("besides"));
            }
        }
        cases.push(lateness(size, rate, 0, size.foreign).only(Who::Keylapse).part_of("besides"));
    }
    for listeners in LISTENERS {
        cases.push(shared(listeners, 0.0, SATURATION * size.jobs, SATURATED).only(Who::Both));
        // The low rate needs a long time for a few jobs, and their figures differ little: one round suffices.
        for (rate, seconds, rounds) in [(0.5, 8, 1), (100.0, 1, 2), (1000.0, 1, 2)] {
            let count = (rate * (seconds * size.seconds) as f64) as usize;
            cases.push(shared(listeners, rate, count, SHARED).only(Who::Keylapse).times(rounds));
        }
    }
    for armed in ARMED {
        cases.push(
            throughput(size, "shuffled")
                .with("behind", armed)
                .only(Who::WithoutMarkerKeys)
                .part_of("growth")
                .times(1),
        );
    }
    cases.push(
        Case::new("recovery", RECOVERY)
            .with("count", 100_000)
            .with("concurrency", CONCURRENCY)
            .with("order", "shuffled")
            .only(Who::Both),
    );
    cases.push(
        Case::new("retries", RETRIES)
            .with("count", size.jobs / 10)
            .with("concurrency", CONCURRENCY)
            .only(Who::Both),
    );
    for (topics, listeners) in [(100, 1), (1, 8)] {
        cases.push(idle(size, topics, listeners).only(Who::Keylapse));
    }
    cases
}

fn throughput(size: Size, order: &str) -> Case {
    Case::new("throughput", THROUGHPUT)
        .with("count", size.jobs)
        .with("concurrency", CONCURRENCY)
        .with("order", order)
        .within(Duration::from_secs(300))
}

fn lateness(size: Size, rate: usize, foreign: usize, behind: usize) -> Case {
    // At ten a second, a few seconds are too few for percentiles.
    let seconds = if rate < 100 { 3 * size.seconds } else { size.seconds };
    let mut case = Case::new("lateness", LATENESS)
        .with("rate", rate)
        .with("count", rate * seconds)
        .with("concurrency", CONCURRENCY)
        .with("order", "shuffled");
    if foreign > 0 {
        case = case.with("foreign", foreign);
    }
    if behind > 0 {
        // Arming these timers takes most of the time.
        case = case.with("behind", behind).times(1);
    }
    case
}

fn requests(size: Size) -> Case {
    Case::new("requests", REQUESTS)
        .with("rate", 1000)
        .with("count", 1000 * size.seconds)
        .with("concurrency", CONCURRENCY)
        .with("order", "shuffled")
        .only(Who::Keylapse)
        .part_of("lateness")
        .times(1)
}

fn shared(listeners: usize, rate: f64, count: usize, columns: &'static [&'static str]) -> Case {
    Case::new("listeners", columns)
        .with("listeners", listeners)
        .with("rate", rate)
        .with("count", count)
        .with("concurrency", CONCURRENCY)
        .with("order", "shuffled")
}

fn bytes(size: Size) -> Case {
    Case::new("bytes", BYTES).with("count", size.timers).with("order", "shuffled").times(1)
}

fn idle(size: Size, topics: usize, listeners: usize) -> Case {
    let mut case = Case::new("idle", IDLE).with("count", size.idle).with("concurrency", CONCURRENCY).times(1);
    if topics > 1 {
        case = case.with("topics", topics);
    }
    if listeners > 1 {
        case = case.with("listeners", listeners);
    }
    case
}
