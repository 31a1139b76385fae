//! The library against real servers.

mod life;
mod support;
