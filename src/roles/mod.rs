//! What a listener does: one role a file, each a struct with `run`, and a `tick` where one step makes sense
//! by itself.

mod answer_size;
pub(crate) mod attempt;
pub(crate) mod attempt_log;
mod begun;
pub(crate) mod claim;
pub(crate) mod claimer;
pub(crate) mod event_loop;
pub(crate) mod expirer;
pub(crate) mod lease_guard;
pub(crate) mod lease_keeper;
pub(crate) mod node_keeper;
pub(crate) mod repair;
pub(crate) mod reporter;
pub(crate) mod settler;
pub(crate) mod starter;
pub(crate) mod sweeper;
mod write_back;
