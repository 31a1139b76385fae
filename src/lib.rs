//! Redis and Valkey key expiry made dependable.

#![forbid(unsafe_code)]

mod backoff;
mod error;
mod escape;
mod id;
mod payload;
pub mod store;
mod subscriber;
mod time;
mod topology;

pub use backoff::Backoff;
pub use error::{Error, ErrorKind, Result};
pub use id::{ArmingId, CancelId, Lane, Token};
pub use time::{MAX_DEADLINE_MS, MAX_DELAY, ServerTime, When, WireWhen};
