//! The plan of a run: everything that will go wrong, decided by its seed.

use std::ops::Range;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::{LineFault, ProcessFault, ServerFault};

/// A fault, and how long after the one before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planned<F> {
    /// The pause before it.
    pub after: Duration,
    /// What it is.
    pub fault: F,
}

/// The faults of each lane, in their order. A lane whose faults run out is calm from then on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// What befalls the server.
    pub server: Vec<Planned<ServerFault>>,
    /// What befalls processes.
    pub process: Vec<Planned<ProcessFault>>,
    /// What befalls lines.
    pub line: Vec<Planned<LineFault>>,
}

/// More faults than a lane can have in an hour.
const MANY: usize = 10_000;

impl Plan {
    /// Everything at once. The same seed and lease give the same plan.
    pub fn everything(seed: u64, lease: Duration) -> Self {
        let (mut random, longest) = (StdRng::seed_from_u64(seed), ms(lease));
        Self {
            server: lane(&mut random, MANY, 300..1500, |random| ServerFault::any(random, longest)),
            process: lane(&mut random, MANY, 200..1200, |random| ProcessFault::any(random, longest)),
            line: lane(&mut random, MANY, 50..600, |random| LineFault::any(random, longest)),
        }
    }

    /// Nothing but listeners that are killed, so many times, with such pauses.
    pub fn killed_listeners(seed: u64, times: usize, pause_ms: Range<u64>) -> Self {
        let kill = |random: &mut StdRng| ProcessFault::KillListener(random.random());
        Self { process: seeded_lane(seed, times, pause_ms, kill), ..Self::default() }
    }

    /// Nothing but servers that are killed, so many times.
    pub fn killed_servers(seed: u64, times: usize, pause_ms: Range<u64>) -> Self {
        Self { server: seeded_lane(seed, times, pause_ms, |_| ServerFault::Crash), ..Self::default() }
    }

    /// Nothing but lines that fail, so many times, for up to a lease and a half.
    pub fn bad_lines(seed: u64, lease: Duration, times: usize) -> Self {
        let any = |random: &mut StdRng| LineFault::any(random, ms(lease));
        Self { line: seeded_lane(seed, times, 50..300, any), ..Self::default() }
    }

    /// Nothing but listeners that are stopped for longer than their leases, so many times.
    pub fn paused_listeners(seed: u64, lease: Duration, times: usize) -> Self {
        let stop = |random: &mut StdRng| ProcessFault::StopListener(random.random(), ms(lease * 2));
        Self { process: seeded_lane(seed, times, 300..600, stop), ..Self::default() }
    }
}

fn ms(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

fn seeded_lane<F>(
    seed: u64,
    times: usize,
    pause_ms: Range<u64>,
    any: impl FnMut(&mut StdRng) -> F,
) -> Vec<Planned<F>> {
    lane(&mut StdRng::seed_from_u64(seed), times, pause_ms, any)
}

pub(crate) fn lane<F>(
    random: &mut StdRng,
    times: usize,
    pause_ms: Range<u64>,
    mut any: impl FnMut(&mut StdRng) -> F,
) -> Vec<Planned<F>> {
    let mut planned = || {
        let after = Duration::from_millis(random.random_range(pause_ms.clone()));
        Planned { after, fault: any(random) }
    };
    (0..times).map(|_| planned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_a_plan() {
        let lease = Duration::from_secs(2);
        assert_eq!(Plan::everything(1, lease), Plan::everything(1, lease));
        assert_ne!(Plan::everything(1, lease), Plan::everything(2, lease));
    }

    #[test]
    fn a_plan_of_kills_has_as_many_as_were_asked_for() {
        assert_eq!(Plan::killed_listeners(1, 7, 1..2).process.len(), 7);
        assert_eq!(Plan::killed_servers(1, 7, 1..2).server.len(), 7);
        assert_eq!(Plan::bad_lines(1, Duration::from_secs(1), 7).line.len(), 7);
        assert_eq!(Plan::paused_listeners(1, Duration::from_secs(1), 7).process.len(), 7);
    }
}
