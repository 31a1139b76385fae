//! Exit codes, and errors of commands.

use std::fmt;
use std::io;
use std::process::ExitCode;

use keylapse::ErrorKind;

/// The exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// The command succeeded, and found no problem.
    Success,
    /// The command found a problem, or nothing matched.
    ProblemsFound,
    /// The command line is invalid, or names a file or address that cannot be used.
    Usage,
    /// The server cannot be reached, or refuses the call.
    Unreachable,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::Success => 0,
            Exit::ProblemsFound => 1,
            Exit::Usage => 2,
            Exit::Unreachable => 3,
        })
    }
}

/// Why a command failed.
#[derive(Debug)]
pub(crate) enum CliError {
    /// The error of the library or the server.
    Keylapse(keylapse::Error),
    /// The command line is invalid. The text names the remedy.
    Usage(String),
    /// The state of the topics does not allow the command, or nothing matched.
    Findings(String),
    /// No program answers at the address.
    Unreachable(String),
    /// A file or the terminal cannot be used.
    Io(io::Error),
}

impl CliError {
    /// Returns the error for a namespace without topics, whose name may be misspelt.
    pub(crate) fn no_topics(namespace: &str) -> Self {
        Self::Findings(format!(
            "no topic is registered in namespace {namespace}: programs register theirs when they first use them; choose \
             another namespace with -n"
        ))
    }

    pub(crate) fn exit(&self) -> Exit {
        match self {
            Self::Keylapse(error) => of_kind(error.kind()),
            Self::Usage(_) => Exit::Usage,
            Self::Findings(_) => Exit::ProblemsFound,
            Self::Unreachable(_) => Exit::Unreachable,
            // The reader of a pipe, such as `head`, has read enough.
            Self::Io(error) if error.kind() == io::ErrorKind::BrokenPipe => Exit::Success,
            Self::Io(_) => Exit::Usage,
        }
    }

    /// Returns the options or the command that solve an error of the library.
    pub(crate) fn hint(&self) -> Option<&'static str> {
        let Self::Keylapse(error) = self else { return None };
        match error.kind() {
            ErrorKind::Auth => {
                Some("--user and --password-file set the login; KEYLAPSE_URL can hold it, too")
            }
            ErrorKind::Tls => Some("--tls-ca, --tls-cert with --tls-key, and --tls-name set up TLS"),
            ErrorKind::Destroying => Some("`keylapse destroy` of the same topic continues"),
            ErrorKind::Repartitioning => Some("`keylapse partitions` with the same --to continues"),
            _ => None,
        }
    }
}

fn of_kind(kind: ErrorKind) -> Exit {
    match kind {
        ErrorKind::Invalid | ErrorKind::TooLarge | ErrorKind::Payload => Exit::Usage,
        ErrorKind::InUse | ErrorKind::Conflict => Exit::ProblemsFound,
        _ => Exit::Unreachable,
    }
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Keylapse(error) => error.fmt(f),
            Self::Usage(what) | Self::Findings(what) | Self::Unreachable(what) => f.write_str(what),
            Self::Io(error) => error.fmt(f),
        }
    }
}

impl From<keylapse::Error> for CliError {
    fn from(error: keylapse::Error) -> Self {
        Self::Keylapse(error)
    }
}

impl From<io::Error> for CliError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}
