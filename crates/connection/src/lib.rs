//! Finds Redis and Valkey servers, connects to them, and explains their errors.
//!
//! [`Topology`] is the one interface to every topology. A caller names the slot of a call, and gets the [`Server`] that
//! holds the slot. A single server holds all slots. Sentinels name the current primary for each connection. The nodes of a
//! cluster name the owner of each slot.
//!
//! The types, from a URL to a socket:
//!
//! - [`Target`], with [`Endpoints`]: the checked contents of a URL or of a program's settings;
//! - [`Address`]: one server's [`Endpoint`], and the [`ConnectOptions`] that all servers of one kind share;
//! - [`Server`]: calls to one server, on connections that are replaced when they break or the server moves;
//! - [`Topology`]: all servers;
//! - [`Subscription`]: a connection that receives published messages.
//!
//! This crate owns [`Error`], with the advice in its messages. The library, the console and the test kit return it. The
//! library, wire and console crates use the types of `redis` through this crate, and do not depend on `redis`.

#![forbid(unsafe_code)]

mod address;
pub mod boottime;
mod classify;
mod cluster;
mod cluster_map;
pub mod error;
pub mod id;
pub mod log;
mod login;
pub mod panics;
mod replacement;
mod retry;
mod sentinel;
mod server;
mod server_connection;
mod stream;
mod subscription;
mod target;
mod tls;
mod topology;

/// The types and functions of `redis` that the library, wire and console crates use.
pub use redis::{
    Arg, Cmd, Pipeline, PushInfo, PushKind, RedisError, RedisResult, Script, ToRedisArgs, Value, cmd,
    from_redis_value, from_redis_value_ref, parse_redis_value, pipe,
};

pub use keylapse_pattern::{self as pattern, escape};

pub use self::address::{Address, ConnectOptions, Endpoint};
pub use self::classify::{
    DESTROYING_ADVICE, NO_DATABASE, REPARTITIONING_ADVICE, classify, is_of_no_database, is_of_unknown_command,
};
pub use self::cluster::Cluster;
pub use self::cluster_map::{CLUSTER_SLOTS, ClusterMap, NodeRole, hash_tag, slot_of};
pub use self::error::{Error, ErrorKind, Result};
pub use self::login::{Login, Password, SENTINEL_PASSWORD_VARIABLE, SERVER_PASSWORD_VARIABLE};
/// The module that has [`lock`](self::panics::lock), under the name that other crates use.
#[doc(no_inline)]
pub use self::panics as lock;
pub use self::retry::{
    RetryDelays, is_retryable, retry, retry_settling, retry_until_answered, unknown_outcome,
};
pub use self::sentinel::Sentinels;
pub use self::server::Server;
pub use self::server_connection::MAX_ARGUMENTS;
pub use self::stream::{ConnectionRuntime, NO_TLS_AT_PORT, Streams, TLS_AT_PORT};
pub use self::subscription::{Subscription, lacks_resp3};
pub use self::target::{Endpoints, SENTINEL_PORT, SERVER_PORT, Target};
pub use self::tls::Tls;
pub use self::topology::Topology;
