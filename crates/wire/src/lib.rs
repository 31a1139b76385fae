//! The only place that knows what lies in Redis: names, records, scripts, and how they are called.
//! docs/wire.md is the contract.

#![forbid(unsafe_code)]
#![allow(missing_docs, missing_debug_implementations)]

pub mod calls;
pub mod canary_tags;
#[cfg(test)]
mod constants;
pub mod copy;
pub mod counted;
pub mod destination;
pub mod distribution;
mod encode;
pub mod names;
pub mod outcome;
pub mod policy;
pub mod portions;
pub mod record;
mod reply;
mod run;
pub mod scripts;
mod settings;
pub mod store;
pub mod time;
mod topic_policy;
pub mod trace;

pub use keylapse_connection::{self as connection, error, id, limits, lock, log, log_throttle};
pub use keylapse_pattern::{self as pattern, escape};

pub use self::{calls::*, names::*, outcome::Ending, portions::*, record::*, store::*};

pub use self::reply::Reply;
pub use self::run::{call_by_text, script_call};
pub use self::settings::missing_flags;
