//! The roles of a listener, one in each file. Most are a struct with `run`, and with `tick` if one step makes sense
//! by itself.

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
