//! The results of a recipe, as sentences and a table.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Account;

/// The results of one scene.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Told {
    /// The fault, in a few words.
    pub title: String,
    /// How the jobs by hand ended.
    pub by_hand: Account,
    /// How the jobs with keylapse ended.
    pub with_keylapse: Account,
    /// A description of the results, by hand and with keylapse.
    pub words: [String; 2],
    /// The weaknesses of the design by hand that the documentation claims.
    pub claims: Vec<Claim>,
}

/// A weakness of the design by hand that the documentation claims.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// The weakness, in a few words.
    pub what: String,
    /// True if the scene showed the weakness.
    pub shown: bool,
}

impl Told {
    pub(super) fn new(title: &str, by_hand: Account, with_keylapse: Account) -> Self {
        Self {
            title: title.to_owned(),
            by_hand,
            with_keylapse,
            words: Default::default(),
            claims: Vec::new(),
        }
    }

    /// Creates the results of a scene without processes and jobs, such as a calculation.
    #[must_use]
    pub fn without_jobs(title: &str) -> Self {
        Self::new(title, Account::default(), Account::default())
    }

    /// Adds a description of the results, one or two sentences for each side.
    #[must_use]
    pub fn saying(self, by_hand: impl Into<String>, with_keylapse: impl Into<String>) -> Self {
        Self { words: [by_hand.into(), with_keylapse.into()], ..self }
    }

    /// Adds a weakness that the documentation claims, and whether the scene showed it.
    #[must_use]
    pub fn claiming(mut self, what: &str, shown: bool) -> Self {
        self.claims.push(Claim { what: what.to_owned(), shown });
        self
    }
}

/// The results of a recipe.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tale {
    /// Results of the scenes, in order.
    pub scenes: Vec<Told>,
}

impl Tale {
    /// Returns the sums over all scenes, by hand and with keylapse.
    pub fn sums(&self) -> [Account; 2] {
        let mut sums = [Account::default(), Account::default()];
        for scene in &self.scenes {
            sums[0].add(&scene.by_hand);
            sums[1].add(&scene.with_keylapse);
        }
        sums
    }

    /// Describes each unexpected result. The list is empty if the recipe shows all that the documentation claims.
    pub fn complaints(&self) -> Vec<String> {
        let mut complaints = Vec::new();
        for Told { title, with_keylapse: account, claims, .. } in &self.scenes {
            let wrong = [
                (account.lost, "lost"),
                (account.early, "early"),
                (account.unexplained, "run twice without a reason"),
            ];
            let wrong = wrong.into_iter().filter(|(count, _)| *count > 0);
            complaints.extend(
                wrong.map(|(count, what)| format!("{title} With keylapse, {count} jobs were {what}.")),
            );
            let unseen = claims.iter().filter(|claim| !claim.shown);
            complaints.extend(
                unseen.map(|claim| format!("{title} By hand, a claim was not shown: {}.", claim.what)),
            );
        }
        complaints
    }
}

impl fmt::Display for Tale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, scene) in self.scenes.iter().enumerate() {
            writeln!(f, "  {}. {}", number + 1, scene.title)?;
            writeln!(f, "     by hand:       {}", scene.words[0])?;
            writeln!(f, "     with keylapse: {}", scene.words[1])?;
        }
        writeln!(f, "\n  {:34}   given  lost  twice  early  late p99    latest", "")?;
        for (number, scene) in self.scenes.iter().enumerate() {
            let sides = [("by hand", &scene.by_hand), ("with keylapse", &scene.with_keylapse)];
            for (side, account) in sides.into_iter().filter(|(_, account)| account.given > 0) {
                writeln!(f, "  {:34} {}", format!("{}. {side}", number + 1), Row(account))?;
            }
        }
        Ok(())
    }
}

struct Row<'a>(&'a Account);

impl fmt::Display for Row<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Account { given, lost, doubled, early, .. } = self.0;
        let [p99, latest] = [0.99, 1.0].map(|share| late_in_words(self.0, share));
        write!(f, "{given:7} {lost:5} {doubled:6} {early:6} {p99:>9} {latest:>9}")
    }
}

/// Formats the lateness within which this share of the jobs began. It is a lower bound if some jobs are overdue, and a
/// dash if none began.
pub fn late_in_words(account: &Account, share: f64) -> String {
    match account {
        Account { late_us, .. } if late_us.is_empty() => "–".to_owned(),
        Account { overdue: 0, .. } => in_words(account.late(share)),
        _ => format!("≥ {}", in_words(account.late(share))),
    }
}

/// Formats a duration in seconds or milliseconds.
pub fn in_words(time: Duration) -> String {
    match time.as_secs_f64() {
        s if s >= 100.0 => format!("{s:.0} s"),
        s if s >= 1.0 => format!("{s:.1} s"),
        s if s >= 0.1 => format!("{:.0} ms", s * 1000.0),
        s => format!("{:.1} ms", s * 1000.0),
    }
}
