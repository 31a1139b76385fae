//! Actions on a topic: `keylapse pause`, `resume`, `partitions`, `destroy` and `detach`.

use std::time::Duration;

use keylapse::ErrorKind;
use keylapse_console::{Console, TopicHandle, parse_span, show_span};

use crate::exit::{CliError, Exit};
use crate::output::{Output, counted, short};

#[derive(clap::Args, Debug)]
pub(crate) struct PauseArgs {
    /// The name of the topic.
    topic: String,
    /// State the reason for other operators, in up to 200 bytes.
    #[arg(long, value_name = "TEXT")]
    reason: String,
}

#[derive(clap::Args, Debug)]
pub(crate) struct TopicArgs {
    /// The name of the topic.
    topic: String,
}

pub(crate) async fn pause(console: &Console, args: &PauseArgs, out: &mut Output) -> Result<Exit, CliError> {
    let topic = console.topic(&args.topic).await?;
    out.print_action_result(topic.pause(&args.reason).await?)
}

pub(crate) async fn resume(console: &Console, args: &TopicArgs, out: &mut Output) -> Result<Exit, CliError> {
    let topic = console.topic(&args.topic).await?;
    out.print_action_result(topic.resume().await?)
}

#[derive(clap::Args, Debug)]
pub(crate) struct PartitionsArgs {
    /// The name of the topic.
    topic: String,
    /// Set the number of partitions: 1 to 1,024.
    #[arg(long, value_name = "COUNT")]
    to: u32,
    /// Wait this long for running attempts to end.
    #[arg(long, value_name = "SPAN", default_value = "2m", value_parser = parse_span)]
    wait: Duration,
}

pub(crate) async fn partitions(
    console: &Console,
    args: &PartitionsArgs,
    out: &mut Output,
) -> Result<Exit, CliError> {
    let topic = console.topic(&args.topic).await?;
    let name = topic.name();
    if topic.is_attached() {
        return Err(CliError::Usage(format!(
            "{name} is attached. To change its partitions, stop its listeners, run `keylapse detach {name}`, and start its \
             programs with `.partitions({})`: they find its keys by a scan",
            args.to
        )));
    }
    match topic.repartition(args.to, args.wait).await {
        Err(error) if error.kind() == ErrorKind::InUse => {
            let waited = show_span(args.wait);
            Err(CliError::Findings(format!(
                "attempts of {name} still run after {waited}: let them end, or set a longer --wait; \
                 `keylapse ls {name} --state running` lists them"
            )))
        }
        done => out.print_action_result(done?),
    }
}

#[derive(clap::Args, Debug)]
pub(crate) struct DestroyArgs {
    /// The name of the topic.
    topic: String,
    /// Destroy the topic even if listeners use it or timers are armed. Its timers and dead letters are deleted.
    #[arg(long)]
    force: bool,
    /// Confirm with the name of the topic, instead of typing it.
    #[arg(long, value_name = "TOPIC")]
    confirm: Option<String>,
}

pub(crate) async fn destroy(
    console: &Console,
    args: &DestroyArgs,
    out: &mut Output,
) -> Result<Exit, CliError> {
    let topic = console.topic(&args.topic).await?;
    let held = topic.overview().await?;
    let typed = match &args.confirm {
        Some(name) => name.clone(),
        None if Output::can_ask() => {
            let (timers, dead) = (counted(held.timers, "timer"), counted(held.dead, "dead letter"));
            let enrolled = counted(held.tracked, "tracked key");
            out.note(format!("{timers}, {dead} and {enrolled} will be deleted for good."));
            out.ask("Type the topic's name to continue:")?
        }
        None => {
            return Err(CliError::Usage(format!(
                "confirm with --confirm {}, as standard input is no terminal",
                topic.name()
            )));
        }
    };
    if typed != topic.name() {
        return Err(CliError::Findings("the name is not the topic's: nothing was done".to_owned()));
    }
    match topic.destroy(args.force).await {
        Err(error) if error.kind() == ErrorKind::InUse => {
            Err(in_use(console, &topic, TopicRemoval::Destroyed).await?)
        }
        gone => out.print_action_result(gone?),
    }
}

pub(crate) async fn detach(console: &Console, args: &TopicArgs, out: &mut Output) -> Result<Exit, CliError> {
    let topic = console.topic(&args.topic).await?;
    let name = topic.name();
    if !topic.is_attached() {
        let advice = format!("{name} is not attached: `keylapse destroy {name}` deletes it");
        return Err(CliError::Usage(advice));
    }
    match topic.detach().await {
        Err(error) if error.kind() == ErrorKind::InUse => {
            Err(in_use(console, &topic, TopicRemoval::Detached).await?)
        }
        gone => out.print_action_result(gone?),
    }
}

/// How a topic is removed.
#[derive(Clone, Copy)]
enum TopicRemoval {
    Destroyed,
    Detached,
}

/// Returns the error for a topic that is in use: its listener, or the entries that it holds.
async fn in_use(console: &Console, topic: &TopicHandle, end: TopicRemoval) -> Result<CliError, CliError> {
    let name = topic.name();
    let otherwise = match end {
        TopicRemoval::Destroyed => "or use --force".to_owned(),
        TopicRemoval::Detached => {
            format!("replay or drop dead letters, or delete all with `keylapse destroy {name} --force`")
        }
    };
    let listeners = console.listeners().await?;
    if let Some(one) = listeners.iter().find(|listener| listener.serves(name)) {
        let who = format!("{} (process {})", short(&one.host, 40), one.pid);
        return Ok(CliError::Findings(format!(
            "{name} is served by a listener on {who}: stop it, {otherwise}; one that was killed counts for 15 s"
        )));
    }
    let held = topic.overview().await?;
    let more = match end {
        TopicRemoval::Destroyed => (held.tracked, "tracked key"),
        TopicRemoval::Detached => (held.dead, "dead letter"),
    };
    let counts = [(held.timers, "timer"), more].into_iter();
    let there: Vec<_> =
        counts.filter(|(count, _)| *count > 0).map(|(count, what)| counted(count, what)).collect();
    let there =
        if there.is_empty() { "entries that have just ended".to_owned() } else { there.join(" and ") };
    Ok(CliError::Findings(format!("{name} holds {there}: let timers end or cancel them, {otherwise}")))
}
