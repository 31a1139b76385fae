//! `keylapse topics`: which there are.

use keylapse::console::Console;

use crate::exit::{Exit, Failed};
use crate::output::{Column, Output, Table, short};

pub(crate) async fn run(console: &Console, out: &mut Output) -> Result<Exit, Failed> {
    use Column::{Number, Text};
    let topics = console.topics().await?;
    if out.is_json() {
        for topic in &topics {
            out.line("topic", topic)?;
        }
    } else if !topics.is_empty() {
        let mut table = Table::new(&[Text("TOPIC"), Text("KIND"), Number("PARTITIONS"), Text("PATTERN")]);
        for topic in &topics {
            let kind = if topic.is_attached() { "attached" } else { "managed" };
            let pattern = short(topic.pattern(), 200);
            table.row([topic.name().to_owned(), kind.to_owned(), topic.partitions().to_string(), pattern]);
        }
        out.table(&table)?;
    }
    match topics.is_empty() {
        true => Err(Failed::no_topics(console.namespace())),
        false => Ok(Exit::Fine),
    }
}
