//! Servers and proxies, tested.

mod provider;
mod proxy;
mod rights;
mod server;
mod subscriber;
