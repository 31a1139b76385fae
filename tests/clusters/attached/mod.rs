//! Keys that other programs write, on several servers.

mod replaced;
mod scene;
mod slice;
