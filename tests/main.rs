//! The library against one real server: what a newcomer runs, in one binary.

#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

/// Where the library, its scripts and its pages are.
const REPOSITORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

mod fuzzing;
mod kit;
mod limits;
mod listening;
mod model;
mod produce;
mod server;
