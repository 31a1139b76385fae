//! `keylapse status`: shows the state of topics. `keylapse topics`: lists them.

use keylapse_console::format::{brief, percent};
use keylapse_console::{AttemptSummary, Console, Registry, Status, TopicState};

use crate::exit::{CliError, Exit};
use crate::output::{Column, Output, Table, count, counted, lateness, or_none, short};

#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Show these topics; all by default.
    #[arg(value_name = "TOPIC")]
    topics: Vec<String>,
    /// Show at most this many topics, by name.
    #[arg(long, value_name = "COUNT", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
    limit: u64,
}

pub(crate) async fn run(console: &Console, args: &Args, out: &mut Output) -> Result<Exit, CliError> {
    let status = read(console, args).await?;
    if out.is_json() {
        for topic in &status.topics {
            out.line("topic_status", topic)?;
        }
        out.unreadable(&status.unreadable)?;
        for listener in &status.listeners {
            out.line("listener", listener)?;
        }
        for alarm in status.alarms() {
            out.line("alarm", &alarm)?;
        }
        return Ok(Exit::Success);
    }
    if status.topics.is_empty() && status.unreadable.is_empty() {
        let namespace = console.namespace();
        out.print_line(format!(
            "No topic is registered in namespace {namespace}: programs register theirs when they first use them."
        ))?;
        return Ok(Exit::Success);
    }
    out.table(&table(&status))?;
    for alarm in status.alarms() {
        out.print_line(format!("! {}", short(&alarm.to_string(), 600)))?;
    }
    if status.more_topics > 0 {
        let more = counted(status.more_topics, "more topic");
        out.print_line(format!("… and {more}: raise --limit, or name the topics to show"))?;
    }
    out.print_line(counted(status.listeners.len() as u64, "listener"))?;
    Ok(Exit::Success)
}

async fn read(console: &Console, args: &Args) -> Result<Status, CliError> {
    Ok(match args.topics.is_empty() {
        true => console.status(usize::try_from(args.limit).unwrap_or(usize::MAX)).await?,
        false => console.status_named(&args.topics).await?,
    })
}

fn table(status: &Status) -> Table {
    use Column::{Number, Text};
    let mut table = Table::new(&[
        Text("TOPIC"),
        Text("STATE"),
        Number("TIMERS"),
        Number("UNDELIVERED"),
        Number("OLDEST"),
        Number("OVERDUE"),
        Number("DUE 1M"),
        Number("DUE 1H"),
        Number("RUNNING"),
        Number("DEAD"),
        Number("TRACKED"),
        Number("LISTENERS"),
        Number("FAILING 5M"),
        Number("FAILING 1H"),
        Number("LATE P99 5M"),
    ]);
    for topic in &status.topics {
        let held = &topic.overview;
        let oldest = or_none((held.undelivered > 0).then(|| brief(held.oldest_undelivered_ms)));
        let failing =
            |of: &Option<AttemptSummary>| or_none(of.as_ref().and_then(AttemptSummary::failing).map(percent));
        let enrolled = or_none(topic.topic.is_attached().then(|| count(held.tracked)));
        table.row([
            short(topic.topic.name(), 60),
            topic.state().as_str().to_owned(),
            count(held.timers),
            count(held.undelivered),
            oldest,
            count(held.overdue),
            count(held.due_in_1m),
            count(held.due_in_1h),
            format!("{}/{}", topic.running, topic.limit),
            count(held.dead),
            enrolled,
            topic.listeners.to_string(),
            failing(&topic.last_5m),
            failing(&topic.last_1h),
            or_none(topic.last_5m.as_ref().and_then(|last| last.late_p99_us).map(lateness)),
        ]);
    }
    for topic in &status.unreadable {
        let known = [short(&topic.name, 60), TopicState::Unreadable.as_str().to_owned()];
        table.row(known.into_iter().chain(std::iter::repeat_n("-".to_owned(), 13)));
    }
    table
}

pub(crate) async fn topics(console: &Console, out: &mut Output) -> Result<Exit, CliError> {
    use Column::{Number, Text};
    let Registry { topics, unreadable, .. } = console.registry().await?;
    if out.is_json() {
        for topic in &topics {
            out.line("topic", topic)?;
        }
        out.unreadable(&unreadable)?;
    } else if !topics.is_empty() || !unreadable.is_empty() {
        let mut table = Table::new(&[Text("TOPIC"), Text("KIND"), Number("PARTITIONS"), Text("PATTERN")]);
        for topic in &topics {
            let kind = if topic.is_attached() { "attached" } else { "managed" };
            let pattern = short(topic.pattern(), 200);
            table.row([topic.name().to_owned(), kind.to_owned(), topic.partitions().to_string(), pattern]);
        }
        for topic in &unreadable {
            table.row([short(&topic.name, 60), "unreadable".to_owned(), "-".to_owned(), "-".to_owned()]);
        }
        out.table(&table)?;
        out.unreadable(&unreadable)?;
    }
    match topics.is_empty() && unreadable.is_empty() {
        true => Err(CliError::no_topics(console.namespace())),
        false => Ok(Exit::Success),
    }
}
