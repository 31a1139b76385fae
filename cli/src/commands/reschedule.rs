//! `keylapse reschedule`: move a waiting timer, or many.

use keylapse::console::{Action, Became, Console};
use keylapse::{Rescheduled, When};
use keylapse_web::parse_when;

use crate::args::Targets;
use crate::commands::target::Target;
use crate::exit::{Exit, Failed};
use crate::output::{Output, moment, ms_of};

#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// After a span from now, such as 15m; or at a time, such as 2026-11-25T09:30:00Z.
    #[arg(long, value_name = "WHEN", value_parser = parse_when)]
    to: When,
    #[command(flatten)]
    targets: Targets,
}

pub(crate) async fn run(console: &Console, args: &Args, out: &mut Output) -> Result<Exit, Failed> {
    to(console, args.to, &args.targets, "moved", out).await
}

/// Moves what is meant to a time.
pub(super) async fn to(
    console: &Console,
    when: When,
    targets: &Targets,
    will_be: &'static str,
    out: &mut Output,
) -> Result<Exit, Failed> {
    match targets.read(console, Action::Reschedule(when), will_be).await? {
        Target::Many(work) => work.run(&targets.bulk, out).await,
        Target::One(one) => match one.topic.reschedule(&one.key, when).await? {
            Rescheduled::Rescheduled(at) => {
                one.say("rescheduled", true, &format!("due at {}", moment(ms_of(at))), out)
            }
            moved => one.say("rescheduled", false, Became::of_move(moved).says, out),
        },
    }
}
