//! The handlers of the recipes in virtual time, as whoever copies them would test them.

mod beside;
mod check_in;
mod cron;
mod delay;
mod list;
mod mover;
mod notice;
mod support;
mod zset;
