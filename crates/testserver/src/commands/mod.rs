//! The table of commands, and the functions that execute them.

mod acl;
mod call;
mod client;
mod config;
mod connection;
mod copies;
mod expiry;
mod hashes;
mod keys;
mod lists;
mod numbers;
mod pubsub;
mod scans;
mod server;
mod set;
mod sets;
mod streams;
mod table;
mod texts;
mod zadd;
mod zranges;
mod zsets;

pub(crate) use call::{CommandCall, wrong_arity};
pub(crate) use table::{CommandCategory, CommandFlags, RedisCommand, all, find};
