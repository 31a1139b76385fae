//! Each call as a script or a pipeline: what it takes, how it is sent, what it answers.

pub mod arm;
pub mod attached;
pub mod cancel;
pub mod claim;
pub mod letters;
pub mod look;
pub mod partition;
pub mod settle;
pub mod triggers;

pub use self::{
    arm::*, attached::*, cancel::*, claim::*, letters::*, look::*, partition::*, settle::*, triggers::*,
};

/// The most timers that one call may name.
pub const MAX_BATCH: usize = 1000;
