//! The only place that knows what lies in Redis: names, records, scripts, and how they are called.
//! docs/wire.md is the contract.
//!
//! A [`Store`] has a method for each call, and what a call takes and answers stands beside it, in `calls`:
//! - timers: `produce` and `arm` for producers, `attempts` for listeners, `triggers` for keys outside of the index;
//! - what partitions hold: `page`, `letters`, `journal`; partitions and topics as a whole: `partition`, `registry`,
//!   `repartition`; listeners: `fleet`;
//! - keys of others: `attached`, `expiries`, `touch`.
//!
//! `run` sends a call and reads its answer; [`scripts`] puts the Lua together. [`names`] has all names, [`record`] the
//! bytes of timers, `outcome` how they end, [`policy`] how keys of others are treated, [`figures`] what is reported,
//! [`time`] the server's clock, [`trace`] where a trace stands.
//!
//! For keylapse's own crates. Programs depend on `keylapse`, which passes on what they need.

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
