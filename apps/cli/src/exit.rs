//! How the program ends.

use std::fmt;
use std::io;
use std::process::ExitCode;

use keylapse::ErrorKind;

/// The exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// All is well, and what was asked for was there.
    Fine,
    /// There are findings, or nothing matched.
    Findings,
    /// The command makes no sense, or names what cannot be read, written or listened at.
    Usage,
    /// The server cannot be reached, or refuses.
    Unreachable,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::Fine => 0,
            Exit::Findings => 1,
            Exit::Usage => 2,
            Exit::Unreachable => 3,
        })
    }
}

/// Why a command did not do what it was to do.
#[derive(Debug)]
pub(crate) enum Failed {
    /// The library or the server has said why.
    Keylapse(keylapse::Error),
    /// The command line makes no sense; what to write instead.
    Usage(String),
    /// What was asked for is not so.
    Findings(String),
    /// No program answers at the address.
    Unreachable(String),
    /// A file or the terminal.
    Io(io::Error),
}

impl Failed {
    /// There is nothing in the namespace: it may be misspelt.
    pub(crate) fn no_topics(namespace: &str) -> Self {
        Self::Findings(format!(
            "no topic is registered in namespace {namespace}: programs register theirs when they first use them; -n names \
             another namespace"
        ))
    }

    pub(crate) fn exit(&self) -> Exit {
        match self {
            Self::Keylapse(error) => of_kind(error.kind()),
            Self::Usage(_) => Exit::Usage,
            Self::Findings(_) => Exit::Findings,
            Self::Unreachable(_) => Exit::Unreachable,
            // Whoever read has read enough.
            Self::Io(error) if error.kind() == io::ErrorKind::BrokenPipe => Exit::Fine,
            Self::Io(_) => Exit::Usage,
        }
    }

    /// What the library's advice comes to on the command line.
    pub(crate) fn here(&self) -> Option<&'static str> {
        let Self::Keylapse(error) = self else { return None };
        match error.kind() {
            ErrorKind::Auth => Some("--user and --password-file say who you are; so does the environment"),
            ErrorKind::Tls => Some("--tls-ca, --tls-cert with --tls-key, and --tls-name are for TLS"),
            ErrorKind::Destroying => Some("`keylapse destroy` of the same topic goes on"),
            ErrorKind::Repartitioning => Some("`keylapse partitions` with the same --to goes on"),
            _ => None,
        }
    }
}

fn of_kind(kind: ErrorKind) -> Exit {
    match kind {
        ErrorKind::Invalid | ErrorKind::TooLarge | ErrorKind::Payload => Exit::Usage,
        ErrorKind::InUse | ErrorKind::Conflict => Exit::Findings,
        _ => Exit::Unreachable,
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Keylapse(error) => error.fmt(f),
            Self::Usage(what) | Self::Findings(what) | Self::Unreachable(what) => f.write_str(what),
            Self::Io(error) => error.fmt(f),
        }
    }
}

impl From<keylapse::Error> for Failed {
    fn from(error: keylapse::Error) -> Self {
        Self::Keylapse(error)
    }
}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}
