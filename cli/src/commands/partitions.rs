//! `keylapse partitions`: give a topic another number of partitions.

use std::time::Duration;

use keylapse::ErrorKind;
use keylapse_console::{Console, parse_span, show_span};

use crate::commands::did::say_of_topic;
use crate::exit::{Exit, Failed};
use crate::output::{Output, counted};

#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// The topic.
    topic: String,
    /// How many: 1 to 1,024.
    #[arg(long, value_name = "COUNT")]
    to: u32,
    /// How long attempts that run are waited for.
    #[arg(long, value_name = "SPAN", default_value = "2m", value_parser = parse_span)]
    wait: Duration,
}

pub(crate) async fn run(console: &Console, args: &Args, out: &mut Output) -> Result<Exit, Failed> {
    let topic = console.topic(&args.topic).await?;
    let name = topic.name();
    if topic.is_attached() {
        return Err(Failed::Usage(format!(
            "{name} is attached, and gets other partitions by being attached anew: stop its listeners, `keylapse detach \
             {name}`, and start its programs with `.partitions({})`; they find its keys by a scan",
            args.to
        )));
    }
    let done = match topic.repartition(args.to, args.wait).await {
        Err(error) if error.kind() == ErrorKind::InUse => {
            let waited = show_span(args.wait);
            return Err(Failed::Findings(format!(
                "attempts of {name} still run after {waited}: let them end, or say a longer --wait; \
                 `keylapse ls {name} --state running` lists them"
            )));
        }
        done => done?,
    };
    let (timers, letters) = (counted(done.timers, "timer"), counted(done.dead_letters, "letter"));
    let says = format!(
        "{}, before {}; {timers} and {letters} moved; nothing could be armed for {}. Start all \
         programs of the topic with `.partitions({})` now",
        counted(done.to.into(), "partition"),
        done.from,
        show_span(done.closed_for),
        done.to
    );
    say_of_topic(&topic, "repartitioned", &says, out)
}
