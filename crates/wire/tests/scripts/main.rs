//! The Lua scripts keep to what their headers say, and to the rules of
//! docs/internals/wire.md that no run would show to be broken.

#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

mod flags;
mod headers;
mod keys;
mod page;
mod refusals;
mod source;
mod text;
