//! `keylapse listeners`: lists listeners, their topics, and the events that they receive. `keylapse destinations`: lists the
//! destinations that handlers call.

use keylapse::destinations::Destination;
use keylapse::fleet::ListenerReport;
use keylapse_console::format::brief;
use keylapse_console::{Console, Status};
use serde::Serialize;

use crate::exit::{CliError, Exit};
use crate::output::{Column, Output, Table, count, or_none, short};

pub(crate) async fn run(console: &Console, out: &mut Output) -> Result<Exit, CliError> {
    let listeners = console.reports().await?;
    if out.is_json() {
        for listener in &listeners {
            out.line("listener", listener)?;
        }
    } else {
        out.table(&table(&listeners))?;
    }
    let listens = listeners.iter().any(|listener| !listener.is_silent());
    Ok(if listens { Exit::Success } else { Exit::ProblemsFound })
}

fn table(listeners: &[ListenerReport]) -> Table {
    use Column::{Number, Text};
    let mut table = Table::new(&[
        Text("HOST"),
        Number("PROCESS"),
        Text("VERSION"),
        Number("RUNNING"),
        Text("EVENTS"),
        Text("TOPICS"),
    ]);
    for listener in listeners {
        let silent = listener.is_silent().then(|| format!("no report for {}", brief(listener.age_ms)));
        let hears = listener.nodes.iter().map(|node| match &node.gap {
            Some(gap) => format!("{} {} (may miss events: {gap})", node.node, node.mode),
            None => format!("{} {}", node.node, node.mode),
        });
        let hears = silent.into_iter().chain(hears);
        let topics: Vec<_> = listener.topics.keys().map(String::as_str).collect();
        table.row([
            short(&listener.host, 40),
            listener.pid.to_string(),
            short(&listener.version, 20),
            listener.capacity(),
            short(&hears.collect::<Vec<_>>().join(", "), 160),
            short(&topics.join(" "), 200),
        ]);
    }
    table
}

#[derive(clap::Args, Debug)]
pub(crate) struct DestinationsArgs {
    /// Show the destinations of these topics; all by default.
    #[arg(value_name = "TOPIC")]
    topics: Vec<String>,
    /// Call this destination of the topic now, although it is held back.
    ///
    /// The next reports of the listeners have the result.
    #[arg(long = "try", value_name = "HOST", requires = "topics")]
    try_now: Option<String>,
}

#[derive(Serialize)]
struct DestinationLine<'a> {
    topic: &'a str,
    #[serde(flatten)]
    host: &'a Destination,
}

pub(crate) async fn destinations(
    console: &Console,
    args: &DestinationsArgs,
    out: &mut Output,
) -> Result<Exit, CliError> {
    if let Some(host) = &args.try_now {
        return try_now(console, &args.topics, host, out).await;
    }
    let status = console.status_named(&args.topics).await?;
    let lines = lines(&status);
    if out.is_json() {
        lines.iter().try_for_each(|line| out.line("host", line))?;
    } else if lines.is_empty() {
        out.print_line(
            "No listener reports a destination. Listeners report one within 5 s of the first call.",
        )?;
    } else {
        out.table(&hosts_table(&lines))?;
    }
    Ok(if lines.iter().any(|line| line.host.state.holds_back()) {
        Exit::ProblemsFound
    } else {
        Exit::Success
    })
}

async fn try_now(
    console: &Console,
    topics: &[String],
    host: &str,
    out: &mut Output,
) -> Result<Exit, CliError> {
    let [topic] = topics else {
        return Err(CliError::Usage(
            "--try needs exactly one topic, and a destination as it is listed".to_owned(),
        ));
    };
    let status = console.status_named(topics).await?;
    if !lines(&status).iter().any(|line| line.host.name == host) {
        return Err(CliError::Findings(format!(
            "no listener of {topic} reports the destination {host}: `keylapse destinations` lists them"
        )));
    }
    console.try_now(topic, host).await?;
    out.print_line(format!("asked the listeners of {topic} to call {host} now"))?;
    Ok(Exit::Success)
}

fn lines(status: &Status) -> Vec<DestinationLine<'_>> {
    let of_topic = status.topics.iter().flat_map(|topic| {
        topic.destinations.iter().map(|host| DestinationLine { topic: topic.topic.name(), host })
    });
    of_topic.collect()
}

fn hosts_table(lines: &[DestinationLine<'_>]) -> Table {
    use Column::{Number, Text};
    let mut table = Table::new(&[
        Text("TOPIC"),
        Text("HOST"),
        Text("STATE"),
        Number("FAILURES"),
        Number("TRIED IN"),
        Text("LAST ANSWER"),
        Text("LAST ERROR"),
    ]);
    let shown = |text: &Option<String>| or_none(text.as_ref().map(|text| short(text, 200)));
    for DestinationLine { topic, host } in lines {
        table.row([
            short(topic, 60),
            short(&host.name, 255),
            host.state.as_str().to_owned(),
            count(host.failures.into()),
            or_none(host.retry_in_ms.map(brief)),
            shown(&host.last_answer),
            shown(&host.last_error),
        ]);
    }
    table
}
