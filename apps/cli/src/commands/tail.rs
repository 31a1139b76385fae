//! `keylapse tail`: prints starts and ends of attempts as they happen.

use std::time::Duration;

use keylapse_console::{Console, Missed, TailItem, parse_span, text};
use tokio::time::{Instant, timeout_at};

use crate::exit::{CliError, Exit};
use crate::output::{Output, ago, count, moment, short, span};

#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Print the attempts of these topics; all by default.
    #[arg(value_name = "TOPIC")]
    topics: Vec<String>,
    /// Exit after this many starts and ends.
    #[arg(long, value_name = "COUNT")]
    limit: Option<u64>,
    /// Exit after this span.
    #[arg(long = "for", value_name = "SPAN", value_parser = parse_span)]
    time: Option<Duration>,
}

pub(crate) async fn run(console: &Console, args: &Args, out: &mut Output) -> Result<Exit, CliError> {
    let mut tail = console.tail(&args.topics).await?;
    let ends = Instant::now() + args.time.unwrap_or(Duration::from_secs(365 * 86_400));
    let mut printed = 0;
    while args.limit.is_none_or(|limit| printed < limit) {
        let next = tokio::select! {
            next = timeout_at(ends, tail.next()) => next,
            _ = tokio::signal::ctrl_c() => break,
        };
        let Ok(next) = next else { break };
        let item = match next {
            Some(item) => item,
            // A topic has been given another number of partitions, so the channels are others.
            None => {
                tail = console.tail(&args.topics).await?;
                TailItem::Missed(Missed::Disconnected)
            }
        };
        printed += u64::from(matches!(item, TailItem::Event(_)));
        print(&item, out)?;
        out.flush()?;
    }
    Ok(if printed == 0 { Exit::ProblemsFound } else { Exit::Success })
}

fn print(item: &TailItem, out: &mut Output) -> Result<(), CliError> {
    if out.is_json() {
        return out.line("tail", item);
    }
    match item {
        TailItem::Event(event) => {
            let key = short(&text::escape(&event.key), 100);
            let shown = event.shown(span, |ms| ago(ms, event.at_ms));
            out.print_line(format!("{}  {}  {key}  {shown}", moment(event.at_ms), event.topic))
        }
        TailItem::Missed(Missed::Counted { count: more }) => {
            out.print_line(format!("… {} more were left out", count(*more)))
        }
        _ => out.print_line("… the connection was lost: some attempts were missed"),
    }
}
