//! Classes of calls, for metrics and for circuits.

use reqwest::StatusCode;

/// How a call ended, or why none was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallClass {
    Delivered,
    Redirected,
    ClientError,
    RateLimited,
    Gone,
    ServerError,
    /// No answer in time.
    TimedOut,
    /// No connection: the name is unknown, nothing listens, or the address or certificate is refused.
    Unreachable,
    /// The connection ended before the answer, or the answer is not HTTP.
    ConnectionLost,
    /// No call: the URL is invalid, or its host is not allowed.
    InvalidUrl,
    /// No call: the host has no free concurrency slot.
    HostFull,
    /// No call: the circuit of the host is open.
    CircuitOpen,
}

impl CallClass {
    pub(crate) const ALL: [Self; 12] = [
        Self::Delivered,
        Self::Redirected,
        Self::ClientError,
        Self::RateLimited,
        Self::Gone,
        Self::ServerError,
        Self::TimedOut,
        Self::Unreachable,
        Self::ConnectionLost,
        Self::InvalidUrl,
        Self::HostFull,
        Self::CircuitOpen,
    ];

    pub(crate) fn of(status: StatusCode) -> Self {
        match status {
            StatusCode::GONE => Self::Gone,
            StatusCode::TOO_MANY_REQUESTS => Self::RateLimited,
            _ if status.is_success() => Self::Delivered,
            _ if status.is_redirection() => Self::Redirected,
            _ if status.is_client_error() => Self::ClientError,
            _ => Self::ServerError,
        }
    }

    pub(crate) fn of_error(error: &reqwest::Error) -> Self {
        match error {
            _ if error.is_timeout() => Self::TimedOut,
            _ if error.is_connect() => Self::Unreachable,
            _ => Self::ConnectionLost,
        }
    }

    /// Returns whether the next call to the host is likely to end in this way, too, regardless of its message.
    pub(crate) fn is_fault_of_host(self) -> bool {
        matches!(self, Self::ServerError | Self::TimedOut | Self::Unreachable | Self::ConnectionLost)
    }

    /// Returns the label of the metrics.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Delivered => "delivered",
            Self::Redirected => "redirected",
            Self::ClientError => "client_error",
            Self::RateLimited => "rate_limited",
            Self::Gone => "gone",
            Self::ServerError => "server_error",
            Self::TimedOut => "timed_out",
            Self::Unreachable => "unreachable",
            Self::ConnectionLost => "connection_lost",
            Self::InvalidUrl => "invalid_url",
            Self::HostFull => "host_full",
            Self::CircuitOpen => "circuit_open",
        }
    }
}
