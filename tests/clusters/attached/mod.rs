//! Keys that other programs write, on several servers.

pub(crate) mod beside;
mod moving;
mod replaced;
mod scene;
mod sentinels;
mod slice;
