//! The test kit, tested: `keylapse::testing`.

mod determinism;
mod faults;
mod lives;
mod server;
mod signals;
mod support;
