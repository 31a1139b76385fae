//! `keylapse why`: why a key's timer has run, will run, or does not run now.

use keylapse_console::words::brief;
use keylapse_console::{Console, Why, text};

use crate::commands::target::{key, no_topic_of};
use crate::exit::{Exit, Failed};
use crate::output::{Output, ago, moment, short};

#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// The key, written as it is shown.
    key: String,
}

pub(crate) async fn run(console: &Console, args: &Args, out: &mut Output) -> Result<Exit, Failed> {
    let key = key(&args.key)?;
    let all = console.why(&key).await?;
    if all.is_empty() {
        return Err(no_topic_of(console, &key).await?);
    }
    for why in &all {
        if out.is_json() {
            out.line("why", why)?;
        } else {
            show(why, out)?;
        }
    }
    let found =
        all.iter().any(|why| why.timer.is_some() || why.enrolled.is_some() || !why.letters.is_empty());
    Ok(if found { Exit::Fine } else { Exit::Findings })
}

fn show(why: &Why, out: &mut Output) -> Result<(), Failed> {
    out.say(format!("{}  (topic {})", text::escape(&why.key), why.topic))?;
    for moment_of in &why.timeline {
        let (at, since) = (moment(moment_of.at_ms), ago(moment_of.at_ms, why.now_ms));
        out.say(format!("  {at}  {since:<14}  {}", short(&moment_of.what, 600)))?;
    }
    if let Some(ms) = why.undelivered_ms {
        out.say(format!("late:     undelivered for {}, by its first deadline", brief(ms)))?;
    }
    out.say(format!("next:     {}", why.next))?;
    for reason in &why.not_now {
        out.say(format!("not now:  {}", short(reason, 300)))?;
    }
    for who in &why.served_by {
        out.say(format!("by:       {}", short(who, 200)))?;
    }
    out.say("")
}
