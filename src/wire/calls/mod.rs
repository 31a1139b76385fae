//! Each call as a script or a pipeline: what it takes, how it is sent, what it answers.

pub mod arm;
pub mod attached;
pub mod claim;
pub mod destroy;
pub mod fleet;
pub mod letters;
pub mod partition;
pub mod policy;
pub mod produce;
mod registry;
pub mod repartition;
pub mod settle;
pub mod timer;
pub mod triggers;

pub use self::{
    arm::*, attached::*, claim::*, destroy::*, fleet::*, letters::*, partition::*, policy::*, produce::*,
    repartition::*, settle::*, timer::*, triggers::*,
};

/// The most timers that one call may name.
pub const MAX_BATCH: usize = 1000;
