//! Several servers measured, and a goal calculated from them: `make bench OF=scale`, whose figures are docs/scale.md.
//!
//! The way of a figure: a run ends as a [`Record`], its [`Costs`] are those of one timer, a [`Goal`] makes them a
//! [`Plan`], and [`markdown`] writes all of it down as it stands on the page.

mod costs;
mod evenness;
pub mod markdown;
mod plan;
mod record;

pub use costs::{Costs, Further};
pub use evenness::{busiest, is_even, owner};
pub use plan::{Goal, Plan};
pub use record::{Record, Row};
