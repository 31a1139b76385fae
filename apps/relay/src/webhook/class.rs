//! What calls come to, in a word: for metrics, and for what is known of a host.

use reqwest::StatusCode;

/// How a call has ended, or why none was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    Delivered,
    Redirected,
    Refused,
    TooMany,
    Gone,
    Broken,
    /// No answer in time.
    TimedOut,
    /// No connection: no such name, nobody there, an address or a certificate that is not taken.
    Unreachable,
    /// The connection ended before the answer, or what came is none.
    CutOff,
    /// No call: the URL leads where it may not, or there is none.
    Misdirected,
    /// No call: all places of the host are taken.
    HostFull,
    /// No call: the host has failed too often, and is left alone.
    HostOpen,
}

impl Class {
    /// All of them.
    pub(crate) const ALL: [Self; 12] = [
        Self::Delivered,
        Self::Redirected,
        Self::Refused,
        Self::TooMany,
        Self::Gone,
        Self::Broken,
        Self::TimedOut,
        Self::Unreachable,
        Self::CutOff,
        Self::Misdirected,
        Self::HostFull,
        Self::HostOpen,
    ];

    pub(crate) fn of(status: StatusCode) -> Self {
        match status {
            StatusCode::GONE => Self::Gone,
            StatusCode::TOO_MANY_REQUESTS => Self::TooMany,
            _ if status.is_success() => Self::Delivered,
            _ if status.is_redirection() => Self::Redirected,
            _ if status.is_client_error() => Self::Refused,
            _ => Self::Broken,
        }
    }

    pub(crate) fn of_error(error: &reqwest::Error) -> Self {
        match error {
            _ if error.is_timeout() => Self::TimedOut,
            _ if error.is_connect() => Self::Unreachable,
            _ => Self::CutOff,
        }
    }

    /// Whether the next call is likely to end so, too, whatever it says.
    pub(crate) fn is_fault_of_host(self) -> bool {
        matches!(self, Self::Broken | Self::TimedOut | Self::Unreachable | Self::CutOff)
    }

    /// As a label of a metric.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Delivered => "delivered",
            Self::Redirected => "redirected",
            Self::Refused => "refused",
            Self::TooMany => "too_many",
            Self::Gone => "gone",
            Self::Broken => "broken",
            Self::TimedOut => "timed_out",
            Self::Unreachable => "unreachable",
            Self::CutOff => "cut_off",
            Self::Misdirected => "misdirected",
            Self::HostFull => "host_full",
            Self::HostOpen => "host_open",
        }
    }
}
