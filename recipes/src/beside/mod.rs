//! Small programs beside the recipes, for docs/recipes.md: each is what is asked for most often.

#![allow(missing_docs, missing_debug_implementations, reason = "they are shown as a program would have them")]

pub mod batch;
pub mod heartbeat;
pub mod limit;
pub mod pull;
pub mod session;
