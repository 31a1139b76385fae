//! What bad input gets: from producers, from other programs on the same server,
//! and from the server itself.

mod connections;
mod events;
mod keys;
mod no_redis;
mod other_hands;
mod panics;
mod payloads;
mod permissions;
mod quiet_logs;
mod records;
pub(crate) mod scene;
mod server_errors;
mod settings;
mod surroundings;
mod wrong_types;
