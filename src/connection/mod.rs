//! Where the server is, connections to it, and what its errors mean.
//!
//! One seam for every topology. Today there is one [`Node`](node::Node); Sentinel and
//! Cluster will choose the node by role and by slot, behind the same calls.

pub(crate) mod address;
pub(crate) mod classify;
pub(crate) mod node;
pub(crate) mod outage;
pub(crate) mod retry;
pub(crate) mod slot;
pub(crate) mod stream;

pub(crate) use self::address::Address;
pub(crate) use self::classify::{DESTROYING_ADVICE, classify};
pub(crate) use self::node::Node;
pub(crate) use self::retry::{RetryDelays, insist, may_pass, persist, persist_from, refused, retry};
pub(crate) use self::stream::Streams;
