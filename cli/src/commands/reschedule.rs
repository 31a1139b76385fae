//! `keylapse reschedule`: move a waiting timer, or many.

use keylapse::console::{Action, Console};
use keylapse::{Rescheduled, When};

use crate::args::{Targets, parse_when};
use crate::commands::target::{One, Target};
use crate::exit::{Exit, Failed};
use crate::output::{Output, moment};

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
        Target::One(one) => {
            let moved = one.topic.reschedule(&one.key, when).await?;
            say(&one, moved, out)
        }
    }
}

fn say(one: &One, moved: Rescheduled, out: &mut Output) -> Result<Exit, Failed> {
    let says = match moved {
        Rescheduled::Rescheduled(at) => {
            let ms = at.duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_millis();
            format!("due at {}", moment(u64::try_from(ms).unwrap_or_default()))
        }
        Rescheduled::InFlight => "unchanged: an attempt is running".to_owned(),
        _ => "not armed: there is no timer of this key".to_owned(),
    };
    let was_done = matches!(moved, Rescheduled::Rescheduled(_));
    super::cancel::say(one, "rescheduled", was_done, &says, out)
}
