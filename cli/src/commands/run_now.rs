//! `keylapse run-now`: make a waiting timer due now, or many.

use std::time::Duration;

use keylapse::When;
use keylapse::console::Console;

use crate::args::Targets;
use crate::exit::{Exit, Failed};
use crate::output::Output;

#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(flatten)]
    targets: Targets,
}

pub(crate) async fn run(console: &Console, args: &Args, out: &mut Output) -> Result<Exit, Failed> {
    super::reschedule::to(console, When::In(Duration::ZERO), &args.targets, "due now", out).await
}
