//! Timeouts for clients, and how many there may be.

use std::time::Duration;

/// Timeouts for clients, and the maximum of connections and live tails. They keep one client from holding up the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct ServerLimits {
    pub(crate) connections: usize,
    pub(crate) tails: usize,
    pub(crate) head: Duration,
    pub(crate) body: Duration,
    pub(crate) answer: Duration,
    pub(crate) write: Duration,
}

impl Default for ServerLimits {
    fn default() -> Self {
        Self {
            connections: 512,
            tails: 32,
            head: Duration::from_secs(10),
            body: Duration::from_secs(10),
            // Longer than the console retries any call.
            answer: Duration::from_secs(60),
            write: Duration::from_secs(20),
        }
    }
}

impl ServerLimits {
    /// Sets the maximum of connections, at least 1; 16 more are reserved for probes. A further connection replaces the one
    /// that has been idle for the longest time. Default: 512.
    pub fn connections(self, most: usize) -> Self {
        Self { connections: most.max(1), ..self }
    }

    /// Sets the maximum of live tails; a further one is refused. Default: 32.
    pub fn tails(self, most: usize) -> Self {
        Self { tails: most, ..self }
    }

    /// Sets the time for the header of each request, and for the TLS handshake. Default: 10 s.
    pub fn header_timeout(self, span: Duration) -> Self {
        Self { head: span, ..self }
    }

    /// Sets how long the server waits for the next part of a body. Default: 10 s.
    pub fn body_timeout(self, span: Duration) -> Self {
        Self { body: span, ..self }
    }

    /// Sets the time for a whole request, including its body. Default: 60 s.
    pub fn request_timeout(self, span: Duration) -> Self {
        Self { answer: span, ..self }
    }

    /// Sets after how long a connection is closed whose client reads nothing of its answer. Default: 20 s.
    pub fn write_timeout(self, span: Duration) -> Self {
        Self { write: span, ..self }
    }
}
