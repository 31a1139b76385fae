//! The only place that knows what lies in Redis: names, records, scripts, and how they are called.
//! docs/wire.md is the contract.

pub mod calls;
pub(crate) mod copy;
pub mod names;
pub mod record;
pub(crate) mod reply;
pub(crate) mod run;
pub mod scripts;
pub(crate) mod settings;
pub mod store;
mod wrong_type;
