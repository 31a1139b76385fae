//! Keys that other programs write, on several servers.

pub(crate) mod beside;
mod moving;
mod replaced;
pub(crate) mod scene;
mod sentinels;
mod slice;
