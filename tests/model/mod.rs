//! Holds the scripts to their contract, on a real server and on the one in the process:
//!
//! - `rules` are plain cases, one for each rule of the design;
//! - `machine` drives random lives of timers, checks every answer against an oracle that knows nothing but
//!   promises, and demands that all servers answer alike.
//!
//! `KEYLAPSE_CASES=20000 cargo test --test suite machine` runs for longer.

mod machine;
mod rig;
pub(crate) mod rules;
