//! The handlers of the recipes in virtual time, as whoever copies them would test them.

mod cron;
mod support;
mod zset;
