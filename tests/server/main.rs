//! The library against real servers.

mod holding;
mod hostile;
mod life;
mod on_time;
mod subscription;
mod support;
