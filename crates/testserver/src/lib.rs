//! A Redis-compatible server in a test's process.
//!
//! It executes Lua scripts, expires keys and publishes keyspace events. Its clock is tokio's clock. A test that pauses the
//! clock lets 15 minutes pass immediately:
//!
//! ```
//! use std::time::Duration;
//! use keylapse_testserver::{RedisReply, TestServer};
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() {
//! let server = TestServer::new();
//! server.command(["SET", "order:42", "unpaid", "EX", "900"]);
//! assert_eq!(server.command(["GET", "order:42"]), RedisReply::Bulk("unpaid".into()));
//!
//! tokio::time::sleep(Duration::from_secs(901)).await;
//! assert_eq!(server.command(["EXISTS", "order:42"]), RedisReply::Int(0));
//! # }
//! ```
//!
//! [`TestServer::connect`] opens a connection in memory for any client that accepts a stream. [`TestServer::listen`] opens a
//! port of 127.0.0.1. [`TestServer::intercept`] refuses or drops commands. A [`MessageCarrier`] loses, delays and repeats
//! messages to subscribers, also those of [another server](relay).
//!
//! The server behaves like Redis 7.0.15. The README lists the commands and the differences. The crate builds Lua from
//! source, which needs a C compiler. Its Lua (`links = "lua"`) conflicts with another vendored Lua in the same program.
#![forbid(unsafe_code)]

mod acl;
mod builder;
mod calls;
mod carrier;
mod client;
mod clock;
mod commands;
mod config;
mod connection;
mod dump;
mod engine;
mod events;
mod expirer;
mod glob;
mod intercept;
mod keyspace;
mod number;
mod outbox;
mod pubsub;
mod random;
mod relay;
mod reply;
mod resp;
mod script;
mod server;
mod state;
mod value;

pub use builder::Builder;
pub use bytes::Bytes;
pub use calls::{CallFault, CallRecorder};
pub use carrier::{MessageCarrier, Passage, PubSubMessage};
pub use intercept::{CommandRequest, Intervention};
pub use relay::{RelayedConnection, relay};
pub use reply::RedisReply;
pub use server::TestServer;
