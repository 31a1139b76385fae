//! Everything that keylapse keeps in Redis: names, records, Lua scripts, and the calls of these scripts.
//! docs/internals/wire.md is the contract.
//!
//! A [`Store`] has a method for each call. The modules in `calls` also define the parameters and results of the calls:
//! - timers: `produce` and `arm` for producers, `attempts` for listeners, `markers` for keys outside of the index;
//! - contents of partitions: `page`, `dead_letters`, `journal`;
//! - partitions and topics: `partition`, `registry`, `repartition`;
//! - listeners: `fleet`;
//! - keys that other programs write: `attached`, `expiries`, `read_keys`.
//!
//! `run` sends a call and reads its reply, and [`scripts`] assembles the Lua text. [`names`] has all names, [`record`] the
//! bytes of timers, and `outcome` the ways in which timers end. [`policy`] has the settings of attached topics, [`figures`]
//! the figures of reports, [`time`] the server's clock, and [`trace`] the trace contexts.
//!
//! Only keylapse's own crates use this one. Programs depend on `keylapse`, which re-exports what they need.

#![forbid(unsafe_code)]

mod calls;
pub mod figures;
pub mod names;
mod outcome;
pub mod policy;
pub mod record;
mod run;
pub mod scripts;
mod store;
pub mod time;
pub mod trace;

use keylapse_connection::{self as connection, error, id, lock, log};
use keylapse_pattern::{self as pattern, escape};

pub use self::{calls::*, names::*, outcome::*, record::*, store::*};

pub use self::run::{Reply, call_by_text, script_call};
