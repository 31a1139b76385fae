//! What the doctor has found.

use std::fmt;

use serde::Serialize;

use crate::escape::plain;

use super::codes::Code;

/// Bytes of what was seen.
const LONGEST: usize = 1000;

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
        let observed = plain(&observed.into(), LONGEST);
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
