//! What one run has measured, as it is kept.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::Spread;

/// All of one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// What was run.
    pub command: String,
    /// The commit that was measured, where git says so.
    pub commit: String,
    /// The server.
    pub server: String,
    /// Logical processors.
    pub processors: usize,
    /// What they are called.
    pub model: String,
    /// How busy the machine was, in words.
    pub busy: String,
    /// How much was measured, in words.
    pub size: String,
    /// What was measured.
    pub rows: Vec<Row>,
}

/// One arrangement of servers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// How many primaries the cluster has; none: a server alone.
    pub primaries: usize,
    /// Whether timers have visible keys.
    pub triggers: bool,
    /// How many listeners there were.
    pub listeners: usize,
    /// What was measured, by name.
    pub figures: BTreeMap<String, Spread>,
}

impl Row {
    /// The middle of a figure; none if it was not measured.
    pub fn median(&self, name: &str) -> Option<f64> {
        self.figures.get(name).map(|spread| spread.median)
    }
}

impl Record {
    /// The rows with one listener, in the order in which they were measured: with visible keys, or without.
    pub fn rows(&self, triggers: bool) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(move |row| row.triggers == triggers && row.listeners == 1)
    }

    /// The row of the largest cluster with the most listeners.
    pub fn crowd(&self, triggers: bool) -> Option<&Row> {
        let all = self.rows.iter().filter(|row| row.triggers == triggers && row.listeners > 1);
        all.max_by_key(|row| (row.primaries, row.listeners))
    }
}
