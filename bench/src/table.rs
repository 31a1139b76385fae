//! Tables for people.

use std::fmt::Write;

use crate::{Case, Measured};

/// Returns the table of one case: a line for each system that has the measure, and a line for each failure. Its head has the
/// conditions of the measurement.
pub fn table(case: &Case, all: &[Measured], conditions: &str) -> String {
    let mut out = format!("{case} ({conditions})\n");
    let mut rows = vec![row("system", case.columns.iter().map(|name| (*name).to_owned()))];
    for measured in all.iter().filter(|measured| measured.has_it) {
        let cell = |name: &&str| measured.spread(name).map_or("-".to_owned(), |spread| spread.to_string());
        rows.push(row(&measured.system, case.columns.iter().map(cell)));
    }
    let widths: Vec<usize> = (0..=case.columns.len())
        .map(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0))
        .collect();
    for row in rows {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        let _ = writeln!(out, "  {}", cells.collect::<Vec<_>>().join("  ").trim_end());
    }
    for measured in all {
        for why in &measured.failures {
            let _ = writeln!(out, "  {} FAILED: {why}", measured.system);
        }
    }
    out
}

fn row(first: &str, rest: impl Iterator<Item = String>) -> Vec<String> {
    std::iter::once(first.to_owned()).chain(rest).collect()
}
