//! Each call as a script or a pipeline: what it takes, how it is sent, what it answers.

pub mod arm;
pub mod attached;
mod by_time;
pub mod claim;
pub mod destroy;
#[cfg(any(test, feature = "console", feature = "testing"))]
pub mod ended;
#[cfg(any(test, feature = "console", feature = "testing"))]
mod endings;
pub mod fleet;
pub mod forward;
#[cfg(feature = "console")]
pub mod import;
pub mod journal;
pub mod letters;
#[cfg(feature = "console")]
pub mod overview;
#[cfg(feature = "console")]
pub mod page;
pub mod partition;
mod place;
pub mod policy;
pub mod produce;
pub(crate) mod registry;
pub mod repartition;
pub mod settle;
#[cfg(feature = "console")]
pub mod survey;
#[cfg(any(test, feature = "console", feature = "testing"))]
pub mod tail;
pub mod timer;
mod touch;
pub mod triggers;

pub use self::{
    arm::*, attached::*, claim::*, destroy::*, fleet::*, journal::*, letters::*, partition::*, policy::*,
    produce::*, repartition::*, settle::*, timer::*, triggers::*,
};

#[cfg(feature = "console")]
pub use self::{import::*, overview::*, page::*, survey::*};

/// The most timers that one call may name.
pub const MAX_BATCH: usize = 1000;
