//! Holds both stores to one contract: the Lua scripts on a real server, and the
//! store in memory.
//!
//! - `rules` are plain cases, one for each rule of the design, run on both;
//! - `machine` drives both alike through random lives of timers, demands equal
//!   answers, and checks them against promises that it keeps book of itself.
//!
//! `KEYLAPSE_CASES=20000 cargo test --test model machine` runs for longer.

mod machine;
mod rig;
mod rules;
