//! What is printed of a run.

use std::fmt;

use super::shards::ByShard;
use crate::clock::Micros;
use crate::harness::Slope;
use crate::ledger::Line;

/// The verdict of a run.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Arms that were asked for, and keys of other programs.
    pub armed: usize,
    /// Arms that were acknowledged, and keys whose last deadline is certain.
    pub acknowledged: usize,
    /// Armings and keys of which an attempt succeeded.
    pub handled: usize,
    /// Where there are several servers, keys of other programs that were written.
    pub attached: usize,
    /// Those of them that fired.
    pub fired: usize,
    /// Attempts that began again.
    pub duplicated: usize,
    /// Those of them that a fault on record explains.
    pub explained: usize,
    /// Keys of other programs that expired, as far as is known, when that could not be: docs/attach.md says when.
    pub unknowable: usize,
    /// Dead letters.
    pub dead: usize,
    /// Timers that were left when waiting was given up.
    pub left: u64,
    /// How late the first start of each attempt was.
    pub late: Vec<Micros>,
    /// What only several servers have.
    pub shards: ByShard,
    /// Memory and descriptors of a listener that lived throughout, if there was one.
    pub slope: Option<Slope>,
    /// What must not be.
    pub findings: Vec<Finding>,
}

/// Something that must not be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The arming.
    pub n: u64,
    /// What kind of wrong it is.
    pub wrong: Wrong,
    /// What happened.
    pub what: String,
    /// All ledger lines about it.
    pub story: Vec<String>,
}

/// The kinds of wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// Acknowledged, and neither handled nor dead.
    Lost,
    /// Before its time.
    Early,
    /// Never armed, or withdrawn before, or dead without a reason.
    Unexpected,
    /// Run again without an excuse.
    Unexplained,
}

impl Report {
    /// Whether every promise was kept.
    pub fn is_valid(&self) -> bool {
        self.findings.is_empty() && self.left == 0 && self.slope.is_none_or(|slope| slope.is_flat())
    }

    /// How many findings are of this kind.
    pub fn count(&self, wrong: Wrong) -> usize {
        self.findings.iter().filter(|finding| finding.wrong == wrong).count()
    }

    /// The most important of it as a row of a table.
    pub fn row(&self, name: &str) -> String {
        let [p50, p99, max] = [0.5, 0.99, 1.0].map(|share| self.late_ms(share));
        let (handled, again) = (self.handled, self.duplicated);
        let (lost, early) = (self.count(Wrong::Lost), self.count(Wrong::Early));
        format!("| {name} | {handled} | {p50:.1} | {p99:.1} | {max:.0} | {again} | {lost} | {early} |")
    }

    /// A share of all lateness, in milliseconds: 0.5 is the median, 1 the largest.
    fn late_ms(&self, share: f64) -> f64 {
        ms_of(&self.late, share)
    }
}

/// The number of a key, for a finding.
pub(super) fn digits(key: &str) -> u64 {
    let digits: String = key.chars().filter(char::is_ascii_digit).collect();
    digits.parse().unwrap_or_default()
}

/// All lines about a key.
pub(super) fn story(key: &str, lines: &[Line]) -> Vec<String> {
    let mark = format!("\"key\":\"{key}\"");
    let texts = lines.iter().filter_map(|line| serde_json::to_string(line).ok());
    texts.filter(|text| text.contains(&mark)).collect()
}

/// A share of these, in milliseconds.
pub(super) fn ms_of(late: &[Micros], share: f64) -> f64 {
    let mut late = late.to_vec();
    late.sort_unstable();
    let place = ((late.len() as f64 * share).ceil() as usize).clamp(1, late.len().max(1)) - 1;
    late.get(place).map_or(0.0, |micros| *micros as f64 / 1000.0)
}

/// One line.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "armed={} acknowledged={} handled={} ", self.armed, self.acknowledged, self.handled)?;
        write!(
            f,
            "lost={} duplicated={} explained={} ",
            self.count(Wrong::Lost),
            self.duplicated,
            self.explained
        )?;
        write!(f, "early={} unexpected={} ", self.count(Wrong::Early), self.count(Wrong::Unexpected))?;
        write!(f, "unknowable={} ", self.unknowable)?;
        let [p50, p99, max] = [0.5, 0.99, 1.0].map(|share| self.late_ms(share));
        write!(f, "late_p50_ms={p50:.1} late_p99_ms={p99:.1} late_max_ms={max:.1} dead={}", self.dead)?;
        if let Some(Slope { before, after }) = self.slope {
            write!(f, " rss_mib={:.1}..{:.1} ", before.mib, after.mib)?;
            write!(f, "descriptors={}..{}", before.descriptors, after.descriptors)?;
        }
        if self.left > 0 { write!(f, " left={}", self.left) } else { Ok(()) }
    }
}

/// With its story, over several lines.
impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: number {}: {}", self.wrong, self.n, self.what)?;
        self.story.iter().try_for_each(|line| write!(f, "\n    {line}"))
    }
}
