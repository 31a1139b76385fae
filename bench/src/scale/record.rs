//! The record of one run.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::Spread;

/// The record of one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The command that was run.
    pub command: String,
    /// The commit that was measured; `unknown` if git does not report it.
    pub commit: String,
    /// The server.
    pub server: String,
    /// Logical processors.
    pub processors: usize,
    /// The model of the processors.
    pub model: String,
    /// The load of the machine, in words.
    pub busy: String,
    /// The amounts that were measured, in words.
    pub size: String,
    /// The measured arrangements.
    pub rows: Vec<Row>,
}

/// The figures of one arrangement of servers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The number of primaries of the cluster; zero for a single server.
    pub primaries: usize,
    /// True if timers have marker keys.
    pub marker_keys: bool,
    /// The number of listeners.
    pub listeners: usize,
    /// The figures, by name.
    pub figures: BTreeMap<String, Spread>,
}

impl Row {
    /// Returns the median of a figure; none if it was not measured.
    pub fn median(&self, name: &str) -> Option<f64> {
        self.figures.get(name).map(|spread| spread.median)
    }
}

impl Record {
    /// Returns the rows with one listener, with or without marker keys, in the order of their measurement.
    pub fn rows(&self, marker_keys: bool) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(move |row| row.marker_keys == marker_keys && row.listeners == 1)
    }

    /// Returns the row of the largest cluster with the most listeners.
    pub fn crowd(&self, marker_keys: bool) -> Option<&Row> {
        let all = self.rows.iter().filter(|row| row.marker_keys == marker_keys && row.listeners > 1);
        all.max_by_key(|row| (row.primaries, row.listeners))
    }
}
