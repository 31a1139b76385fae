//! The library against real servers.

mod holding;
mod hostile;
mod life;
mod on_time;
mod producing;
mod subscription;
mod support;
