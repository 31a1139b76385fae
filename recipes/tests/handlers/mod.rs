//! The handlers of the recipes in virtual time, as whoever copies them would test them.

mod check_in;
mod cron;
mod delay;
mod list;
mod lock;
mod mail;
mod mover;
mod notice;
mod rdelayed;
mod short;
mod support;
mod topics;
mod zset;
