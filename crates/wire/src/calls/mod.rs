//! Each call as a script or a pipeline: what it takes, how it is sent, what it answers.

pub mod arm;
pub mod attached;
mod by_time;
pub mod claim;
pub mod destroy;
pub mod ended;
mod endings;
pub mod fleet;
pub mod forward;
pub mod import;
pub mod journal;
pub mod letters;
pub mod overview;
pub mod page;
pub mod partition;
mod place;
pub mod policy;
pub mod produce;
pub mod registry;
pub mod repartition;
pub mod settle;
pub mod survey;
pub mod tail;
pub mod timer;
mod touch;
pub mod triggers;

pub use self::{
    arm::*, attached::*, claim::*, destroy::*, fleet::*, journal::*, letters::*, partition::*, policy::*,
    produce::*, repartition::*, settle::*, timer::*, triggers::*,
};

pub use self::{import::*, overview::*, page::*, survey::*};

/// The most timers that one call may name.
pub const MAX_BATCH: usize = 1000;
