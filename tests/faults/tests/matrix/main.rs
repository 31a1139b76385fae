//! The fault matrix: each row that can be injected here and is not the subject of another suite, as a
//! test whose name begins with the row's id. docs/internals/reliability.md has the whole table.
//!
//! Rows about processes play the [harness](keylapse_faults) with a plan of that fault alone, and go by its
//! verdict; rows about one thing have a listener in this process.

mod accounts;
mod busy;
mod clocks;
mod crashed;
mod demoted;
mod destroyed;
mod eviction;
mod faketime;
mod handlers;
mod persistence;
mod play;
mod process;
mod scene;
mod shut_down;
mod slow_lines;
mod stampede;
mod starved;
mod stopped;
mod torn_lines;
