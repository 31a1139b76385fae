//! What several servers bring, and what a goal would take: `make bench OF=scale` measures it, `docs/scale.md` shows it.
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
