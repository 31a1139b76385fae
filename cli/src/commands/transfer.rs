//! `keylapse export` and `keylapse import`: lines of JSON, which docs/operate.md describes.

use std::collections::BTreeMap;

use keylapse_console::{Console, EntryState, Export, ImportReport, KnownTopic};

use crate::commands::lines::{self, Line};
use crate::exit::{Exit, Failed};
use crate::output::{Output, Progress, count};

/// Lines that are installed at a time.
const BATCH: usize = 500;
/// Bytes of one line, at most: a payload of 8 MiB, each byte as four.
const LONGEST: usize = 40 << 20;

#[derive(clap::Args, Debug)]
pub(crate) struct ExportArgs {
    /// The topic.
    topic: String,
    /// Its dead letters, in place of its timers.
    #[arg(long)]
    dead: bool,
}

pub(crate) async fn export(console: &Console, args: &ExportArgs, out: &mut Output) -> Result<Exit, Failed> {
    let topic = console.topic(&args.topic).await?;
    let states: &[EntryState] = if args.dead {
        &[EntryState::Dead]
    } else {
        &[EntryState::Waiting, EntryState::Running, EntryState::Quarantined]
    };
    let (mut written, mut left_out) = (0, 0);
    let mut progress = Progress::beside_output("written");
    for state in states {
        let mut cursor = None;
        loop {
            let (lines, unreadable, next) = topic.export(*state, cursor.as_ref()).await?;
            for line in &lines {
                // They say their version and type themselves.
                let line = serde_json::to_string(line);
                out.say(line.map_err(|error| Failed::Findings(error.to_string()))?)?;
            }
            written += lines.len() as u64;
            progress.at(written);
            left_out += unreadable;
            cursor = next;
            if cursor.is_none() {
                break;
            }
        }
    }
    progress.end();
    out.note(format!("written={written} unreadable={left_out}"));
    Ok(if written == 0 || left_out > 0 { Exit::Findings } else { Exit::Fine })
}

pub(crate) async fn import(console: &Console, out: &mut Output) -> Result<Exit, Failed> {
    let (mut topics, mut batch, mut batch_bytes) = (BTreeMap::new(), Vec::new(), 0);
    let (mut report, mut number) = (ImportReport::default(), 0_u64);
    let mut progress = Progress::new("read", None);
    let (mut input, mut line, mut too_long) = (std::io::stdin().lock(), Vec::new(), 0);
    loop {
        let read_line = lines::next(&mut input, &mut line, LONGEST)?;
        number += u64::from(read_line != Line::End);
        match read_line {
            Line::End => break,
            Line::TooLong => {
                out.note(format!("line {number} is longer than 40 MiB: it is skipped"));
                too_long += 1;
                continue;
            }
            Line::Whole if line.trim_ascii().is_empty() => continue,
            Line::Whole => {}
        }
        batch_bytes += line.len();
        batch.push(read(&line, number)?);
        if batch.len() >= BATCH || batch_bytes > LONGEST {
            report = install(console, &mut topics, std::mem::take(&mut batch), report).await?;
            batch_bytes = 0;
            progress.at(number);
        }
    }
    report = install(console, &mut topics, batch, report).await?;
    progress.end();
    if too_long > 0 {
        report.skipped += too_long;
        report.outcomes.insert("too long", too_long);
    }
    if out.is_json() {
        out.line("imported", &report)?;
    } else {
        for (outcome, lines) in &report.outcomes {
            out.say(format!("{outcome}: {}", count(*lines)))?;
        }
        out.say(format!("imported={} skipped={}", report.imported, report.skipped))?;
    }
    Ok(if number == 0 || too_long > 0 { Exit::Findings } else { Exit::Fine })
}

fn read(line: &[u8], number: u64) -> Result<Export, Failed> {
    serde_json::from_slice(line).map_err(|error| {
        Failed::Usage(format!("line {number}: {error}; the lines before it may be installed"))
    })
}

async fn install(
    console: &Console,
    topics: &mut BTreeMap<String, KnownTopic>,
    lines: Vec<Export>,
    mut report: ImportReport,
) -> Result<ImportReport, Failed> {
    let mut by_topic = BTreeMap::<String, Vec<Export>>::new();
    lines.into_iter().for_each(|line| by_topic.entry(line.topic.clone()).or_default().push(line));
    for (name, lines) in by_topic {
        if !topics.contains_key(&name) {
            topics.insert(name.clone(), console.topic(&name).await?);
        }
        report = report.and(&topics[&name].import(&lines).await?);
    }
    Ok(report)
}
