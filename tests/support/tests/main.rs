//! Tests of the servers and proxies.

mod provider;
mod proxy;
mod rights;
mod server;
mod subscriber;
