//! Memory and descriptors of a process, over time: what grows without end shows as a slope.

use std::fs;
use std::time::Duration;

use tokio::time::interval;

/// How often they are read.
const EVERY: Duration = Duration::from_millis(500);
/// How much more may be in use in the last third than in the second: allocators keep what they once had.
const MORE_MEMORY: f64 = 1.15;
/// And this many MiB, which are much for a small process and nothing for a leak of an hour.
const SOME_MIB: f64 = 6.0;
/// Connections that are being replaced.
const SOME_DESCRIPTORS: f64 = 8.0;

/// What a process had at a moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Vitals {
    /// Resident memory in MiB.
    pub mib: f64,
    /// Open descriptors.
    pub descriptors: f64,
}

impl Vitals {
    /// Of a process; none if it has ended.
    fn of(pid: u32) -> Option<Self> {
        let statm = fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
        let pages: f64 = statm.split(' ').nth(1)?.parse().ok()?;
        let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).ok()?.count();
        Some(Self {
            mib: pages * rustix::param::page_size() as f64 / 1_048_576.0,
            descriptors: descriptors as f64,
        })
    }
}

/// Reads them until the process ends; it never returns before.
pub(super) async fn watch(pid: u32, readings: &mut Vec<Vitals>) {
    let mut ticks = interval(EVERY);
    loop {
        ticks.tick().await;
        match Vitals::of(pid) {
            Some(vitals) => readings.push(vitals),
            None => std::future::pending().await,
        }
    }
}

/// The middle of the second and of the last third of all readings: the first is warming up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slope {
    /// The second third.
    pub before: Vitals,
    /// The last third.
    pub after: Vitals,
}

impl Slope {
    /// None of fewer than nine readings.
    pub fn of(readings: &[Vitals]) -> Option<Self> {
        let third = readings.len() / 3;
        (third >= 3).then(|| Self {
            before: middle(&readings[third..2 * third]),
            after: middle(&readings[2 * third..]),
        })
    }

    /// Whether nothing grows that would grow for ever.
    pub fn is_flat(&self) -> bool {
        let Self { before, after } = self;
        after.mib <= before.mib * MORE_MEMORY + SOME_MIB
            && after.descriptors <= before.descriptors + SOME_DESCRIPTORS
    }
}

fn middle(readings: &[Vitals]) -> Vitals {
    let of = |one: fn(&Vitals) -> f64| {
        let mut all: Vec<_> = readings.iter().map(one).collect();
        all.sort_by(f64::total_cmp);
        all[all.len() / 2]
    };
    Vitals { mib: of(|vitals| vitals.mib), descriptors: of(|vitals| vitals.descriptors) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn readings(mib: impl Fn(f64) -> f64) -> Vec<Vitals> {
        (0..30).map(|n| Vitals { mib: mib(f64::from(n)), descriptors: 20.0 }).collect()
    }

    #[test]
    fn a_leak_is_a_slope_and_warming_up_is_none() {
        let flat = |mib: fn(f64) -> f64| Slope::of(&readings(mib)).map(|slope| slope.is_flat());
        assert_eq!(flat(|n| 10.0 + n.min(8.0)), Some(true));
        assert_eq!(flat(|n| 10.0 + 3.0 * n), Some(false));
        assert_eq!(Slope::of(&readings(|_| 1.0)[..8]), None);
    }

    #[test]
    fn this_process_has_vitals() {
        let vitals = Vitals::of(std::process::id()).expect("it runs");
        assert!(vitals.mib > 0.1 && vitals.descriptors > 2.0, "{vitals:?}");
        assert_eq!(Vitals::of(u32::MAX), None);
    }
}
