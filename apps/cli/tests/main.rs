//! The program as a whole, on servers of the tests' own.

#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

mod commands;
mod run;
mod top;
