//! The roles of a listener, one in each file. Most are a struct with `run`, which loops, and `tick`, which does one step.
//! `claim`, `attempt` and `write_back` have the steps of other roles.

pub(crate) mod attempt;
pub(crate) mod claim;
pub(crate) mod claimer;
pub(crate) mod event_loop;
pub(crate) mod expirer;
pub(crate) mod leases;
pub(crate) mod node_keeper;
pub(crate) mod reporter;
pub(crate) mod settler;
pub(crate) mod starter;
pub(crate) mod sweeper;
mod write_back;
