//! The commands, one a file: what each can be told, and what it does.

pub(crate) mod arm;
pub(crate) mod attach;
pub(crate) mod bulk;
pub(crate) mod cancel;
pub(crate) mod check;
pub(crate) mod completions;
pub(crate) mod dead;
pub(crate) mod destroy;
mod did;
pub(crate) mod doctor;
pub(crate) mod journal;
pub(crate) mod listeners;
pub(crate) mod ls;
mod outcome;
pub(crate) mod partitions;
pub(crate) mod pause;
pub(crate) mod reschedule;
pub(crate) mod run_now;
pub(crate) mod show;
pub(crate) mod status;
pub(crate) mod tail;
mod target;
pub(crate) mod top;
pub(crate) mod topics;
pub(crate) mod transfer;
pub(crate) mod verify;
pub(crate) mod why;
