//! The library against real servers.

mod holding;
mod life;
mod on_time;
mod support;
