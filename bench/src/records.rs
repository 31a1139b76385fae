//! Records for programs: a line of JSON for each figure.

use std::io::Write;

use serde_json::{Value, json};

use crate::{Busy, Fault, Machine, Measured};

/// Writes records, each as soon as its case is measured.
#[derive(Debug)]
pub struct Records<W>(W);

impl<W: Write> Records<W> {
    /// Writes the record of the machine.
    ///
    /// # Errors
    /// If the record cannot be written.
    pub fn new(mut out: W, machine: &Machine) -> Result<Self, Fault> {
        writeln!(out, "{}", json!({ "machine": machine }))?;
        Ok(Self(out))
    }

    /// Writes all figures of one case on one system, with the load of the machine during the case.
    ///
    /// # Errors
    /// If the record cannot be written.
    pub fn write(&mut self, measured: &Measured, busy: &Busy) -> Result<(), Fault> {
        for (figure, spread) in measured.spreads() {
            let mut record = json!({
                "system": measured.system,
                "version": measured.described.version,
                "measure": measured.case.measure,
                "parameters": measured.case.parameters,
                "figure": figure,
                "unit": unit(figure),
                "load": busy.load,
                "steal_percent": busy.steal_percent,
            });
            if let (Value::Object(record), Value::Object(spread)) =
                (&mut record, serde_json::to_value(spread)?)
            {
                record.extend(spread);
            }
            writeln!(self.0, "{record}")?;
        }
        for why in &measured.failures {
            let (case, system) = (&measured.case, &measured.system);
            let record = json!({
                "system": system, "measure": case.measure, "parameters": case.parameters, "failed": why,
            });
            writeln!(self.0, "{record}")?;
        }
        Ok(self.0.flush()?)
    }
}

/// Returns the unit that the name of a figure ends with.
fn unit(figure: &str) -> &str {
    match figure.rsplit_once('_') {
        Some((_, "s")) if figure.ends_with("per_s") => "1/s",
        Some((_, "s")) => "s",
        Some((_, "ms")) => "ms",
        Some((_, "percent")) => "%",
        _ if figure == "bytes" => "B",
        _ if figure == "seconds" => "s",
        _ => "1",
    }
}
