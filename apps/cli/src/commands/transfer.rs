//! `keylapse export` and `keylapse import`: lines of JSON, which docs/json-lines.md describes.

use std::collections::BTreeMap;
use std::io::{self, BufRead, Read};

use keylapse_console::{Console, EntryState, Export, ImportReport, TopicHandle};

use crate::exit::{CliError, Exit};
use crate::output::{Output, ProgressLine, count};

/// Lines that are imported in one call.
const BATCH: usize = 500;
/// The most bytes of a line: a payload of 8 MiB, with four for each of its bytes.
const LONGEST: usize = 40 << 20;

#[derive(clap::Args, Debug)]
pub(crate) struct ExportArgs {
    /// The name of the topic.
    topic: String,
    /// Export dead letters instead of timers.
    #[arg(long)]
    dead: bool,
}

pub(crate) async fn export(console: &Console, args: &ExportArgs, out: &mut Output) -> Result<Exit, CliError> {
    let topic = console.topic(&args.topic).await?;
    let states: &[EntryState] = if args.dead {
        &[EntryState::Dead]
    } else {
        &[EntryState::Waiting, EntryState::Running, EntryState::Quarantined]
    };
    let (mut written, mut left_out) = (0, 0);
    let mut progress = ProgressLine::beside_output("written");
    for state in states {
        let mut cursor = None;
        loop {
            let (lines, unreadable, next) = topic.export(*state, cursor.as_ref()).await?;
            for line in &lines {
                // These lines have their own version and type.
                let line = serde_json::to_string(line);
                out.print_line(line.map_err(|error| CliError::Findings(error.to_string()))?)?;
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
    Ok(if written == 0 || left_out > 0 { Exit::ProblemsFound } else { Exit::Success })
}

pub(crate) async fn import(console: &Console, out: &mut Output) -> Result<Exit, CliError> {
    let (mut topics, mut batch, mut batch_bytes) = (BTreeMap::new(), Vec::new(), 0);
    let (mut report, mut number) = (ImportReport::default(), 0_u64);
    let mut progress = ProgressLine::new("read", None);
    let (mut input, mut line, mut too_long) = (io::stdin().lock(), Vec::new(), 0);
    loop {
        let read_line = next_line(&mut input, &mut line, LONGEST)?;
        number += u64::from(read_line != LineRead::End);
        match read_line {
            LineRead::End => break,
            LineRead::TooLong => {
                out.note(format!("line {number} is longer than 40 MiB: it is skipped"));
                too_long += 1;
                continue;
            }
            LineRead::Whole if line.trim_ascii().is_empty() => continue,
            LineRead::Whole => {}
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
            out.print_line(format!("{outcome}: {}", count(*lines)))?;
        }
        out.print_line(format!("imported={} skipped={}", report.imported, report.skipped))?;
    }
    Ok(if number == 0 || too_long > 0 { Exit::ProblemsFound } else { Exit::Success })
}

fn read(line: &[u8], number: u64) -> Result<Export, CliError> {
    serde_json::from_slice(line).map_err(|error| {
        CliError::Usage(format!("line {number}: {error}; the lines before it may be imported"))
    })
}

async fn install(
    console: &Console,
    topics: &mut BTreeMap<String, TopicHandle>,
    lines: Vec<Export>,
    mut report: ImportReport,
) -> Result<ImportReport, CliError> {
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

/// The result of reading a line.
#[derive(Debug, PartialEq, Eq)]
enum LineRead {
    /// A line, without its end.
    Whole,
    /// A line that is too long, and was skipped.
    TooLong,
    /// The input has ended.
    End,
}

/// Reads the next line into `line`, which is cleared first.
fn next_line(input: &mut impl BufRead, line: &mut Vec<u8>, longest: usize) -> io::Result<LineRead> {
    line.clear();
    // One more byte for the newline.
    let read = input.by_ref().take(longest as u64 + 1).read_until(b'\n', line)?;
    if read == 0 {
        return Ok(LineRead::End);
    }
    if line.last() == Some(&b'\n') {
        line.pop();
    } else if read > longest {
        *line = Vec::new();
        input.skip_until(b'\n')?;
        return Ok(LineRead::TooLong);
    }
    Ok(LineRead::Whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &[u8]) -> Vec<Result<String, LineRead>> {
        let (mut input, mut line, mut found) =
            (io::BufReader::with_capacity(3, text), Vec::new(), Vec::new());
        loop {
            match next_line(&mut input, &mut line, 5).unwrap() {
                LineRead::Whole => found.push(Ok(String::from_utf8(line.clone()).unwrap())),
                LineRead::TooLong => found.push(Err(LineRead::TooLong)),
                LineRead::End => return found,
            }
        }
    }

    #[test]
    fn lines_are_read_up_to_the_bound_and_longer_ones_passed_over() {
        let long = || Err(LineRead::TooLong);
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
        assert_eq!(next_line(&mut input, &mut line, 1000).unwrap(), LineRead::TooLong);
        assert_eq!((line.capacity(), next_line(&mut input, &mut line, 1000).unwrap()), (0, LineRead::End));
    }
}
