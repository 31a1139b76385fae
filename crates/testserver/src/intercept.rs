//! What a test may do to commands before they are executed.

use bytes::Bytes;

/// A command that has arrived on a connection.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct CommandRequest<'a> {
    /// Which connection: what `CLIENT ID` answers there.
    pub connection: u64,
    /// Its words, the name first.
    pub args: &'a [Bytes],
}

impl CommandRequest<'_> {
    /// Whether it is this command, in any case.
    #[must_use]
    pub fn is(&self, name: &str) -> bool {
        self.args.first().is_some_and(|arg| arg.eq_ignore_ascii_case(name.as_bytes()))
    }
}

/// What becomes of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Intervention {
    /// It is executed and answered.
    Execute,
    /// It is not executed, and answered by this error: `LOADING Redis is loading the dataset in memory`.
    Refuse(String),
    /// It is executed; then the connection ends without an answer.
    Unanswered,
    /// It is executed and never answered. The connection stays, and is silent for ever: nothing that
    /// follows on it is executed or answered, and no message comes.
    Hang,
}

/// Decides what becomes of each command.
pub(crate) type Hook = dyn Fn(&CommandRequest<'_>) -> Intervention + Send + Sync;
