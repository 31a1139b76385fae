//! Topics on clusters, and on servers that sentinels watch. These tests mostly wait for failovers: `make test` runs
//! many of them at a time.

#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

mod attached;
mod facts;
mod failover;
mod hostile;
mod life;
mod load;
mod moving;
mod reach;
mod rights;
mod sentinel;
#[path = "../server/support.rs"]
#[allow(dead_code)] // as that suite needs it
mod support;
