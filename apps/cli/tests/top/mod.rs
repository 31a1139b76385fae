//! `keylapse top` in a terminal, before a real server.

mod acting;
mod looking;
mod shop;
mod terminal;
