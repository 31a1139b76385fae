//! `keylapse run` as a process: what signals make of it, and what is left when it is killed.

mod armed;
mod burning;
mod killed;
mod program;
mod programs;
#[path = "../../../relay/tests/deliveries/receiver.rs"]
#[allow(dead_code)] // as that suite needs it
mod receiver;
mod reloaded;
mod secrets;
mod stopped;

use self::program::Scene;
use self::receiver::{Heard, Receiver, Then};
