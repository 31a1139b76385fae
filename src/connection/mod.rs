//! Where the servers are, connections to them, and what their errors mean.
//!
//! One seam for every topology: [`Servers`]. Whoever makes a call says which slot it is about, and gets a [`Seat`] at the
//! server that holds it. A single server has all slots, one that sentinels name is found anew for each connection, and a
//! cluster's nodes say who owns which.

pub(crate) mod address;
pub(crate) mod classify;
mod cluster;
mod cluster_map;
mod endpoint;
pub(crate) mod node;
pub(crate) mod outage;
mod place;
pub(crate) mod retry;
mod sentinel;
mod server;
mod servers;
pub(crate) mod slot;
pub(crate) mod stream;
mod trust;

pub(crate) use self::address::Address;
pub(crate) use self::classify::{DESTROYING_ADVICE, classify};
pub(crate) use self::cluster::Cluster;
pub(crate) use self::cluster_map::ClusterMap;
pub(crate) use self::endpoint::Endpoint;
pub(crate) use self::node::Node;
pub(crate) use self::place::Place;
pub(crate) use self::retry::{RetryDelays, insist, may_pass, persist, persist_from, refused, retry};
pub(crate) use self::server::{Seat, Server};
pub(crate) use self::servers::{Servers, Topology};
pub(crate) use self::stream::Streams;
