//! Costs on several servers, and the resources that a goal needs: `make bench OF=scale`. docs/internals/benchmarks.md has the figures.
//!
//! A run ends as a [`Record`]. Its [`Costs`] are those of one timer. [`Plan::of`] calculates the plan of a [`Goal`] at these
//! costs. [`markdown`] writes all of it as on the page.

mod costs;
mod evenness;
pub mod markdown;
mod plan;
mod record;

pub use costs::{Costs, Further};
pub use evenness::{busiest, is_even, key_in_each_slot, owner};
pub use plan::{Goal, Plan};
pub use record::{Record, Row};
