//! Keys that other programs write, on several servers.

mod as_one;
pub(crate) mod beside;
mod coming;
mod moving;
mod replaced;
pub(crate) mod scene;
mod sentinels;
mod slice;
