//! A browser of a test's own: Chromium without a window, driven by its DevTools protocol.
//!
//! This crate is a tool for tests, so what cannot go on panics, with a message that says what was tried. The browser ends
//! with the value that owns it.

mod chrome;
mod page;

pub use chrome::{Chrome, WITHIN};
