//! Where the servers are, and connections to them.
//!
//! One seam for every topology. Today there is one [`Node`]; Sentinel and
//! Cluster will choose the node by role and by slot, behind the same calls.

mod classify;
mod node;
mod url;

pub(crate) use classify::{classify, classify_refusal};
pub(crate) use node::{Failed, Node};
pub(crate) use url::Address;
