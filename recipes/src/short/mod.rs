//! Small examples of frequent tasks, for docs/recipes.md.

#![allow(
    missing_docs,
    missing_debug_implementations,
    reason = "the page shows them like the code of a program"
)]

pub mod batch;
pub mod heartbeat;
pub mod limit;
pub mod pull;
pub mod session;
