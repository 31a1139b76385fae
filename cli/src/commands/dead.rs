//! `keylapse dead`: replay or drop dead letters.

use keylapse_console::{Action, Console, EntryState, Filter};

use crate::args::{Bulk, Listing};
use crate::commands::bulk::{self, Work};
use crate::exit::{Exit, Failed};
use crate::output::Output;

#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand, Debug)]
enum What {
    /// Arm their timers again, for now. Their attempts start over; a key that has a timer is left alone.
    Replay(Replay),
    /// Forget them.
    Drop(Drop),
}

#[derive(clap::Args, Debug)]
struct Replay {
    #[command(flatten)]
    letters: Listing,
    /// As new armings with ids of their own: for what is to be done once more although it may have been done.
    #[arg(long)]
    as_new: bool,
    #[command(flatten)]
    bulk: Bulk,
}

#[derive(clap::Args, Debug)]
struct Drop {
    #[command(flatten)]
    letters: Listing,
    #[command(flatten)]
    bulk: Bulk,
}

pub(crate) async fn run(console: &Console, args: &Args, out: &mut Output) -> Result<Exit, Failed> {
    let (letters, args, action, will_be) = match &args.what {
        What::Replay(Replay { letters, bulk, as_new: false }) => (letters, bulk, Action::Replay, "replayed"),
        What::Replay(Replay { letters, bulk, as_new: true }) => {
            (letters, bulk, Action::ReplayAsNew, "replayed as new armings")
        }
        What::Drop(Drop { letters, bulk }) => (letters, bulk, Action::Drop, "dropped"),
    };
    let filter = Filter::parse(&letters.filters)?;
    let topic = console.topic(&letters.topic).await?;
    let (state, after) = (EntryState::Dead, letters.after.clone());
    bulk::run(&Work { topic: &topic, action, state, filter, after, will_be }, args, out).await
}
