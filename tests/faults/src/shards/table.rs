//! One fault after the other: what each alone can lose, double and make late.

use super::{Outcome, ShardFault};
use crate::verdict::Wrong;

/// The table's first lines.
pub const HEAD: &str = "\
| fault | timers | replaced after ms | and the last overdue began ms later | never reached the new primary, without WAIT (oldest ms) | with | again | lost | early | p99 late ms there | elsewhere |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |";

/// Each fault with its name, and whether it befalls a cluster.
pub fn faults() -> Vec<(&'static str, bool, ShardFault)> {
    let partition = 0;
    let kill = ShardFault::Kill { partition, restart_after: 1_000 };
    let (failover, stop) = (ShardFault::Failover { partition }, ShardFault::Stop { partition, ms: 10_000 });
    vec![
        ("cluster: a primary is killed", true, kill),
        ("cluster: a primary hangs for 10 s", true, stop),
        ("cluster: a failover by hand", true, failover),
        ("cluster: 100 slots move", true, ShardFault::Move { slots: 100 }),
        ("Sentinel: the master is killed", false, kill),
        ("Sentinel: the master hangs for 10 s", false, stop),
        ("Sentinel: `SENTINEL FAILOVER`", false, failover),
    ]
}

/// A fault's row. What had reached as many replicas as it asked for, and not the one that was promoted, is lost.
pub fn row(name: &str, outcome: &Outcome) -> String {
    let (managed, shards) = (&outcome.managed, &outcome.managed.shards);
    let (lost, early) = (managed.count(Wrong::Lost), managed.count(Wrong::Early));
    let in_ms = |after: Option<u64>| after.map(|after| (after / 1000).to_string()).unwrap_or_default();
    let (replaced, caught_up) = (in_ms(shards.promoted_after), in_ms(shards.caught_up_after));
    let oldest = shards.unreplicated.iter().max().map_or(0.0, |age| *age as f64 / 1000.0);
    let (there, elsewhere) = shards.late_there_and_elsewhere();
    format!(
        "| {name} | {} | {replaced} | {caught_up} | {} ({oldest:.1}) | {lost} | {} | {lost} | {early} | {there:.1} | {elsewhere:.1} |",
        managed.handled,
        shards.unreplicated.len(),
        managed.duplicated,
    )
}
