//! `keylapse pause` and `keylapse resume`.

use keylapse_console::{Became, Console};

use crate::commands::did::say_of_topic;
use crate::exit::{Exit, Failed};
use crate::output::Output;

#[derive(clap::Args, Debug)]
pub(crate) struct PauseArgs {
    /// The topic.
    topic: String,
    /// Why, for whoever finds it paused: up to 200 bytes.
    #[arg(long, value_name = "TEXT")]
    reason: String,
}

#[derive(clap::Args, Debug)]
pub(crate) struct ResumeArgs {
    /// The topic.
    topic: String,
}

pub(crate) async fn pause(console: &Console, args: &PauseArgs, out: &mut Output) -> Result<Exit, Failed> {
    let topic = console.topic(&args.topic).await?;
    topic.pause(&args.reason).await?;
    say_of_topic(&topic, Became::PAUSED.code, Became::PAUSED.says, out)
}

pub(crate) async fn resume(console: &Console, args: &ResumeArgs, out: &mut Output) -> Result<Exit, Failed> {
    let topic = console.topic(&args.topic).await?;
    topic.resume().await?;
    say_of_topic(&topic, Became::RESUMED.code, Became::RESUMED.says, out)
}
