//! The library against real servers.

mod holding;
mod hostile;
mod life;
mod lost_replies;
mod on_time;
mod producing;
mod subscription;
mod support;
