//! The Lua scripts keep to what their headers say, and to the rules of
//! docs/wire.md that no run would show to be broken.

mod flags;
mod headers;
mod keys;
mod refusals;
pub(crate) mod source;
mod text;
