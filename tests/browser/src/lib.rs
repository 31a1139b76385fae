//! A browser for one test: headless Chromium, controlled by its DevTools protocol.
//!
//! This crate is a tool for tests, so failures panic, with the failed action in the message. The browser ends when its value
//! is dropped.

mod chrome;
mod page;

pub use chrome::{Chrome, WITHIN};
