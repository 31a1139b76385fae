//! Which topic and which key are meant; and `keylapse cancel`, `run-now` and `reschedule`, which act upon one timer or many.

use keylapse::{Rescheduled, When};
use keylapse_console::{Action, Became, Console, Filter, KnownTopic, text};
use keylapse_web::parse_when;

use crate::args::Targets;
use crate::commands::bulk::Work;
use crate::commands::did::Did;
use crate::exit::{Exit, Failed};
use crate::output::{Output, moment, ms_of};

#[derive(clap::Args, Debug)]
pub(crate) struct RescheduleArgs {
    /// After a span from now, such as 15m; or at a time, such as 2026-11-25T09:30:00Z.
    #[arg(long, value_name = "WHEN", value_parser = parse_when)]
    to: When,
    #[command(flatten)]
    targets: Targets,
}

/// Withdraws a timer, or many.
pub(crate) async fn cancel(console: &Console, targets: &Targets, out: &mut Output) -> Result<Exit, Failed> {
    match targets.read(console, Action::Cancel, "cancelled").await? {
        Target::Many(work) => work.run(out).await,
        Target::One(one) => {
            let became = Became::of_cancel(one.topic.cancel(&one.key).await?);
            one.say(became, became.says, out)
        }
    }
}

/// Makes a waiting timer due now, or many.
pub(crate) async fn run_now(console: &Console, targets: &Targets, out: &mut Output) -> Result<Exit, Failed> {
    match targets.read(console, Action::RunNow, "due now").await? {
        Target::Many(work) => work.run(out).await,
        Target::One(one) => {
            let became = Became::of_run_now(one.topic.run_now(&one.key).await?);
            one.say(became, became.says, out)
        }
    }
}

/// Moves a waiting timer, or many.
pub(crate) async fn reschedule(
    console: &Console,
    args: &RescheduleArgs,
    out: &mut Output,
) -> Result<Exit, Failed> {
    match args.targets.read(console, Action::Reschedule(args.to), "moved").await? {
        Target::Many(work) => work.run(out).await,
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

/// The bytes of a key that was written as it is shown.
pub(super) fn key(said: &str) -> Result<Vec<u8>, Failed> {
    Ok(text::unescape(said)?)
}

/// The topic of a key: the one that is named, or the only one whose pattern matches.
pub(super) async fn topic_of(
    console: &Console,
    key: &[u8],
    named: Option<&str>,
) -> Result<KnownTopic, Failed> {
    if let Some(name) = named {
        return Ok(console.topic(name).await?);
    }
    let mut topics = console.topics_of(key).await?;
    match topics.len() {
        1 => Ok(topics.remove(0)),
        0 => Err(no_topic_of(console, key).await?),
        _ => {
            let names: Vec<_> = topics.iter().map(KnownTopic::name).collect();
            let names = names.join(", ");
            Err(Failed::Usage(format!("several topics have such keys: say which by --topic: {names}")))
        }
    }
}

/// Why no topic has such a key.
pub(super) async fn no_topic_of(console: &Console, key: &[u8]) -> Result<Failed, Failed> {
    if console.topics().await?.is_empty() {
        return Ok(Failed::no_topics(console.namespace()));
    }
    Ok(Failed::Findings(format!(
        "no registered topic has a pattern that matches {}: `keylapse topics` lists them",
        text::escape(key)
    )))
}

/// One timer, or many.
enum Target<'a> {
    One(One),
    Many(ManyOf<'a>),
}

/// One timer, by its key.
struct One {
    topic: KnownTopic,
    key: Vec<u8>,
}

/// Many, by what they have in common.
struct ManyOf<'a> {
    topic: KnownTopic,
    targets: &'a Targets,
    action: Action,
    filter: Filter,
    will_be: &'static str,
}

impl One {
    /// Says what became of it.
    fn say(&self, became: Became, says: &str, out: &mut Output) -> Result<Exit, Failed> {
        let (topic, key) = (self.topic.name(), Some(text::escape(&self.key)));
        Did { topic, key, outcome: became.code, says }.say(out)?;
        Ok(if became.was_done { Exit::Fine } else { Exit::Findings })
    }
}

impl ManyOf<'_> {
    async fn run(&self, out: &mut Output) -> Result<Exit, Failed> {
        let work = Work {
            topic: &self.topic,
            action: self.action,
            state: self.targets.state,
            filter: self.filter.clone(),
            after: self.targets.after.clone(),
            will_be: self.will_be,
        };
        super::bulk::run(&work, &self.targets.bulk, out).await
    }
}

impl Targets {
    /// What is meant by it.
    async fn read(
        &self,
        console: &Console,
        action: Action,
        will_be: &'static str,
    ) -> Result<Target<'_>, Failed> {
        if let Some(name) = &self.within {
            let filter = Filter::parse(&self.what)?;
            let topic = console.topic(name).await?;
            return Ok(Target::Many(ManyOf { topic, targets: self, action, filter, will_be }));
        }
        let [said] = &self.what[..] else {
            let advice = "say one key; or --in TOPIC, and conditions such as key:order:*";
            return Err(Failed::Usage(advice.to_owned()));
        };
        let key = key(said)?;
        let topic = topic_of(console, &key, self.topic.as_deref()).await?;
        Ok(Target::One(One { topic, key }))
    }
}
