//! Servers and proxies, tested.

mod proxy;
mod rights;
mod server;
