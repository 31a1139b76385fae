//! `keylapse cancel`: withdraw a timer, or many.

use keylapse::Cancelled;
use keylapse::console::{Action, Console};

use crate::args::Targets;
use crate::commands::target::{One, Target};
use crate::exit::{Exit, Failed};
use crate::output::Output;

#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(flatten)]
    targets: Targets,
}

pub(crate) async fn run(console: &Console, args: &Args, out: &mut Output) -> Result<Exit, Failed> {
    match args.targets.read(console, Action::Cancel, "cancelled").await? {
        Target::Many(work) => work.run(&args.targets.bulk, out).await,
        Target::One(one) => {
            let (did, says) = match one.topic.cancel(&one.key).await? {
                Cancelled::NotArmed => (false, "not armed: there is no timer of this key"),
                Cancelled::Cancelled => (true, "cancelled: it will not run"),
                Cancelled::Claimed => {
                    (true, "cancelled: a listener had taken it ahead of its deadline and is told")
                }
                _ => (true, "cancelled: an attempt was running, is told to stop, and can settle nothing"),
            };
            say(&one, "cancelled", did, says, out)
        }
    }
}

/// Says what became of one timer.
pub(super) fn say(
    one: &One,
    did: &str,
    was_done: bool,
    says: &str,
    out: &mut Output,
) -> Result<Exit, Failed> {
    one.say(if was_done { did } else { "unchanged" }, says, out)?;
    Ok(if was_done { Exit::Fine } else { Exit::Findings })
}
