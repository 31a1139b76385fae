//! The dashboard over HTTP and in a browser, before a real server.

#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

mod browser;
mod burning;
mod http;
