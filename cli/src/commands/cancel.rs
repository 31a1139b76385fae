//! `keylapse cancel`: withdraw a timer, or many.

use keylapse_console::{Action, Became, Console};

use crate::args::Targets;
use crate::commands::target::Target;
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
            let became = Became::of_cancel(one.topic.cancel(&one.key).await?);
            one.say(became, became.says, out)
        }
    }
}
