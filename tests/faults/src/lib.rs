//! Breaks keylapse for real, and says what became of every timer.
//!
//! A run is a server, a few listeners and producers as processes of their own, each behind a proxy, and
//! a seeded [plan](fault::Plan) of what goes wrong: SIGKILL and SIGSTOP, cut, torn, stalled and delayed
//! lines, replies that are lost after the server has executed, and the server's own levers. All
//! processes write a [ledger] outside Redis: what was asked, what was told, what ran. When
//! the faults are over and everything has drained, the [verdict] is a line in the manner
//! of Jepsen's total-queue checker, and the story of each timer that was lost, early, unexpected or run twice
//! without an excuse.
//!
//! All processes and the server share one machine and so one clock: the ledgers' stamps are the server's
//! time.

pub mod child;
pub mod clock;
pub mod fault;
pub mod harness;
pub mod job;
pub mod ledger;
pub mod run;
pub mod shards;
mod stalls;
pub mod verdict;
