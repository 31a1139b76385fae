//! Runs keylapse and other systems side by side, and says how long each took.
//!
//! `make bench` and `make bench-quick` call it; `bench/README.md` is what the harness and the systems agree on. The way of
//! a figure: a [`Case`] of a [`plan`] is run by [`rounds`] on each [`System`], each time on a [`Server`] of its own
//! ([`measures`]); the [`Spread`] of the rounds is printed ([`table`]), kept ([`records`]), drawn ([`plots`]) and, of the
//! most important ones, said in a [`last_line`].

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

pub use busy::{Busy, Watch, beside};
pub use case::{Case, Who};
pub use last_line::last_line;
pub use machine::Machine;
pub use results::Measured;
pub use server::{Server, info};
pub use statistics::{Spread, figure};
pub use system::{Described, OURS, Run, System};

/// A variable of a program's environment, and its value.
pub type Variable = (String, String);

/// What went wrong, in words.
pub type Fault = Box<dyn std::error::Error + Send + Sync>;
