//! Each call as a script or a pipeline: what it takes, how it is sent, what it answers.

pub mod arm;
pub mod attached;
pub mod claim;
pub mod destroy;
#[cfg(any(test, feature = "console", feature = "testing"))]
pub mod ended;
pub mod fleet;
pub mod journal;
pub mod letters;
pub mod partition;
mod place;
pub mod policy;
pub mod produce;
mod registry;
pub mod repartition;
pub mod settle;
#[cfg(any(test, feature = "console", feature = "testing"))]
pub mod tail;
pub mod timer;
mod touch;
pub mod triggers;

pub use self::{
    arm::*, attached::*, claim::*, destroy::*, fleet::*, journal::*, letters::*, partition::*, policy::*,
    produce::*, repartition::*, settle::*, timer::*, triggers::*,
};

/// The most timers that one call may name.
pub const MAX_BATCH: usize = 1000;
