//! What is measured: a measure and its parameters.

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
    /// keylapse, with and without visible keys.
    Both,
    /// keylapse without visible keys.
    WithoutTriggers,
    /// keylapse.
    Keylapse,
    /// keylapse, and the machine's own timers.
    KeylapseAndFloor,
    /// keylapse, the script that writes the same and nothing else, and every system that is not ours.
    KeylapseAndOthers,
}

impl Who {
    /// Whether the system in this folder takes part.
    pub fn includes(self, folder: &str) -> bool {
        match self {
            Self::All => true,
            Self::Both => ["keylapse", "keylapse-no-triggers"].contains(&folder),
            Self::WithoutTriggers => folder == "keylapse-no-triggers",
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
    /// What it is part of, to be asked for by: the measure, unless said otherwise.
    pub section: &'static str,
    /// What differs from other cases of the measure, by name.
    pub parameters: BTreeMap<&'static str, String>,
    /// Who takes part.
    pub who: Who,
    /// How often, if not as often as all others.
    pub rounds: Option<usize>,
    /// Whether all systems run at the same time.
    pub side_by_side: bool,
    /// After how long one run is given up.
    pub limit: Duration,
    /// What the table shows of what is printed.
    pub columns: &'static [&'static str],
}

impl Case {
    /// A case of a measure.
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

    /// With a parameter: `count` becomes `BENCH_COUNT`, and so on.
    #[must_use]
    #[expect(clippy::needless_pass_by_value, reason = "numbers are written without an ampersand")]
    pub fn with(mut self, name: &'static str, value: impl ToString) -> Self {
        self.parameters.insert(name, value.to_string());
        self
    }

    /// For these systems only.
    #[must_use]
    pub fn only(mut self, who: Who) -> Self {
        self.who = who;
        self
    }

    /// As a part of this.
    #[must_use]
    pub fn part_of(mut self, section: &'static str) -> Self {
        self.section = section;
        self
    }

    /// So often, however often others are run.
    #[must_use]
    pub fn times(mut self, rounds: usize) -> Self {
        self.rounds = Some(rounds);
        self
    }

    /// With all systems at the same time: for what is mostly waiting, and needs no quiet processor.
    #[must_use]
    pub fn side_by_side(mut self) -> Self {
        self.side_by_side = true;
        self
    }

    /// Given up after this long.
    #[must_use]
    pub fn within(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// A parameter as a number; zero if there is none.
    pub fn number(&self, name: &str) -> f64 {
        self.parameters.get(name).and_then(|value| value.parse().ok()).unwrap_or(0.0)
    }

    /// How many keys with a time to live the harness puts beside the jobs.
    pub fn foreign(&self) -> usize {
        self.number("foreign") as usize
    }

    /// What the system is told by its environment.
    pub fn environment(&self) -> impl Iterator<Item = Variable> {
        let named = self.parameters.iter().filter(|(name, _)| **name != "foreign");
        let told = named.map(|(name, value)| (format!("BENCH_{}", name.to_uppercase()), value.clone()));
        told.chain([("BENCH_PAYLOAD".to_owned(), PAYLOAD.to_owned())])
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
    fn a_case_tells_the_system_all_but_what_the_harness_does_itself() {
        let case = Case::new("lateness", &[]).with("rate", 1000).with("foreign", 5);
        let told: BTreeMap<_, _> = case.environment().collect();
        assert_eq!(told["BENCH_RATE"], "1000");
        assert_eq!(told["BENCH_PAYLOAD"].len(), 72);
        assert_eq!(told.len(), 2);
        assert_eq!(case.to_string(), "lateness foreign=5 rate=1000");
        assert_eq!(case.foreign(), 5);
    }

    #[test]
    fn bounds_are_no_others_and_of_them_only_the_script_is_beside_keylapse() {
        let takes_part = |folder| Who::KeylapseAndOthers.includes(folder);
        assert!(["keylapse", "bare-script", "rsmq", "zset_poll"].into_iter().all(takes_part));
        assert!(!["keylapse-no-triggers", "bare-zadd", "ceiling", "floor"].into_iter().any(takes_part));
    }
}
