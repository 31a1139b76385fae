//! A case: a measure, its parameters, and the systems that take part.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::{System, Variable};

/// The payload of each job: 72 bytes.
const PAYLOAD: &str = r#"{"merchant":"m-000000017","order":"o-0000000000042","amount":1234567890}"#;

/// Which systems take part in a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// Every system that has the measure.
    All,
    /// keylapse, with and without marker keys.
    Both,
    /// keylapse without marker keys.
    WithoutMarkerKeys,
    /// keylapse.
    Keylapse,
    /// keylapse, and the machine's own timers.
    KeylapseAndFloor,
    /// keylapse, the script that only writes keylapse's keys, and every system that is not ours.
    KeylapseAndOthers,
}

impl Who {
    /// Returns whether the system in this folder takes part.
    pub fn includes(self, folder: &str) -> bool {
        match self {
            Self::All => true,
            Self::Both => ["keylapse", "keylapse-no-markers"].contains(&folder),
            Self::WithoutMarkerKeys => folder == "keylapse-no-markers",
            Self::Keylapse => folder == "keylapse",
            Self::KeylapseAndFloor => ["keylapse", "floor"].contains(&folder),
            Self::KeylapseAndOthers => {
                ["keylapse", "bare-script"].contains(&folder) || !System::is_one_of_ours(folder)
            }
        }
    }
}

/// A measure with its parameters.
#[derive(Clone, Debug)]
pub struct Case {
    /// The measure's name.
    pub measure: &'static str,
    /// The section that selects the case on the command line; by default the measure's name.
    pub section: &'static str,
    /// The parameters that differ between cases of the measure, by name.
    pub parameters: BTreeMap<&'static str, String>,
    /// The systems that take part.
    pub who: Who,
    /// The number of rounds, if it differs from that of other cases.
    pub rounds: Option<usize>,
    /// True if all systems run at the same time.
    pub side_by_side: bool,
    /// The time after which a run is stopped.
    pub limit: Duration,
    /// The figures that the table shows.
    pub columns: &'static [&'static str],
}

impl Case {
    /// Creates a case of a measure for all systems, with a limit of 120 s.
    pub fn new(measure: &'static str, columns: &'static [&'static str]) -> Self {
        let limit = Duration::from_secs(120);
        Self {
            measure,
            section: measure,
            parameters: BTreeMap::new(),
            who: Who::All,
            rounds: None,
            side_by_side: false,
            limit,
            columns,
        }
    }

    /// Sets a parameter: `count` becomes `BENCH_COUNT`, and so on.
    #[must_use]
    #[expect(clippy::needless_pass_by_value, reason = "numbers are written without an ampersand")]
    pub fn with(mut self, name: &'static str, value: impl ToString) -> Self {
        self.parameters.insert(name, value.to_string());
        self
    }

    /// Limits the case to these systems.
    #[must_use]
    pub fn only(mut self, who: Who) -> Self {
        self.who = who;
        self
    }

    /// Assigns the case to a section.
    #[must_use]
    pub fn part_of(mut self, section: &'static str) -> Self {
        self.section = section;
        self
    }

    /// Sets the number of rounds, whatever the number of other cases is.
    #[must_use]
    pub fn times(mut self, rounds: usize) -> Self {
        self.rounds = Some(rounds);
        self
    }

    /// Runs all systems at the same time: for measures that mostly wait, and need no quiet processor.
    #[must_use]
    pub fn side_by_side(mut self) -> Self {
        self.side_by_side = true;
        self
    }

    /// Sets the time after which a run is stopped.
    #[must_use]
    pub fn within(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Returns a parameter as a number; zero if it is not set.
    pub fn number(&self, name: &str) -> f64 {
        self.parameters.get(name).and_then(|value| value.parse().ok()).unwrap_or(0.0)
    }

    /// Returns how many foreign keys with a TTL the harness writes before a run.
    pub fn foreign(&self) -> usize {
        self.number("foreign") as usize
    }

    /// Returns the environment variables of the system.
    pub fn environment(&self) -> impl Iterator<Item = Variable> {
        let named = self.parameters.iter().filter(|(name, _)| **name != "foreign");
        let variables = named.map(|(name, value)| (format!("BENCH_{}", name.to_uppercase()), value.clone()));
        variables.chain([("BENCH_PAYLOAD".to_owned(), PAYLOAD.to_owned())])
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.measure)?;
        self.parameters.iter().try_for_each(|(name, value)| write!(f, " {name}={value}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_passes_the_system_all_but_what_the_harness_does_itself() {
        let case = Case::new("lateness", &[]).with("rate", 1000).with("foreign", 5);
        let variables: BTreeMap<_, _> = case.environment().collect();
        assert_eq!(variables["BENCH_RATE"], "1000");
        assert_eq!(variables["BENCH_PAYLOAD"].len(), 72);
        assert_eq!(variables.len(), 2);
        assert_eq!(case.to_string(), "lateness foreign=5 rate=1000");
        assert_eq!(case.foreign(), 5);
    }

    #[test]
    fn bounds_are_no_others_and_of_them_only_the_script_is_beside_keylapse() {
        let takes_part = |folder| Who::KeylapseAndOthers.includes(folder);
        assert!(["keylapse", "bare-script", "rsmq", "zset_poll"].into_iter().all(takes_part));
        assert!(!["keylapse-no-markers", "bare-zadd", "ceiling", "floor"].into_iter().any(takes_part));
    }
}
