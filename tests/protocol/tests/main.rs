//! The model explored, broken, and held against the scripts.

#[macro_use]
mod missed;

mod attached_keys;
mod attached_mutants;
mod conformance;
mod damping;
mod destroying;
mod exhaustive;
mod explore;
mod groups;
mod mutants;
mod repartitioning;
mod simulation;
