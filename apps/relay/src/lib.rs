//! Relays what expires in Redis and Valkey: each timer and each expired key becomes a signed HTTP call, an entry of a list or
//! a stream, or the run of a program, as a file says.
//!
//! It is what `keylapse run` does. docs/webhooks.md describes the file.

mod config;
mod delivery;
#[cfg(unix)]
mod exec;
mod forward;
mod message;
mod metrics;
mod occurrence;
mod relay;
mod secret;
mod turns;
mod webhook;

pub use self::config::{Config, ConfigError};
pub use self::metrics::describe as describe_metrics;
pub use self::relay::{Relay, RelayHealth};
pub use self::secret::read_secret_file;
