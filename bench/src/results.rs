//! The results of a run so far.

use std::collections::BTreeMap;

use crate::measures::{Figures, Made};
use crate::{Case, Described, Spread, System};

/// All rounds of one case on one system.
#[derive(Clone, Debug)]
pub struct Measured {
    /// The case.
    pub case: Case,
    /// The folder of the system.
    pub system: String,
    /// True for keylapse and the bounds that it is measured by.
    pub is_ours: bool,
    /// The description that the system printed.
    pub described: Described,
    /// The figures of each round that succeeded.
    pub rounds: Vec<Figures>,
    /// The reasons of the failed rounds.
    pub failures: Vec<String>,
    /// False if the system does not have the measure.
    pub has_it: bool,
}

impl Measured {
    /// Creates an empty result.
    pub fn new(case: &Case, system: &System) -> Self {
        Self {
            case: case.clone(),
            system: system.folder().to_owned(),
            is_ours: system.is_ours(),
            described: system.described.clone(),
            rounds: Vec::new(),
            failures: Vec::new(),
            has_it: true,
        }
    }

    /// Adds a round.
    pub fn add(&mut self, made: Made) {
        match made {
            Made::Figures(figures) => self.rounds.push(figures),
            Made::HasNot => self.has_it = false,
            Made::Failed(why) => self.failures.push(why),
        }
    }

    /// Returns the spread of a figure; none if no round has it.
    pub fn spread(&self, name: &str) -> Option<Spread> {
        let figures: Vec<f64> = self.rounds.iter().filter_map(|figures| figures.get(name).copied()).collect();
        Spread::of(&figures)
    }

    /// Returns the spreads of all figures, by name.
    pub fn spreads(&self) -> BTreeMap<&str, Spread> {
        let names = self.rounds.iter().flat_map(|figures| figures.keys());
        names.filter_map(|name| Some((name.as_str(), self.spread(name)?))).collect()
    }
}
