//! The handlers of the recipes in virtual time, as whoever copies them would test them.

mod beside;
mod check_in;
mod cron;
mod support;
mod zset;
