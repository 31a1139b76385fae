//! The result of an examination: findings and figures.

use std::fmt;

use serde::Serialize;

use crate::escape::escape_line;

use super::codes::Code;

/// The longest text of an observation, in bytes.
const MAX_OBSERVED_BYTES: usize = 1000;

/// The severity of a finding. A worse severity is greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Severity {
    /// A fact, or a check without a fault.
    Info,
    /// Something works now, but stops after a fault or under load.
    Warning,
    /// Something does not work.
    Error,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Error => "error",
        })
    }
}

/// A finding: an observation, its meaning, and its correction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Finding {
    /// The code, one of [`codes`](super::codes()).
    pub code: &'static str,
    /// The severity.
    pub severity: Severity,
    /// The server, as host and port, unless the finding concerns a topic.
    pub node: Option<String>,
    /// A short title.
    pub title: &'static str,
    /// The consequences.
    pub meaning: &'static str,
    /// The observation, as one line.
    pub observed: String,
    /// The command line that corrects the fault. It is for a shell of the server's administrator or of a user of `keylapse`.
    /// If a service does not allow that command, the text describes the service's own way.
    pub fix: Option<String>,
}

impl Finding {
    /// Creates a finding. `names` has the values of placeholders in the fix; values from other programs must be quoted for a
    /// shell.
    pub(super) fn new(
        code: &Code,
        node: Option<&str>,
        observed: impl Into<String>,
        names: &[(&str, &str)],
    ) -> Self {
        // The text comes from a server and goes to a terminal.
        let observed = escape_line(&observed.into(), MAX_OBSERVED_BYTES);
        let filled = names
            .iter()
            .fold(code.fix.to_owned(), |fix, (name, value)| fix.replace(&format!("{{{name}}}"), value));
        Self {
            code: code.code,
            severity: code.severity,
            node: node.map(str::to_owned),
            title: code.title,
            meaning: code.meaning,
            observed,
            fix: (!filled.is_empty()).then_some(filled),
        }
    }
}

impl fmt::Display for Finding {
    /// Writes the finding as one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { code, severity, title, observed, .. } = self;
        match &self.node {
            Some(node) => write!(f, "{severity} {code} {node}: {title} ({observed})"),
            None => write!(f, "{severity} {code}: {title} ({observed})"),
        }
    }
}

/// The result of [`Console::doctor`](crate::Console::doctor).
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Diagnosis {
    /// The findings of each server, then of the topics, in the order of the checks.
    pub findings: Vec<Finding>,
    /// The lateness of expired events.
    pub lateness: Lateness,
}

/// The lateness of expired events: the worst figures of all servers. A figure that was not found out is `None`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Lateness {
    /// The time from the write of a key of 1 ms, which is read when it is due, to its event.
    pub heartbeat_ms: Option<f64>,
    /// The predicted maximum for keys that are not read: number of keys with a TTL / (hz × (20 + 5 × (effort − 1))).
    pub plain_late_predicted_max_s: Option<f64>,
    /// The measured median for keys that were not read and whose event arrived.
    pub plain_late_p50_s: Option<f64>,
    /// The measured maximum for keys that were not read and whose event arrived.
    pub plain_late_max_s: Option<f64>,
    /// The number of keys that were not read and whose event arrived in time.
    pub plain_received: u64,
    /// The number of keys that were not read.
    pub plain_probes: u64,
    /// The measured 99th percentile for keys that were read just after their deadlines and whose event arrived.
    pub checked_late_p99_ms: Option<f64>,
    /// The number of keys that were read and whose event arrived.
    pub checked_received: u64,
    /// The number of keys that were read just after their deadlines.
    pub checked_probes: u64,
}

impl Diagnosis {
    /// Returns the number of errors.
    pub fn errors(&self) -> usize {
        self.count(Severity::Error)
    }

    /// Returns the number of warnings.
    pub fn warnings(&self) -> usize {
        self.count(Severity::Warning)
    }

    fn count(&self, severity: Severity) -> usize {
        self.findings.iter().filter(|finding| finding.severity == severity).count()
    }

    /// Returns the figures as one line for scripts: `errors=… warnings=… heartbeat_ms=…` and so on. A figure that was not
    /// measured is `-`.
    pub fn summary(&self) -> Summary<'_> {
        Summary(self)
    }
}

impl Lateness {
    /// Adds the figures of another server. The worst of both is kept, also for quantiles.
    pub(super) fn add(&mut self, other: &Self) {
        let worst = |one: &mut Option<f64>, other: Option<f64>| {
            *one = match (*one, other) {
                (Some(one), Some(other)) => Some(one.max(other)),
                (one, other) => one.or(other),
            };
        };
        worst(&mut self.heartbeat_ms, other.heartbeat_ms);
        worst(&mut self.plain_late_predicted_max_s, other.plain_late_predicted_max_s);
        worst(&mut self.plain_late_p50_s, other.plain_late_p50_s);
        worst(&mut self.plain_late_max_s, other.plain_late_max_s);
        worst(&mut self.checked_late_p99_ms, other.checked_late_p99_ms);
        self.plain_received += other.plain_received;
        self.plain_probes += other.plain_probes;
        self.checked_received += other.checked_received;
        self.checked_probes += other.checked_probes;
    }
}

/// The last line of a diagnosis: see [`Diagnosis::summary`].
#[derive(Clone, Copy, Debug)]
pub struct Summary<'a>(&'a Diagnosis);

impl fmt::Display for Summary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Diagnosis { lateness, .. } = self.0;
        write!(f, "errors={} warnings={}", self.0.errors(), self.0.warnings())?;
        write!(f, " heartbeat_ms={}", Figure(lateness.heartbeat_ms))?;
        write!(f, " plain_late_predicted_max_s={}", Figure(lateness.plain_late_predicted_max_s))?;
        write!(f, " plain_late_p50_s={}", Figure(lateness.plain_late_p50_s))?;
        match lateness.plain_probes {
            0 => f.write_str(" plain_received=-")?,
            probes => write!(f, " plain_received={}/{probes}", lateness.plain_received)?,
        }
        write!(f, " checked_late_p99_ms={}", Figure(lateness.checked_late_p99_ms))
    }
}

/// Formats a number with one decimal, or with three if it is below 1.
struct Figure(Option<f64>);

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => f.write_str("-"),
            Some(figure) if figure.abs() < 1.0 => write!(f, "{figure:.3}"),
            Some(figure) => write!(f, "{figure:.1}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_that_was_not_measured_is_a_dash() {
        let nothing = "errors=0 warnings=0 heartbeat_ms=- plain_late_predicted_max_s=- plain_late_p50_s=- plain_received=- \
                       checked_late_p99_ms=-";
        assert_eq!(Diagnosis::default().summary().to_string(), nothing);
    }

    #[test]
    fn the_worst_server_counts() {
        let of = |canary, heard| Lateness {
            heartbeat_ms: canary,
            plain_late_p50_s: Some(0.25),
            plain_received: heard,
            plain_probes: 200,
            ..Lateness::default()
        };
        let mut lateness = of(None, 7);
        lateness.add(&of(Some(4.25), 200));
        lateness.add(&of(Some(2.0), 1));
        let diagnosis = Diagnosis { lateness, ..Diagnosis::default() };
        let all = "errors=0 warnings=0 heartbeat_ms=4.2 plain_late_predicted_max_s=- plain_late_p50_s=0.250 \
                   plain_received=208/600 checked_late_p99_ms=-";
        assert_eq!(diagnosis.summary().to_string(), all);
    }
}
