//! Errors of a configuration file: the line, the fault, and the remedy.

use std::fmt;
use std::ops::Range;

/// The reason why a configuration file is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// Counted from 1. `None` if the error concerns the whole file.
    line: Option<usize>,
    what: String,
}

/// The least Jaro-Winkler similarity of a name that is suggested.
const ALIKE: f64 = 0.75;

impl ConfigError {
    pub(crate) fn whole(what: impl Into<String>) -> Self {
        Self { line: None, what: what.into() }
    }

    /// Creates an error about this span of the text.
    pub(crate) fn at(text: &str, span: &Range<usize>, what: impl Into<String>) -> Self {
        Self { line: Some(line_of(text, span.start)), what: what.into() }
    }

    /// Converts an error of the TOML parser. For an unknown setting it suggests a known one.
    pub(super) fn of_toml(text: &str, error: &toml::de::Error) -> Self {
        let line = error.span().map(|span| line_of(text, span.start));
        Self { line, what: with_suggestion(error.message()) }
    }

    /// Returns the line of the error, counted from 1, or `None` if the error concerns the whole file.
    pub fn line(&self) -> Option<usize> {
        self.line
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "line {line}: {}", self.what),
            None => f.write_str(&self.what),
        }
    }
}

impl std::error::Error for ConfigError {}

fn line_of(text: &str, place: usize) -> usize {
    1 + text.bytes().take(place).filter(|byte| *byte == b'\n').count()
}

/// Rewrites serde's error about an unknown name: unknown field `a`, expected one of `b`, `c`.
fn with_suggestion(message: &str) -> String {
    let Some(rest) = message.strip_prefix("unknown field `") else { return message.to_owned() };
    let mut names = rest.split('`').step_by(2);
    let unknown = names.next().unwrap_or_default();
    match nearest(unknown, names) {
        Some(meant) => format!("unknown setting {unknown}; do you mean {meant}?"),
        None => message.replacen("unknown field", "unknown setting", 1),
    }
}

/// Returns the most similar of these names, if one is similar enough.
pub(crate) fn nearest<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let rated = names.map(|other| (strsim::jaro_winkler(name, other), other));
    let (rate, best) = rated.max_by(|a, b| a.0.total_cmp(&b.0))?;
    (rate >= ALIKE).then_some(best)
}
