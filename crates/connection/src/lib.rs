//! Where the servers are, connections to them, and what their errors mean.
//!
//! One seam for every topology: [`Topology`]. A caller names the slot that a call is about, and gets the [`Server`] that
//! holds it. A single server has all slots, sentinels name the present one for each connection, and a cluster's nodes say
//! who owns which.
//!
//! From a URL to a socket:
//!
//! - [`Target`], with [`Endpoints`]: what a URL or a program says, read and checked;
//! - [`Address`]: one server's [`Endpoint`], and the [`Access`] that all of one kind share;
//! - [`Server`]: calls there, on connections that are renewed, wherever it is found;
//! - [`Topology`]: all of them;
//! - [`Subscription`]: a connection on which messages are passed on.
//!
//! This crate owns [`Error`], which library, console and test kit return, and the advice in its messages. Library, wire and
//! console take the commands and values of `redis` from here, and do not depend on it.

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
mod node;
pub mod panics;
mod retry;
mod sentinel;
mod server;
mod stream;
mod subscription;
mod target;
mod tls;
mod topology;
mod trust;

/// The types and functions of `redis` that library, wire and console use: they do not depend on it.
pub use redis::{
    Arg, Cmd, Pipeline, PushInfo, PushKind, RedisError, RedisResult, Script, ToRedisArgs, Value, cmd,
    from_redis_value, from_redis_value_ref, parse_redis_value, pipe,
};

pub use keylapse_pattern::{self as pattern, escape};

pub use self::address::{Access, Address, Endpoint};
pub use self::classify::{
    DESTROYING_ADVICE, NO_DATABASE, REPARTITIONING_ADVICE, classify, is_of_no_database, is_of_unknown_command,
};
pub use self::cluster::Cluster;
pub use self::cluster_map::{ClusterMap, SLOTS, Standing, hash_tag, slot_of};
pub use self::error::{Error, ErrorKind, Result};
pub use self::login::{Login, OF_SENTINELS, OF_SERVERS, Password};
pub use self::node::MAX_ARGUMENTS;
/// The name under which other crates know the locks.
#[doc(no_inline)]
pub use self::panics as lock;
pub use self::retry::{RetryDelays, insist, may_pass, persist, refused, retry};
pub use self::sentinel::Sentinels;
pub use self::server::Server;
pub use self::stream::{Home, NO_TLS, Streams, TLS};
pub use self::subscription::{Subscription, lacks_resp3};
pub use self::target::{Endpoints, SENTINEL_PORT, SERVER_PORT, Target};
pub use self::tls::Tls;
pub use self::topology::Topology;
