//! How long clients are waited for, and how many at a time.

use std::time::Duration;

/// How long clients are waited for, and how many there may be at a time: none can hold up the others for longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Patience {
    pub(crate) connections: usize,
    pub(crate) tails: usize,
    pub(crate) head: Duration,
    pub(crate) body: Duration,
    pub(crate) answer: Duration,
    pub(crate) write: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            connections: 512,
            tails: 32,
            head: Duration::from_secs(10),
            body: Duration::from_secs(10),
            // Longer than every call of the console is tried.
            answer: Duration::from_secs(60),
            write: Duration::from_secs(20),
        }
    }
}

impl Patience {
    /// Connections at a time; 16 more are kept for probes. One more has the place of the one that has been waited for
    /// longest. Default: 512.
    pub fn connections(self, most: usize) -> Self {
        Self { connections: most.max(1), ..self }
    }

    /// Live tails at a time; the next is refused. Default: 32.
    pub fn tails(self, most: usize) -> Self {
        Self { tails: most, ..self }
    }

    /// How long a client has to say what it wants, each time; and to begin TLS. Default: 10 s.
    pub fn head(self, span: Duration) -> Self {
        Self { head: span, ..self }
    }

    /// How long the next part of a body is waited for. Default: 10 s.
    pub fn body(self, span: Duration) -> Self {
        Self { body: span, ..self }
    }

    /// How long a request may take, its body with it. Default: 60 s.
    pub fn answer(self, span: Duration) -> Self {
        Self { answer: span, ..self }
    }

    /// After how long a client is left that takes nothing of its answer. Default: 20 s.
    pub fn write(self, span: Duration) -> Self {
        Self { write: span, ..self }
    }
}
