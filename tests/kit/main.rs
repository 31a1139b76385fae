//! The test kit, tested: `keylapse::testing`.

mod attached;
mod cluster;
mod determinism;
mod faults;
mod handlers;
mod lives;
mod quiet;
mod seen;
mod sentinel;
mod server;
mod services;
mod serving;
mod signals;
mod support;
