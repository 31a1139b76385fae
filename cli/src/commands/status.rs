//! `keylapse status`: how all topics are.

use keylapse::console::{Console, Status, TopicStanding, TopicStatus};

use crate::exit::{Exit, Failed};
use crate::output::{Column, Output, Table, count, counted, lateness, short, span, stalled};

#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Topics to show, in place of all.
    #[arg(value_name = "TOPIC")]
    topics: Vec<String>,
    /// How many topics to show at most, by name.
    #[arg(long, value_name = "COUNT", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
    limit: u64,
}

pub(crate) async fn run(console: &Console, args: &Args, out: &mut Output) -> Result<Exit, Failed> {
    let status = read(console, args).await?;
    if out.is_json() {
        for topic in &status.topics {
            out.line("topic_status", topic)?;
        }
        out.unreadable(&status.unreadable)?;
        for listener in &status.listeners {
            out.line("listener", listener)?;
        }
        return Ok(Exit::Fine);
    }
    if status.topics.is_empty() && status.unreadable.is_empty() {
        let namespace = console.namespace();
        out.say(format!(
            "No topic is registered in namespace {namespace}: programs register theirs when they first use them."
        ))?;
        return Ok(Exit::Fine);
    }
    out.table(&table(&status))?;
    for topic in &status.topics {
        for alarm in alarms(topic) {
            out.say(format!("! {}: {alarm}", topic.topic.name()))?;
        }
    }
    out.unreadable(&status.unreadable)?;
    if status.more_topics > 0 {
        let more = counted(status.more_topics, "more topic");
        out.say(format!("… and {more}: --limit shows more, or name those that you want"))?;
    }
    for listener in &status.listeners {
        if let Some(ms) = listener.handlers_stalled_ms {
            let (host, pid) = (short(&listener.host, 60), listener.pid);
            out.say(format!("! {host} (process {pid}): {}", stalled(ms)))?;
        }
    }
    out.say(counted(status.listeners.len() as u64, "listener"))?;
    Ok(Exit::Fine)
}

async fn read(console: &Console, args: &Args) -> Result<Status, Failed> {
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
        Number("OVERDUE"),
        Number("OLDEST"),
        Number("DUE 1M"),
        Number("DUE 1H"),
        Number("RUNNING"),
        Number("DEAD"),
        Number("ENROLLED"),
        Number("LISTENERS"),
        Number("FAILING"),
        Number("LATE P99"),
    ]);
    for topic in &status.topics {
        let held = &topic.overview;
        let oldest = if held.overdue > 0 { span(held.oldest_overdue_ms) } else { "-".to_owned() };
        let enrolled = if topic.topic.is_attached() { count(held.enrolled) } else { "-".to_owned() };
        let failing =
            topic.failing().map_or_else(|| "-".to_owned(), |share| format!("{:.1} %", share * 100.0));
        table.row([
            short(topic.topic.name(), 60),
            topic.standing().as_str().to_owned(),
            count(held.timers),
            count(held.overdue),
            oldest,
            count(held.due_in_1m),
            count(held.due_in_1h),
            format!("{}/{}", topic.running, topic.limit),
            count(held.dead),
            enrolled,
            topic.listeners.to_string(),
            failing,
            topic.late_p99_us.map_or_else(|| "-".to_owned(), lateness),
        ]);
    }
    for topic in &status.unreadable {
        let known = [short(&topic.name, 60), TopicStanding::Unreadable.as_str().to_owned()];
        table.row(known.into_iter().chain(std::iter::repeat_n("-".to_owned(), 11)));
    }
    table
}

/// What somebody has to look at.
fn alarms(topic: &TopicStatus) -> Vec<String> {
    let held = &topic.overview;
    let mut alarms = Vec::new();
    alarms.extend(topic.problem.as_ref().map(|problem| short(problem, 300)));
    alarms.extend(held.closed.as_ref().map(|closed| format!("closed: {}", short(closed, 60))));
    alarms.extend(held.paused.as_ref().map(|reason| format!("paused: {}", short(reason, 200))));
    if topic.is_unserved() {
        alarms.push("no listener serves it".to_owned());
    }
    alarms
}
