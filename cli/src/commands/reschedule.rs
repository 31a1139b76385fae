//! `keylapse reschedule`: move a waiting timer, or many.

use keylapse::{Rescheduled, When};
use keylapse_console::{Action, Became, Console};
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
    match args.targets.read(console, Action::Reschedule(args.to), "moved").await? {
        Target::Many(work) => work.run(&args.targets.bulk, out).await,
        Target::One(one) => {
            let moved = one.topic.reschedule(&one.key, args.to).await?;
            let became = Became::of_move(moved);
            let says = match moved {
                Rescheduled::Rescheduled(at) => format!("due at {}", moment(ms_of(at))),
                _ => became.says.to_owned(),
            };
            one.say(became, &says, out)
        }
    }
}
