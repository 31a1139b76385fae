//! Judging a run by its ledgers: what went in must come out, on time and once, or with an excuse.
//!
//! `attached` is about keys that other programs write, `orders` about those of several servers; of timers
//! `oracle` puts the lines together, `judge` compares what ran with what was promised, `excuse` says
//! which faults on record allow an attempt to run again, and `report` is what is printed.

mod attached;
mod excuse;
mod fired;
mod judge;
mod oracle;
mod orders;
mod report;
mod shards;
#[cfg(test)]
mod tests;

pub use judge::{Letter, judge};
pub use report::{Finding, Report, Wrong};
pub use shards::{ByShard, Weather};
