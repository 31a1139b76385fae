//! A Redis-compatible server inside a test's own process.

mod acl;
mod builder;
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
mod reply;
mod resp;
mod script;
mod server;
mod state;
mod value;

pub use builder::Builder;
pub use bytes::Bytes;
pub use intercept::{Intervention, Request};
pub use reply::Reply;
pub use server::Server;
