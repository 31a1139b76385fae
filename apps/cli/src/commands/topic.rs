//! Actions upon a topic: `keylapse pause` and `resume`, `partitions`, and its end by `destroy` or `detach`.

use std::time::Duration;

use keylapse::ErrorKind;
use keylapse_console::{Console, KnownTopic, parse_span, show_span};

use crate::exit::{Exit, Failed};
use crate::output::{Output, counted, short};

#[derive(clap::Args, Debug)]
pub(crate) struct PauseArgs {
    /// The topic.
    topic: String,
    /// Why, for whoever finds it paused: up to 200 bytes.
    #[arg(long, value_name = "TEXT")]
    reason: String,
}

#[derive(clap::Args, Debug)]
pub(crate) struct TopicArgs {
    /// The topic.
    topic: String,
}

pub(crate) async fn pause(console: &Console, args: &PauseArgs, out: &mut Output) -> Result<Exit, Failed> {
    let topic = console.topic(&args.topic).await?;
    out.did(topic.pause(&args.reason).await?)
}

pub(crate) async fn resume(console: &Console, args: &TopicArgs, out: &mut Output) -> Result<Exit, Failed> {
    let topic = console.topic(&args.topic).await?;
    out.did(topic.resume().await?)
}

#[derive(clap::Args, Debug)]
pub(crate) struct PartitionsArgs {
    /// The topic.
    topic: String,
    /// How many: 1 to 1,024.
    #[arg(long, value_name = "COUNT")]
    to: u32,
    /// How long attempts that run are waited for.
    #[arg(long, value_name = "SPAN", default_value = "2m", value_parser = parse_span)]
    wait: Duration,
}

pub(crate) async fn partitions(
    console: &Console,
    args: &PartitionsArgs,
    out: &mut Output,
) -> Result<Exit, Failed> {
    let topic = console.topic(&args.topic).await?;
    let name = topic.name();
    if topic.is_attached() {
        return Err(Failed::Usage(format!(
            "{name} is attached, and gets other partitions by being attached anew: stop its listeners, `keylapse detach \
             {name}`, and start its programs with `.partitions({})`; they find its keys by a scan",
            args.to
        )));
    }
    match topic.repartition(args.to, args.wait).await {
        Err(error) if error.kind() == ErrorKind::InUse => {
            let waited = show_span(args.wait);
            Err(Failed::Findings(format!(
                "attempts of {name} still run after {waited}: let them end, or say a longer --wait; \
                 `keylapse ls {name} --state running` lists them"
            )))
        }
        done => out.did(done?),
    }
}

#[derive(clap::Args, Debug)]
pub(crate) struct DestroyArgs {
    /// The topic.
    topic: String,
    /// Whoever listens, and whatever is armed.
    #[arg(long)]
    force: bool,
    /// The topic's name once more, in place of being asked for it.
    #[arg(long, value_name = "TOPIC")]
    confirm: Option<String>,
}

pub(crate) async fn destroy(console: &Console, args: &DestroyArgs, out: &mut Output) -> Result<Exit, Failed> {
    let topic = console.topic(&args.topic).await?;
    let held = topic.overview().await?;
    let typed = match &args.confirm {
        Some(name) => name.clone(),
        None if Output::can_ask() => {
            let (timers, dead) = (counted(held.timers, "timer"), counted(held.dead, "dead letter"));
            let enrolled = counted(held.enrolled, "enrolled key");
            out.note(format!("{timers}, {dead} and {enrolled} will be gone for good."));
            out.ask("Type the topic's name to go on:")?
        }
        None => return Err(Failed::Usage(format!("nobody can be asked: say --confirm {}", topic.name()))),
    };
    if typed != topic.name() {
        return Err(Failed::Findings("that is not its name: nothing was done".to_owned()));
    }
    match topic.destroy(args.force).await {
        Err(error) if error.kind() == ErrorKind::InUse => Err(in_use(console, &topic, End::Destroyed).await?),
        gone => out.did(gone?),
    }
}

pub(crate) async fn detach(console: &Console, args: &TopicArgs, out: &mut Output) -> Result<Exit, Failed> {
    let topic = console.topic(&args.topic).await?;
    let name = topic.name();
    if !topic.is_attached() {
        let advice = format!("{name} is no attached topic: `keylapse destroy {name}` removes it");
        return Err(Failed::Usage(advice));
    }
    match topic.detach().await {
        Err(error) if error.kind() == ErrorKind::InUse => Err(in_use(console, &topic, End::Detached).await?),
        gone => out.did(gone?),
    }
}

/// What is done to a topic once nothing is in the way.
#[derive(Clone, Copy)]
enum End {
    Destroyed,
    Detached,
}

/// Who serves it, or what it holds, where the library has said that it is in use.
async fn in_use(console: &Console, topic: &KnownTopic, end: End) -> Result<Failed, Failed> {
    let name = topic.name();
    let otherwise = match end {
        End::Destroyed => "or say --force".to_owned(),
        End::Detached => {
            format!("replay or drop letters, or remove all by `keylapse destroy {name} --force`")
        }
    };
    let listeners = console.listeners().await?;
    if let Some(one) = listeners.iter().find(|listener| listener.serves(name)) {
        let who = format!("{} (process {})", short(&one.host, 40), one.pid);
        return Ok(Failed::Findings(format!(
            "{name} is served by a listener on {who}: stop it, {otherwise}; one that was killed counts for 15 s"
        )));
    }
    let held = topic.overview().await?;
    let more = match end {
        End::Destroyed => (held.enrolled, "enrolled key"),
        End::Detached => (held.dead, "dead letter"),
    };
    let counts = [(held.timers, "timer"), more].into_iter();
    let there: Vec<_> =
        counts.filter(|(count, _)| *count > 0).map(|(count, what)| counted(count, what)).collect();
    let there = if there.is_empty() { "something a moment ago".to_owned() } else { there.join(" and ") };
    Ok(Failed::Findings(format!("{name} holds {there}: let timers end or cancel them, {otherwise}")))
}
