//! The handlers of the recipes in virtual time, as whoever copies them would test them.

mod delay;
mod list;
mod mover;
mod notice;
mod support;
mod zset;
