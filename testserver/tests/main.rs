//! The server in the process, by itself and beside real ones.

mod cost;
mod differential;
mod redis_client;
