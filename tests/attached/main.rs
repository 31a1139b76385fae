//! Attached topics against real servers: keys that other programs write.

#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

mod changes;
mod crowd;
mod gaps;
mod keeping;
mod policies;
mod recovery;
mod refusals;
mod rows;
mod scene;
mod slice;
mod trouble;
