//! `keylapse listeners`: who listens, to what, and how well it hears; and `keylapse hosts`: the hosts that listeners call for
//! webhooks, and by which of them work is held back.

use keylapse::destinations::Destination;
use keylapse::fleet::ListenerReport;
use keylapse_console::words::brief;
use keylapse_console::{Console, Status};
use serde::Serialize;

use crate::exit::{Exit, Failed};
use crate::output::{Column, Output, Table, count, or_none, short};

pub(crate) async fn run(console: &Console, out: &mut Output) -> Result<Exit, Failed> {
    let listeners = console.reports().await?;
    if out.is_json() {
        for listener in &listeners {
            out.line("listener", listener)?;
        }
    } else {
        out.table(&table(&listeners))?;
    }
    let listens = listeners.iter().any(|listener| !listener.is_silent());
    Ok(if listens { Exit::Fine } else { Exit::Findings })
}

fn table(listeners: &[ListenerReport]) -> Table {
    use Column::{Number, Text};
    let mut table = Table::new(&[
        Text("HOST"),
        Number("PROCESS"),
        Text("VERSION"),
        Number("RUNNING"),
        Text("HEARS"),
        Text("TOPICS"),
    ]);
    for listener in listeners {
        let silent = listener.is_silent().then(|| format!("no report for {}", brief(listener.age_ms)));
        let hears = listener.nodes.iter().map(|node| match &node.gap {
            Some(gap) => format!("{} {} (may miss something: {gap})", node.node, node.mode),
            None => format!("{} {}", node.node, node.mode),
        });
        let hears = silent.into_iter().chain(hears);
        let topics: Vec<_> = listener.topics.keys().map(String::as_str).collect();
        table.row([
            short(&listener.host, 40),
            listener.pid.to_string(),
            short(&listener.version, 20),
            listener.places(),
            short(&hears.collect::<Vec<_>>().join(", "), 160),
            short(&topics.join(" "), 200),
        ]);
    }
    table
}

#[derive(clap::Args, Debug)]
pub(crate) struct HostsArgs {
    /// Topics to show, in place of all.
    #[arg(value_name = "TOPIC")]
    topics: Vec<String>,
    /// Call this host of one topic now, although it is held back: the next report of its listeners says how that went.
    #[arg(long = "try", value_name = "HOST", requires = "topics")]
    try_now: Option<String>,
}

#[derive(Serialize)]
struct Line<'a> {
    topic: &'a str,
    #[serde(flatten)]
    host: &'a Destination,
}

pub(crate) async fn hosts(console: &Console, args: &HostsArgs, out: &mut Output) -> Result<Exit, Failed> {
    if let Some(host) = &args.try_now {
        return try_now(console, &args.topics, host, out).await;
    }
    let status = console.status_named(&args.topics).await?;
    let lines = lines(&status);
    if out.is_json() {
        lines.iter().try_for_each(|line| out.line("host", line))?;
    } else if lines.is_empty() {
        out.say("No listener reports a host: those do that call webhooks, within five seconds of a call.")?;
    } else {
        out.table(&hosts_table(&lines))?;
    }
    Ok(if lines.iter().any(|line| line.host.state.holds_back()) { Exit::Findings } else { Exit::Fine })
}

async fn try_now(console: &Console, topics: &[String], host: &str, out: &mut Output) -> Result<Exit, Failed> {
    let [topic] = topics else {
        return Err(Failed::Usage("--try takes one topic, and the host as it is listed".to_owned()));
    };
    let status = console.status_named(topics).await?;
    if !lines(&status).iter().any(|line| line.host.name == host) {
        return Err(Failed::Findings(format!(
            "no listener of {topic} reports a host {host}: `keylapse hosts` lists them"
        )));
    }
    console.try_now(topic, host).await?;
    out.say(format!("asked the listeners of {topic} to call {host} now"))?;
    Ok(Exit::Fine)
}

fn lines(status: &Status) -> Vec<Line<'_>> {
    let of_topic = status
        .topics
        .iter()
        .flat_map(|topic| topic.destinations.iter().map(|host| Line { topic: topic.topic.name(), host }));
    of_topic.collect()
}

fn hosts_table(lines: &[Line<'_>]) -> Table {
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
    for Line { topic, host } in lines {
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
