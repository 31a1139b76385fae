//! From a claimed timer to a handler: waiting for its deadline, its lease, its
//! limits and its end.

mod attempt;
mod flights;
mod leases;
mod starter;

#[cfg(feature = "testing")]
pub(crate) use attempt::panic_message;
pub(crate) use attempt::{Job, Place};
pub(crate) use flights::{Flights, LeaseWatch};
pub(crate) use leases::keep_leases;
pub(crate) use starter::Starter;
