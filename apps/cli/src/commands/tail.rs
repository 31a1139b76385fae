//! `keylapse tail`: starts and ends of attempts, as they happen.

use std::time::Duration;

use keylapse_console::{Console, Missed, Tailed, parse_span, text};
use tokio::time::{Instant, timeout_at};

use crate::exit::{Exit, Failed};
use crate::output::{Output, ago, count, moment, short, span};

#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Topics, in place of all.
    #[arg(value_name = "TOPIC")]
    topics: Vec<String>,
    /// End after so many starts and ends.
    #[arg(long, value_name = "COUNT")]
    limit: Option<u64>,
    /// End after so long.
    #[arg(long = "for", value_name = "SPAN", value_parser = parse_span)]
    time: Option<Duration>,
}

pub(crate) async fn run(console: &Console, args: &Args, out: &mut Output) -> Result<Exit, Failed> {
    let mut tail = console.tail(&args.topics).await?;
    let ends = Instant::now() + args.time.unwrap_or(Duration::from_secs(365 * 86_400));
    let mut heard = 0;
    while args.limit.is_none_or(|limit| heard < limit) {
        let next = tokio::select! {
            next = timeout_at(ends, tail.next()) => next,
            _ = tokio::signal::ctrl_c() => break,
        };
        let Ok(next) = next else { break };
        let told = match next {
            Some(told) => told,
            // A topic has another number of partitions now.
            None => {
                tail = console.tail(&args.topics).await?;
                Tailed::Missed(Missed::Disconnected)
            }
        };
        heard += u64::from(matches!(told, Tailed::Event(_)));
        say(&told, out)?;
        out.flush()?;
    }
    Ok(if heard == 0 { Exit::Findings } else { Exit::Fine })
}

fn say(told: &Tailed, out: &mut Output) -> Result<(), Failed> {
    if out.is_json() {
        return out.line("tail", told);
    }
    match told {
        Tailed::Event(event) => {
            let key = short(&text::escape(&event.key), 100);
            let shown = event.shown(span, |ms| ago(ms, event.at_ms));
            out.say(format!("{}  {}  {key}  {shown}", moment(event.at_ms), event.topic))
        }
        Tailed::Missed(Missed::Counted { count: more }) => {
            out.say(format!("… {} more not told", count(*more)))
        }
        _ => out.say("… the connection was lost: some were missed"),
    }
}
