//! The arguments and the work of the commands, by subject.

pub(crate) mod attach;
pub(crate) mod bulk;
pub(crate) mod check;
pub(crate) mod completions;
pub(crate) mod doctor;
pub(crate) mod health;
pub(crate) mod journal;
pub(crate) mod key;
pub(crate) mod listeners;
pub(crate) mod ls;
pub(crate) mod run;
pub(crate) mod serve;
pub(crate) mod status;
pub(crate) mod tail;
mod target;
pub(crate) mod timers;
pub(crate) mod top;
pub(crate) mod topic;
pub(crate) mod transfer;
