//! What the doctor has found, for people.

use std::io::{self, Write};
use std::time::Duration;

use keylapse_console::doctor::{Diagnosis, Finding, Lateness, Severity};
use keylapse_console::{Console, parse_span};
use serde::Serialize;

use crate::exit::{Exit, Failed};
use crate::output::Output;

/// Looks at the servers and at what is kept there.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Measure for so long how late the server announces expired keys, by some hundred keys of keylapse's own.
    #[arg(long, value_name = "SPAN", value_parser = parse_span)]
    measure: Option<Duration>,
    /// Warnings count as errors.
    #[arg(long)]
    strict: bool,
}

pub(crate) async fn run(console: &Console, args: &Args, out: &mut Output) -> Result<Exit, Failed> {
    let mut request = console.doctor();
    if let Some(time) = args.measure {
        request = request.measure(time);
    }
    let diagnosis = request.await;
    if out.is_json() {
        for finding in &diagnosis.findings {
            out.line("finding", finding)?;
        }
        out.line("diagnosis", &Counted::of(&diagnosis))?;
    } else {
        write_findings(out.stream(), &diagnosis)?;
    }
    out.flush()?;
    Ok(match diagnosis.errors() {
        0 if args.strict && diagnosis.warnings() > 0 => Exit::Findings,
        0 => Exit::Fine,
        _ if !diagnosis.findings.iter().any(|finding| finding.code == ANSWERS) => Exit::Unreachable,
        _ => Exit::Findings,
    })
}

/// The finding that there is a way to a server.
const ANSWERS: &str = "K100";

/// The last line, as JSON.
#[derive(Serialize)]
struct Counted<'a> {
    errors: usize,
    warnings: usize,
    #[serde(flatten)]
    lateness: &'a Lateness,
}

impl<'a> Counted<'a> {
    fn of(diagnosis: &'a Diagnosis) -> Self {
        let Diagnosis { lateness, .. } = diagnosis;
        Self { errors: diagnosis.errors(), warnings: diagnosis.warnings(), lateness }
    }
}

const BOLD: &str = "\x1b[1m";
const RED: &str = "\x1b[1;31m";
const YELLOW: &str = "\x1b[33m";
const GREEN: &str = "\x1b[32m";
const PLAIN: &str = "\x1b[0m";

/// Writes the findings, server by server, what is bad with its meaning and the line that mends it; and the summary, last.
/// It is for one of `anstream`'s streams, which takes the colours out where they are of no use.
pub(crate) fn write_findings(out: &mut impl Write, diagnosis: &Diagnosis) -> io::Result<()> {
    let mut node = None;
    for finding in &diagnosis.findings {
        if node != Some(&finding.node) {
            let gap = if node.is_some() { "\n" } else { "" };
            let name = finding.node.as_deref().unwrap_or("Topics");
            writeln!(out, "{gap}{BOLD}{name}{PLAIN}")?;
            node = Some(&finding.node);
        }
        write_finding(out, finding)?;
    }
    let gap = if node.is_some() { "\n" } else { "" };
    writeln!(out, "{gap}{}", diagnosis.summary())
}

/// One line, and two more where something has to be done.
fn write_finding(out: &mut impl Write, finding: &Finding) -> io::Result<()> {
    let Finding { code, severity, title, observed, meaning, fix, .. } = finding;
    let colour = match severity {
        Severity::Error => RED,
        Severity::Warning => YELLOW,
        _ => GREEN,
    };
    writeln!(out, "  {colour}{severity:<7} {code}{PLAIN}  {title}: {observed}")?;
    if *severity == Severity::Info {
        return Ok(());
    }
    writeln!(out, "                 {meaning}")?;
    match fix {
        Some(fix) => writeln!(out, "                 > {BOLD}{fix}{PLAIN}"),
        None => Ok(()),
    }
}
