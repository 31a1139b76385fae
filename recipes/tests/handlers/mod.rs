//! The handlers of the recipes in virtual time, as whoever copies them would test them.

mod cron;
mod delay_queue;
mod fifo_queue;
mod held_lock;
mod many_topics;
mod notice;
mod orders;
mod priority_queue;
mod redisson;
mod short;
mod streaks;
mod support;
mod worker_queue;
