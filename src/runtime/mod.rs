//! From a claimed timer to a handler: waiting for its deadline, its lease, its
//! limits and its end.

mod attempt;
mod leases;
mod leases;
mod starter;

#[cfg(feature = "testing")]
pub(crate) use attempt::panic_message;
pub(crate) use attempt::{Job, Permit};
pub(crate) use leases::{Leases, LeaseSignal};
pub(crate) use leases::keep_leases;
pub(crate) use starter::Starter;
