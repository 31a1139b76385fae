//! Where the servers are, connections to them, and what their errors mean.
//!
//! One seam for every topology: [`Topology`]. Whoever makes a call says which slot it is about, and gets a [`Seat`] at the
//! server that holds it. A single server has all slots, one that sentinels name is found anew for each connection, and a
//! cluster's nodes say who owns which.

pub(crate) mod access;
pub(crate) mod address;
mod carried;
pub(crate) mod classify;
mod cluster;
mod cluster_map;
pub(crate) mod draft;
pub(crate) mod endpoint;
mod home;
pub(crate) mod node;
pub(crate) mod outage;
pub(crate) mod password;
mod percent;
mod place;
pub(crate) mod probe;
mod read_file;
pub(crate) mod retry;
mod sentinel;
mod server;
pub(crate) mod slot;
mod socket;
pub(crate) mod stream;
pub(crate) mod target;
pub(crate) mod tls;
mod topology;
mod trust;
mod url;

pub(crate) use self::address::Address;
pub(crate) use self::classify::{DESTROYING_ADVICE, REPARTITIONING_ADVICE, classify};
pub(crate) use self::cluster::{Cluster, Standing};
pub(crate) use self::cluster_map::ClusterMap;
pub(crate) use self::draft::Draft;
pub(crate) use self::endpoint::Endpoint;
pub(crate) use self::home::Home;
pub(crate) use self::node::Node;
pub(crate) use self::password::Password;
pub(crate) use self::place::Place;
pub(crate) use self::retry::{RetryDelays, insist, may_pass, persist, refused, retry};
pub(crate) use self::sentinel::Sentinels;
pub(crate) use self::server::{Seat, Server};
pub(crate) use self::stream::Streams;
pub(crate) use self::target::{Endpoints, SENTINEL_PORT, SERVER_PORT, Target};
pub use self::tls::Tls;
pub(crate) use self::topology::Topology;
