//! Runs with several servers: a cluster, or a master with replicas and sentinels.
//!
//! A [`Group`] is either of them, a [`Stage`] is a group with those who use it, and a [`ShardFault`] is what befalls it. A
//! primary that loses its place has a `fall`: what its replicas have is read before one of them is promoted, so that it
//! is known of each timer whether it can have survived. `orders` are keys that other programs write meanwhile, which
//! listeners are attached to.

mod demo;
mod fall;
pub mod fault;
mod group;
mod orders;
mod outcome;
mod plan;
mod run;
mod stage;
mod table;
mod witness;

pub use demo::{Show, alone, cluster, sentinel};
pub use fault::ShardFault;
pub use group::Group;
pub use orders::Orders;
pub use outcome::Outcome;
pub use plan::ShardPlan;
pub use run::{play_seed, shard_cast};
pub use stage::Stage;
pub use table::{HEAD, faults, row};
