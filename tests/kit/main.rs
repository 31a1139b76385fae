//! The test kit, tested: `keylapse::testing`.

mod determinism;
mod faults;
mod handlers;
mod lives;
mod server;
mod services;
mod signals;
mod support;
