//! Faults of commands.

use bytes::Bytes;

/// A command that has arrived on a connection.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct CommandRequest<'a> {
    /// The ID of the connection, as `CLIENT ID` returns it.
    pub connection: u64,
    /// The name and the arguments.
    pub args: &'a [Bytes],
}

impl CommandRequest<'_> {
    /// Returns whether it is the command `name`, in upper or lower case.
    #[must_use]
    pub fn is(&self, name: &str) -> bool {
        self.args.first().is_some_and(|arg| arg.eq_ignore_ascii_case(name.as_bytes()))
    }
}

/// The treatment of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Intervention {
    /// Executes the command and sends the reply.
    Execute,
    /// Sends this error and does not execute the command: `LOADING Redis is loading the dataset in memory`.
    Refuse(String),
    /// Executes the command, and closes the connection without a reply.
    Unanswered,
    /// Executes the command and sends no reply. The connection stays open and is silent from then on: it executes no further
    /// command, and sends no reply and no message.
    Hang,
}

/// Decides how each command is treated.
pub(crate) type Hook = dyn Fn(&CommandRequest<'_>) -> Intervention + Send + Sync;
