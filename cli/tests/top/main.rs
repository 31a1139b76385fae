//! `keylapse top` in a terminal, before a real server.

#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

mod acting;
mod looking;
mod shop;
mod terminal;
