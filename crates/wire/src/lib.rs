//! The only place that knows what lies in Redis: names, records, scripts, and how they are called.
//! docs/wire.md is the contract.

#![forbid(unsafe_code)]
#![allow(missing_docs, missing_debug_implementations)]

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

pub use keylapse_connection::{self as connection, error, id, limits, lock, log, log_throttle};
pub use keylapse_pattern::{self as pattern, escape};

pub use self::{calls::*, names::*, outcome::*, record::*, store::*};

pub use self::run::{Reply, call_by_text, script_call};
