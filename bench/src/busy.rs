//! The load of the machine during a measurement. Figures of one commit differ several-fold between machines, and between a
//! quiet and a busy hour.

use std::fmt;

use serde::Serialize;

use crate::Measured;
use crate::machine::load;
use crate::statistics::figure;

/// The load of the machine over some time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Busy {
    /// The share of the processors' time that the host gave to others; none if the system does not report it.
    pub steal_percent: Option<f64>,
    /// Runnable processes, including those of the run: the mean of the one-minute load at the start and at the end. None if
    /// the system does not report it.
    pub load: Option<f64>,
}

impl fmt::Display for Busy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |value: Option<f64>, unit: &str| {
            value.map_or("unknown".to_owned(), |value| format!("{}{unit}", figure(value)))
        };
        write!(f, "steal {}, load {}", shown(self.steal_percent, " %"), shown(self.load, ""))
    }
}

/// Watches the machine from its start to its end.
#[derive(Clone, Copy, Debug)]
pub struct Watch {
    times: Option<Times>,
    load: Option<f64>,
}

/// Ticks of all processors since the system's start.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Times {
    all: u64,
    steal: u64,
}

impl Watch {
    /// Starts to watch.
    pub fn start() -> Self {
        Self { times: times(), load: load() }
    }

    /// Returns the load since the start.
    pub fn end(self) -> Busy {
        Busy {
            steal_percent: self.times.zip(times()).and_then(|(before, after)| stolen(before, after)),
            load: self.load.zip(load()).map(|(before, after)| f64::midpoint(before, after)),
        }
    }
}

/// Returns the conditions of a table: the load, and the lateness of the machine's own timers when it was last measured.
pub fn conditions(busy: &Busy, results: &[Measured]) -> String {
    let floor = results.iter().rev().find(|one| one.system == "floor" && !one.rounds.is_empty());
    let late = |name| floor.and_then(|one| one.spread(name)).map(|spread| figure(spread.median));
    match (late("p50_ms"), late("p99_ms")) {
        (Some(p50), Some(p99)) => format!("{busy}, floor p50 {p50} ms, p99 {p99} ms"),
        _ => busy.to_string(),
    }
}

fn times() -> Option<Times> {
    parsed(&std::fs::read_to_string("/proc/stat").ok()?)
}

/// Parses the first line of `/proc/stat`: user, nice, system, idle, iowait, irq, softirq, steal. The later fields are part
/// of the first two (`proc(5)`).
fn parsed(stat: &str) -> Option<Times> {
    let numbers = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let ticks = numbers.split_whitespace().take(8).map(|ticks| ticks.parse().ok());
    let ticks: Vec<u64> = ticks.collect::<Option<_>>()?;
    Some(Times { all: ticks.iter().sum(), steal: *ticks.get(7)? })
}

fn stolen(before: Times, after: Times) -> Option<f64> {
    let all = after.all.checked_sub(before.all).filter(|all| *all > 0)?;
    Some(100.0 * after.steal.saturating_sub(before.steal) as f64 / all as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_host_gave_to_others_is_a_share_of_all_time() {
        let before = parsed("cpu  100 0 50 800 10 0 0 40 7 0\ncpu0 1 1 1 1 1 1 1 1 1 1\n").unwrap();
        assert_eq!(before, Times { all: 1000, steal: 40 });
        let after = Times { all: 1200, steal: 90 };
        assert_eq!(stolen(before, after), Some(25.0));
        assert_eq!(stolen(before, before), None);
        assert_eq!(parsed("cpu 1 2 3"), None);
    }

    #[test]
    fn what_the_system_does_not_say_is_unknown() {
        assert_eq!(Busy::default().to_string(), "steal unknown, load unknown");
        let busy = Busy { steal_percent: Some(12.34), load: Some(2.0) };
        assert_eq!(conditions(&busy, &[]), "steal 12.3 %, load 2");
    }
}
