//! Keys that other programs write, on several servers.

mod moving;
mod replaced;
mod scene;
mod sentinels;
mod slice;
