//! Who looks, when, and for how much.

mod alarm;
mod claimer;
mod pace;
mod places;
mod suspects;
mod take;

pub(crate) use alarm::Alarm;
pub(crate) use claimer::Claimer;
pub(crate) use pace::Pace;
pub(crate) use places::Places;
pub(crate) use suspects::Suspects;
