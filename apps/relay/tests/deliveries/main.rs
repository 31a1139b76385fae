//! What is due, delivered from real servers: to receivers that are well or ill, to lists, streams and programs.

#![cfg(unix)]
#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

mod delivered;
mod fair;
mod forwarded;
mod ill;
mod measured;
mod programs;
mod receiver;
mod refused;
mod rig;
mod trusted;
mod written;

use self::receiver::{Heard, Receiver, Then};
use self::rig::Rig;
