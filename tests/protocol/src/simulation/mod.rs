//! One to eight listeners that claim from one partition, in virtual time; and in [`groups`], what becomes of suspects.
//!
//! When a listener looks, and how it takes it if others were faster, is decided
//! by the library's own pace, `src/runtime/leadership.rs`: it is compiled into this
//! crate by its path, as making it public for the sake of a test would be
//! worse. Around it `listener` repeats the few lines by which `claimer.rs`
//! keeps the head it knows of; `server` gives out what is due.
//!
//! What is not here: leases, handlers and acks, which do not decide who claims;
//! places, of which there are always enough; and the sweep, which would only
//! hide what the pace does.

mod chance;
pub mod groups;
mod listener;
pub mod scenes;
mod server;
mod tally;
mod world;

pub use tally::Tally;
pub use world::{Setup, simulate};

/// How many listeners the table is for.
pub const LISTENERS: [usize; 4] = [1, 2, 4, 8];

/// Timers a second that the table is for.
pub const RATES: [f64; 5] = [0.5, 10.0, 100.0, 1_000.0, 10_000.0];
