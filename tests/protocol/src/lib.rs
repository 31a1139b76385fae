//! What keylapse promises, tried where it can be tried completely.
//!
//! - [`model`] mirrors the decisions of the scripts over abstract time, few
//!   keys and few workers. A checker visits every state that these can reach,
//!   with crashes, pauses and lost replies at every step.
//! - [`attach`] asks of keys that others write which expiry is which, and
//!   whether it happened at all: lost hints, late listeners, several lives.
//! - [`damping`] does the same for the question of who claims among several.
//! - [`destroying`] does so for a topic that is destroyed while others arm,
//!   and [`repartitioning`] for one that gets another number of partitions.
//! - [`simulation`] lets one to eight listeners claim through a virtual
//!   network, and shows how late they are and how often they come in vain.
//!
//! A model proves nothing about code that it does not resemble. So the same
//! random walks that the model takes are replayed, call by call, on the scripts
//! themselves; and every rule of the model can be switched off, upon which the
//! checker has to find the promise that breaks.

pub mod attach;
pub mod damping;
pub mod destroying;
#[path = "../../../src/runtime/leadership.rs"]
mod leadership;
pub mod model;
pub mod repartitioning;
pub mod rules;
pub mod simulation;
