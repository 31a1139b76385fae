//! Where the server is, connections to it, and what its errors mean.
//!
//! One seam for every topology. Today there is one [`Node`](node::Node); Sentinel and
//! Cluster will choose the node by role and by slot, behind the same calls.

pub(crate) mod access;
pub(crate) mod address;
mod carried;
pub(crate) mod classify;
pub(crate) mod draft;
pub(crate) mod endpoint;
pub(crate) mod node;
pub(crate) mod outage;
pub(crate) mod password;
mod percent;
mod probe;
mod read_file;
pub(crate) mod retry;
mod socket;
pub(crate) mod stream;
pub(crate) mod target;
pub(crate) mod tls;
mod url;

pub(crate) use self::address::Address;
pub(crate) use self::classify::{DESTROYING_ADVICE, classify};
pub(crate) use self::draft::Draft;
pub(crate) use self::endpoint::Endpoint;
pub(crate) use self::node::Node;
pub(crate) use self::password::Password;
pub(crate) use self::retry::{RetryDelays, insist, may_pass, persist, persist_from, refused, retry};
pub(crate) use self::stream::Streams;
pub(crate) use self::target::{Endpoints, SENTINEL_PORT, SERVER_PORT, Target};
pub use self::tls::Tls;
