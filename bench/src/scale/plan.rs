//! The resources that a goal needs. This file has the whole calculation.

use crate::scale::Costs;

const US: f64 = 1e6;
const GIB: f64 = 1024.0 * 1024.0 * 1024.0;
/// Bytes that a server buffers for a subscriber before it disconnects it (`redis.conf`).
const BUFFER: f64 = 32.0 * 1024.0 * 1024.0;

/// A goal, and the load that a machine may have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Goal {
    /// Timers that are armed each second, and that fire each second.
    pub timers_per_s: f64,
    /// Timers that are armed at a time.
    pub armed: f64,
    /// GiB of timers that one primary may have. Its machine needs more: a fork copies the pages that change while it runs.
    pub gib_each: f64,
    /// The share of a processor that a server, a producer or a listener may be busy for.
    pub busy: f64,
}

impl Default for Goal {
    fn default() -> Self {
        Self { timers_per_s: 1e6, armed: 1e9, gib_each: 16.0, busy: 0.5 }
    }
}

/// The resources that a goal needs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plan {
    /// Listeners; none if no number is enough, because each receives all published expiries.
    pub listeners: Option<f64>,
    /// Timers a second beyond which no number of listeners is enough.
    pub max_per_s: f64,
    /// Timers a second of one partition at most, which is on one primary.
    pub max_of_a_partition: f64,
    /// Processors for producers.
    pub producers: f64,
    /// Primaries, by the time of their processors.
    pub by_processor: f64,
    /// Primaries, by their memory.
    pub by_memory: f64,
    /// GiB of all armed timers.
    pub gib: f64,
    /// MB a second to and from all primaries.
    pub mb_per_s: f64,
    /// Requests a second that listeners without work send to each primary.
    pub idle_per_s: f64,
    /// Seconds that a primary pauses when it forks.
    pub fork_s: f64,
    /// Seconds that a listener may stop reading before a primary disconnects it; infinite if it receives nothing.
    pub buffer_s: f64,
}

impl Plan {
    /// Calculates the plan of a goal at these costs.
    pub fn of(goal: &Goal, costs: &Costs) -> Self {
        let Goal { timers_per_s: rate, armed, gib_each, busy } = *goal;
        let further = costs.further;
        // Each second, a listener's processor has this time left after it has received the expiries of all timers.
        let for_its_own = US * busy - rate * further.listener_us;
        let own = rate * (costs.listener_us - further.listener_us).max(0.0);
        let listeners = (for_its_own > 0.0).then(|| (own / for_its_own).ceil().max(1.0));
        let more = listeners.unwrap_or_else(|| (own / (US * busy)).ceil().max(1.0)) - 1.0;
        let gib = armed * costs.bytes_armed / GIB;
        let by_processor =
            (rate * (costs.server_us + more * further.server_us) / (US * busy)).ceil().max(1.0);
        let by_memory = (gib / gib_each).ceil().max(1.0);
        let primaries = by_processor.max(by_memory);
        Self {
            listeners,
            max_per_s: US * busy / further.listener_us,
            max_of_a_partition: US * busy / costs.server_us,
            producers: (rate * costs.producer_us / (US * busy)).ceil(),
            by_processor,
            by_memory,
            gib,
            mb_per_s: rate * (costs.bytes + more * further.bytes) / US,
            idle_per_s: (more + 1.0) * costs.idle_requests_per_s,
            fork_s: gib / primaries * costs.fork_ms_per_gib / 1e3,
            buffer_s: BUFFER / (rate / primaries * further.bytes),
        }
    }

    /// Returns the number of primaries that processors and memory both allow.
    pub fn primaries(&self) -> f64 {
        self.by_processor.max(self.by_memory)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scale::Further;

    const COSTS: Costs = Costs {
        server_us: 20.0,
        producer_us: 10.0,
        listener_us: 8.0,
        requests: 0.2,
        bytes: 500.0,
        bytes_armed: 300.0,
        further: Further { server_us: 0.0, listener_us: 0.0, bytes: 0.0 },
        idle_requests_per_s: 2.0,
        fork_ms_per_gib: 20.0,
    };

    #[test]
    fn twice_the_rate_takes_twice_the_processors_and_no_more_memory() {
        let goal = Goal::default();
        let once = Plan::of(&goal, &COSTS);
        let twice = Plan::of(&Goal { timers_per_s: 2e6, ..goal }, &COSTS);
        assert_eq!((once.by_processor, twice.by_processor), (40.0, 80.0));
        assert_eq!((once.listeners, twice.listeners), (Some(16.0), Some(32.0)));
        assert_eq!((once.producers, once.mb_per_s), (20.0, 500.0));
        assert_eq!((twice.producers, twice.mb_per_s), (40.0, 1000.0));
        assert_eq!(once.by_memory, twice.by_memory);
        assert_eq!((once.idle_per_s, twice.idle_per_s), (32.0, 64.0));
    }

    #[test]
    fn twice_the_timers_take_twice_the_memory_and_no_more_processors() {
        let goal = Goal { armed: 1.6 * GIB, gib_each: 15.0, ..Goal::default() };
        let once = Plan::of(&goal, &COSTS);
        let twice = Plan::of(&Goal { armed: 3.2 * GIB, ..goal }, &COSTS);
        assert_eq!((once.gib.round(), once.by_memory), (480.0, 32.0));
        assert_eq!((twice.gib.round(), twice.by_memory), (960.0, 64.0));
        assert_eq!((once.by_processor, once.primaries()), (40.0, 40.0));
        assert_eq!((twice.by_processor, twice.primaries()), (40.0, 64.0));
        // 15 GiB each, at 20 ms.
        assert!((twice.fork_s - 0.3).abs() < 0.001, "{}", twice.fork_s);
    }

    #[test]
    fn expiries_that_each_listener_receives_bound_the_rate() {
        let costs = Costs { further: Further { server_us: 1.0, listener_us: 2.0, bytes: 100.0 }, ..COSTS };
        let plan = |timers_per_s| Plan::of(&Goal { timers_per_s, ..Goal::default() }, &costs);
        assert_eq!(plan(1e5).max_per_s, 250_000.0);
        // 10⁵ timers need 6 µs each, and a listener has 0.3 s left for them.
        assert_eq!(plan(1e5).listeners, Some(2.0));
        assert_eq!(plan(2.4e5).listeners, Some(72.0));
        assert_eq!(plan(2.5e5).listeners, None);
        assert!(
            plan(2.4e5).by_processor > 2.4 * plan(1e5).by_processor,
            "each listener receives each expiry"
        );
        assert_eq!(Plan::of(&Goal::default(), &COSTS).max_per_s, f64::INFINITY);
        assert_eq!(Plan::of(&Goal::default(), &COSTS).buffer_s, f64::INFINITY);
    }
}
