//! The only place that knows what lies in Redis: names, records, scripts, and how they are called.
//! docs/wire.md is the contract.

pub mod calls;
pub(crate) mod canary_tags;
#[cfg(test)]
mod constants;
pub(crate) mod copy;
#[cfg(any(test, fuzzing, feature = "console", feature = "testing"))]
mod encode;
pub mod names;
pub mod portions;
pub mod record;
mod reply;
mod run;
pub mod scripts;
mod settings;
pub mod store;
mod topic_policy;

pub use self::{calls::*, names::*, portions::*, record::*, store::*, topic_policy::*};

pub(crate) use self::reply::Reply;
pub(crate) use self::run::{call_by_text, script_call};
#[cfg(feature = "console")]
pub(crate) use self::settings::missing_flags;
