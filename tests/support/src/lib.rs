//! Real servers, and a proxy that injects faults into the connections to them, for keylapse's own tests, examples and
//! benchmarks.
//!
//! ```no_run
//! use keylapse_support::{Proxy, Server, Then, command, connect};
//!
//! # async fn example() -> redis::RedisResult<()> {
//! let server = Server::start().await;
//! let proxy = Proxy::before(&server).await;
//! let mut client = connect(&proxy.url()).await?;
//!
//! proxy.lose_reply(command("INCR"), Then::Close);
//! let answer: redis::RedisResult<i64> = redis::cmd("INCR").arg("n").query_async(&mut client).await;
//!
//! assert!(answer.is_err(), "the client receives no reply,");
//! assert_eq!(server.cmd(&["GET", "n"]).await, redis::Value::BulkString(b"1".to_vec()), "but the server has executed it");
//! # Ok(()) }
//! ```
//!
//! This crate is a tool for tests, so failures panic. The message has the failed action and the remedy. Servers and proxies
//! listen only on the loopback interface, and end when their value is dropped.

#[cfg(feature = "tls")]
mod authority;
mod binary;
mod conf;
mod connect;
mod error;
mod middleman;
mod plain;
mod port;
mod program;
mod provider;
mod proxy;
mod reach;
mod server;
mod skipped;
mod subscriber;
mod timed;
#[cfg(feature = "tls")]
mod tls;
#[cfg(not(feature = "tls"))]
#[path = "without_tls.rs"]
mod tls;
mod version;
mod wait;

#[cfg(feature = "tls")]
pub use authority::{Authority, Files, write};
pub use binary::Binary;
pub use conf::{app_user_line, tls_lines, tls_settings};
pub use connect::connect;
pub use error::Error;
pub use middleman::Middleman;
pub use plain::Plain;
pub use program::{Program, script};
pub use provider::Provider;
pub use proxy::{Denial, Direction, Proxy, Then, any, command};
pub use reach::{Reach, skipped_on_a_cluster};
pub use server::{APP_PASSWORD, APP_USER, Builder, Fsync, Server};
pub use skipped::skipped;
pub use subscriber::subscribe;
pub use timed::{times_are_judged, took_at_most};
pub use version::Version;
pub use wait::{Deadline, eventually};
