//! Keylapse as users get it: its public API, what the compiler says to mistakes, packages, builds and pages.

#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

/// Where the library and its pages are.
const REPOSITORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

mod cargo;
mod metrics;
mod packages;
mod pages;
mod public_api;
mod users;
mod wrong_handlers;
