//! The server in the process, by itself and beside real ones.

mod carrier;
mod cost;
mod differential;
mod redis_client;
