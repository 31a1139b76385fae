//! Attached topics against real servers: keys that other programs write.

#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

mod crowd;
mod policies;
mod recovery;
mod refusals;
mod rows;
mod scene;
mod slice;
mod trouble;
