//! The handlers of the recipes in virtual time, as whoever copies them would test them.

mod support;
mod zset;
