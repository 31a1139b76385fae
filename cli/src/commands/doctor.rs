//! What the doctor has found, for people.

use std::io::{self, Write};

use keylapse::console::doctor::{Diagnosis, Finding, Severity};

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
