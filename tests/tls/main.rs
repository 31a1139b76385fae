//! TLS with a real server: whole lives over it, what each mistake is told, and certificates that are rotated.

#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

mod lines;
mod lives;
mod mistakes;
mod rotated;
mod scene;
#[path = "../server/support.rs"]
#[allow(dead_code)] // as that suite needs it
mod support;
