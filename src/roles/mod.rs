//! Who looks, when, and for how much.

mod wakeup;
mod claimer;
mod leadership;
mod permits;
mod quarantine;
mod take;

pub(crate) use wakeup::Wakeup;
pub(crate) use claimer::Claimer;
pub(crate) use leadership::Leadership;
pub(crate) use permits::Permits;
pub(crate) use quarantine::Quarantine;
