//! Listeners that are killed, stopped and poisoned: real processes, real signals.
//!
//! A child is this very test binary, told by its environment to be a listener.

mod child;
mod killed;
mod pill;
mod stopped;
