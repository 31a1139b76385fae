//! `keylapse export` and `keylapse import`: lines of JSON, which docs/operate.md describes.

use std::collections::BTreeMap;
use std::io::{self, BufRead, Read};

use keylapse_console::{Console, EntryState, Export, ImportReport, KnownTopic};

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
    let (mut input, mut line, mut too_long) = (io::stdin().lock(), Vec::new(), 0);
    loop {
        let read_line = next_line(&mut input, &mut line, LONGEST)?;
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

/// What was read.
#[derive(Debug, PartialEq, Eq)]
enum Line {
    /// A line, without its end.
    Whole,
    /// One that is too long, and was passed over.
    TooLong,
    /// There are no more.
    End,
}

/// Reads the next line into the place of the last one.
fn next_line(input: &mut impl BufRead, line: &mut Vec<u8>, longest: usize) -> io::Result<Line> {
    line.clear();
    // One more for its end.
    let read = input.by_ref().take(longest as u64 + 1).read_until(b'\n', line)?;
    if read == 0 {
        return Ok(Line::End);
    }
    if line.last() == Some(&b'\n') {
        line.pop();
    } else if read > longest {
        *line = Vec::new();
        input.skip_until(b'\n')?;
        return Ok(Line::TooLong);
    }
    Ok(Line::Whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &[u8]) -> Vec<Result<String, Line>> {
        let (mut input, mut line, mut found) =
            (io::BufReader::with_capacity(3, text), Vec::new(), Vec::new());
        loop {
            match next_line(&mut input, &mut line, 5).unwrap() {
                Line::Whole => found.push(Ok(String::from_utf8(line.clone()).unwrap())),
                Line::TooLong => found.push(Err(Line::TooLong)),
                Line::End => return found,
            }
        }
    }

    #[test]
    fn lines_are_read_up_to_the_bound_and_longer_ones_passed_over() {
        let long = || Err(Line::TooLong);
        let line = |text: &str| Ok(text.to_owned());
        assert_eq!(all(b""), []);
        assert_eq!(all(b"\na\n\n"), [line(""), line("a"), line("")]);
        assert_eq!(all(b"12345\n123456\n12"), [line("12345"), long(), line("12")]);
        assert_eq!(all(b"12345"), [line("12345")]);
        assert_eq!(all(b"123456"), [long()]);
        assert_eq!(all(b"1234567890123\n1"), [long(), line("1")]);
    }

    #[test]
    fn what_has_no_end_takes_no_memory() {
        let mut input = io::BufReader::new(io::repeat(b'x').take(1 << 28));
        let mut line = Vec::new();
        assert_eq!(next_line(&mut input, &mut line, 1000).unwrap(), Line::TooLong);
        assert_eq!((line.capacity(), next_line(&mut input, &mut line, 1000).unwrap()), (0, Line::End));
    }
}
