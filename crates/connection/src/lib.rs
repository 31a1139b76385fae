//! Where the servers are, connections to them, and what their errors mean.
//!
//! One seam for every topology: [`Topology`]. Whoever makes a call says which slot it is about, and gets a [`Seat`] at the
//! server that holds it. A single server has all slots, one that sentinels name is found anew for each connection, and a
//! cluster's nodes say who owns which.

#![forbid(unsafe_code)]
#![allow(missing_docs, missing_debug_implementations)]

pub mod access;
pub mod address;
pub mod boottime;
mod carried;
pub mod classify;
mod cluster;
mod cluster_map;
pub mod draft;
pub mod endpoint;
pub mod error;
mod home;
pub mod id;
pub mod limits;
pub mod lock;
pub mod log;
pub mod log_throttle;
pub mod node;
pub mod outage;
pub mod panics;
pub mod password;
mod place;
pub mod probe;
mod read_file;
pub mod retry;
mod sentinel;
mod server;
pub mod slot;
mod socket;
pub mod stream;
pub mod target;
pub mod tls;
mod topology;
mod trust;
mod url;

/// The command and value types of `redis` that the other crates use.
pub use redis::{
    Arg, Cmd, Pipeline, RedisError, RedisResult, Script, ToRedisArgs, Value, cmd, from_redis_value,
    from_redis_value_ref, pipe,
};

pub use keylapse_pattern::{self as pattern, escape};

pub use self::address::Address;
pub use self::classify::{DESTROYING_ADVICE, REPARTITIONING_ADVICE, classify};
pub use self::cluster::{Cluster, Standing};
pub use self::cluster_map::ClusterMap;
pub use self::draft::Draft;
pub use self::endpoint::Endpoint;
pub use self::error::{Error, ErrorKind, Result};
pub use self::home::Home;
pub use self::node::Node;
pub use self::password::Password;
pub use self::place::Place;
pub use self::retry::{RetryDelays, insist, may_pass, persist, refused, retry};
pub use self::sentinel::Sentinels;
pub use self::server::{Seat, Server};
pub use self::stream::Streams;
pub use self::target::{Endpoints, SENTINEL_PORT, SERVER_PORT, Target};
pub use self::tls::Tls;
pub use self::topology::Topology;
