//! What goes wrong: the kinds of faults, and the seeded plan of a run.
//!
//! There are three lanes, side by side: the server's, the processes' and the lines'. In a lane one fault
//! follows the other; those of different lanes overlap, which is where the worst of them meet.

mod catalogue;
mod line;
mod plan;
mod process;
mod server;

pub use catalogue::catalogue;
pub use line::{Interruption, LineFault};
pub(crate) use plan::lane;
pub use plan::{Plan, Planned};
pub use process::ProcessFault;
pub use server::ServerFault;
