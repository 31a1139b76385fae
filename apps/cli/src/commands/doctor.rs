//! `keylapse doctor`: prints the findings about the servers.

use std::io::{self, Write};
use std::time::Duration;

use keylapse_console::doctor::{Diagnosis, Finding, Lateness, Severity};
use keylapse_console::{Console, parse_span};
use serde::Serialize;

use crate::exit::{CliError, Exit};
use crate::output::Output;

/// The options of `keylapse doctor`.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Measure for this span how late the server announces expired keys.
    ///
    /// The measurement writes some hundred keys of keylapse's own.
    #[arg(long, value_name = "SPAN", value_parser = parse_span)]
    measure: Option<Duration>,
    /// Treat warnings as errors.
    #[arg(long)]
    strict: bool,
}

pub(crate) async fn run(console: &Console, args: &Args, out: &mut Output) -> Result<Exit, CliError> {
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
        0 if args.strict && diagnosis.warnings() > 0 => Exit::ProblemsFound,
        0 => Exit::Success,
        _ if !diagnosis.findings.iter().any(|finding| finding.code == ANSWERS) => Exit::Unreachable,
        _ => Exit::ProblemsFound,
    })
}

/// The code of the finding that a server answers.
const ANSWERS: &str = "K100";

/// The summary, which is the last line of JSON.
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

/// Writes the findings by server, each problem with its meaning and its fix, and then the summary. The stream is one of
/// `anstream`, which removes colours that the output does not support.
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

/// Writes a finding in one line, and its meaning and fix in two more if it is a problem.
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
