//! `keylapse listeners`: who listens, to what, and how well it hears.

use keylapse::ListenerReport;
use keylapse_console::Console;
use keylapse_console::words::brief;

use crate::exit::{Exit, Failed};
use crate::output::{Column, Output, Table, short};

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
