//! A Redis-compatible server inside a test's own process.
//!
//! It executes Lua scripts, expires keys, publishes keyspace events, and takes its time from tokio's
//! clock: while that is paused, fifteen minutes pass at once.
//!
//! ```
//! use std::time::Duration;
//! use keylapse_testserver::{Reply, Server};
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() {
//! let server = Server::new();
//! server.command(["SET", "order:42", "unpaid", "EX", "900"]);
//! assert_eq!(server.command(["GET", "order:42"]), Reply::Bulk("unpaid".into()));
//!
//! tokio::time::sleep(Duration::from_secs(901)).await;
//! assert_eq!(server.command(["EXISTS", "order:42"]), Reply::Int(0));
//! # }
//! ```
//!
//! [`Server::connect`] opens a connection in memory for any client that takes a stream, and
//! [`Server::listen`] a port of 127.0.0.1. [`Server::intercept`] breaks what a test wants broken, and a [`Carrier`]
//! loses, delays and repeats messages on their way to subscribers, also those of [another server](relay).
//!
//! It behaves like Redis 7.0.15; the README lists its commands and what is different. It builds Lua from
//! source, so it needs a C compiler, and its Lua (`links = "lua"`) can clash with another in the program.
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
