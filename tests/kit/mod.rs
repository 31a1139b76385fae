//! The test kit, tested: `keylapse_testing`.

mod attached;
mod determinism;
mod faults;
mod handlers;
mod lives;
mod quiet;
mod seen;
mod server;
mod services;
mod serving;
mod signals;
mod support;
