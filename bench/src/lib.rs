//! Runs keylapse and other systems side by side, and prints how long each took.
//!
//! `make bench` and `make bench-quick` run it. `bench/README.md` has the protocol between the harness and the systems.
//! [`rounds`] runs each [`Case`] of a [`plan`] on each [`System`], each time on a new [`Server`] ([`measures`]). The
//! [`Spread`] of the rounds is printed ([`table`]), recorded ([`records`]) and drawn ([`plots`]). A [`last_line`] has the
//! most important figures.

mod busy;
mod case;
mod last_line;
mod machine;
pub mod measures;
pub mod plan;
pub mod plots;
pub mod records;
mod results;
pub mod rounds;
pub mod scale;
mod server;
mod size;
mod statistics;
mod system;
pub mod table;

pub use busy::{Busy, Watch, conditions};
pub use case::{Case, Who};
pub use last_line::last_line;
pub use machine::Machine;
pub use results::Measured;
pub use server::{Server, info};
pub use statistics::{Spread, figure};
pub use system::{Described, OURS, Run, System};

/// A variable of a program's environment, and its value.
pub type Variable = (String, String);

/// An error with a message.
pub type Fault = Box<dyn std::error::Error + Send + Sync>;
