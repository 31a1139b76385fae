//! What is wrong with a file: where, and what to write instead.

use std::fmt;
use std::ops::Range;

/// Why a file is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// From 1; none where it is about the file as a whole.
    line: Option<usize>,
    what: String,
}

/// How alike two names have to be for one to be a slip of the other.
const ALIKE: f64 = 0.75;

impl ConfigError {
    pub(crate) fn whole(what: impl Into<String>) -> Self {
        Self { line: None, what: what.into() }
    }

    /// About what stands at this place of the text.
    pub(crate) fn at(text: &str, span: &Range<usize>, what: impl Into<String>) -> Self {
        Self { line: Some(line_of(text, span.start)), what: what.into() }
    }

    /// What the reader of TOML says, with the name that may be meant where one is unknown.
    pub(super) fn of_toml(text: &str, error: &toml::de::Error) -> Self {
        let line = error.span().map(|span| line_of(text, span.start));
        Self { line, what: with_suggestion(error.message()) }
    }

    /// The line that it is about, from 1.
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

/// serde says of an unknown name: unknown field `a`, expected one of `b`, `c`.
fn with_suggestion(message: &str) -> String {
    let Some(rest) = message.strip_prefix("unknown field `") else { return message.to_owned() };
    let mut names = rest.split('`').step_by(2);
    let unknown = names.next().unwrap_or_default();
    match nearest(unknown, names) {
        Some(meant) => format!("unknown setting {unknown}; do you mean {meant}?"),
        None => message.replacen("unknown field", "unknown setting", 1),
    }
}

/// The name that is most like this one, if one is.
pub(crate) fn nearest<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let rated = names.map(|other| (strsim::jaro_winkler(name, other), other));
    let (rate, best) = rated.max_by(|a, b| a.0.total_cmp(&b.0))?;
    (rate >= ALIKE).then_some(best)
}
