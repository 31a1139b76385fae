//! `keylapse topics`: which there are.

use keylapse_console::{Console, Registry};

use crate::exit::{Exit, Failed};
use crate::output::{Column, Output, Table, short};

pub(crate) async fn run(console: &Console, out: &mut Output) -> Result<Exit, Failed> {
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
        true => Err(Failed::no_topics(console.namespace())),
        false => Ok(Exit::Fine),
    }
}
