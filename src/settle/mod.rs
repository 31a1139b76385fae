//! From the end of an attempt to what Redis is told.

mod outbox;
mod settler;
mod verdict;

pub(crate) use outbox::{LINGER, Outbox, Settlement};
pub(crate) use settler::Settler;
pub(crate) use verdict::{Before, Decision, Verdict};
