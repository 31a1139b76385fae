//! Delivers timers and expired keys of Redis and Valkey, as a configuration file describes. Each becomes a signed HTTP call,
//! an entry of a list or a stream, or the run of a program.
//!
//! `keylapse run` is this crate with a command line. docs/configuration.md describes the file.

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
