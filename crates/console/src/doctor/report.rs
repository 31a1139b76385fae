//! All that was found: findings, and the figures.

use std::fmt;

use serde::Serialize;

use crate::escape::escape_line;

use super::codes::Code;

/// Bytes of what was seen.
const MAX_OBSERVED_BYTES: usize = 1000;

/// How bad a finding is. The worst is the greatest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Severity {
    /// A fact, or a check that was passed.
    Info,
    /// It works, and a fault or a load away it does not.
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

/// One thing that was found, what it means, and how it is mended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Finding {
    /// Which of [`codes`](super::codes()) it is.
    pub code: &'static str,
    /// How bad it is.
    pub severity: Severity,
    /// The server that it is about, as host and port; none where it is about a topic.
    pub node: Option<String>,
    /// In a few words.
    pub title: &'static str,
    /// What follows from it.
    pub meaning: &'static str,
    /// What was seen, as one line.
    pub observed: String,
    /// The line that corrects it: for a shell, as an administrator of the server or a user of the program `keylapse`. Where a
    /// service lets nobody run that line, what its own means can do.
    pub fix: Option<String>,
}

impl Finding {
    /// With what the names in the fix stand for. What others have written has to be fit for a shell already.
    pub(super) fn new(
        code: &Code,
        node: Option<&str>,
        observed: impl Into<String>,
        names: &[(&str, &str)],
    ) -> Self {
        // A server may say anything, and it ends in somebody's terminal.
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
    /// As one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { code, severity, title, observed, .. } = self;
        match &self.node {
            Some(node) => write!(f, "{severity} {code} {node}: {title} ({observed})"),
            None => write!(f, "{severity} {code}: {title} ({observed})"),
        }
    }
}

/// What [`Console::doctor`](crate::Console::doctor) has found.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Diagnosis {
    /// Server by server, then topics; of each in the order of the checks.
    pub findings: Vec<Finding>,
    /// How late expired keys are announced.
    pub lateness: Lateness,
}

/// How late expired keys are announced, as the worst of all servers. None where it was not found out.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Lateness {
    /// From the write of a key of 1 ms, which is read once it is due, to its event.
    pub heartbeat_ms: Option<f64>,
    /// The worst that is predicted for keys that nobody reads: keys with a time to live / (hz × (20 + 5 × (effort − 1))).
    pub plain_late_predicted_max_s: Option<f64>,
    /// Measured: the median of the keys that nobody read, of those that were heard.
    pub plain_late_p50_s: Option<f64>,
    /// The worst of them.
    pub plain_late_max_s: Option<f64>,
    /// How many of them were heard before the time was over.
    pub plain_received: u64,
    /// Of so many.
    pub plain_probes: u64,
    /// Measured: of a hundred keys that were read just after their deadlines 99 were heard this soon.
    pub checked_late_p99_ms: Option<f64>,
    /// How many of them were heard.
    pub checked_received: u64,
    /// Of so many.
    pub checked_probes: u64,
}

impl Diagnosis {
    /// How many findings are errors.
    pub fn errors(&self) -> usize {
        self.count(Severity::Error)
    }

    /// How many are warnings.
    pub fn warnings(&self) -> usize {
        self.count(Severity::Warning)
    }

    fn count(&self, severity: Severity) -> usize {
        self.findings.iter().filter(|finding| finding.severity == severity).count()
    }

    /// All in one line, for scripts: `errors=… warnings=… canary_ms=…` and so on, with `-` for what was not measured.
    pub fn summary(&self) -> Summary<'_> {
        Summary(self)
    }
}

impl Lateness {
    /// Takes in another server's. The worst counts; of quantiles, too, as servers are not weighed against each other.
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
        write!(f, " canary_ms={}", Figure(lateness.heartbeat_ms))?;
        write!(f, " plain_late_predicted_max_s={}", Figure(lateness.plain_late_predicted_max_s))?;
        write!(f, " plain_late_p50_s={}", Figure(lateness.plain_late_p50_s))?;
        match lateness.plain_probes {
            0 => f.write_str(" plain_heard=-")?,
            probes => write!(f, " plain_heard={}/{probes}", lateness.plain_received)?,
        }
        write!(f, " touched_late_p99_ms={}", Figure(lateness.checked_late_p99_ms))
    }
}

/// With one digit behind the point, or three where it is small.
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
    fn what_was_not_measured_is_a_dash() {
        let nothing = "errors=0 warnings=0 canary_ms=- plain_late_predicted_max_s=- plain_late_p50_s=- plain_heard=- \
                       touched_late_p99_ms=-";
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
        let all = "errors=0 warnings=0 canary_ms=4.2 plain_late_predicted_max_s=- plain_late_p50_s=0.250 \
                   plain_heard=208/600 touched_late_p99_ms=-";
        assert_eq!(diagnosis.summary().to_string(), all);
    }
}
