//! The argument of a command's function.

use bytes::Bytes;

use crate::client::ClientSession;
use crate::number;
use crate::reply::{CommandResult, ErrorReply};
use crate::state::State;

use super::RedisCommand;

/// A command that is being executed. Its name is the first of `args`.
pub(crate) struct CommandCall<'a> {
    pub(crate) state: &'a mut State,
    pub(crate) client: &'a mut ClientSession,
    pub(crate) command: &'static RedisCommand,
    pub(crate) args: &'a [Bytes],
}

impl<'a> CommandCall<'a> {
    /// Returns an argument that the command's arity guarantees.
    pub(crate) fn arg(&self, at: usize) -> &'a Bytes {
        &self.args[at]
    }

    /// Returns whether an argument exists and equals `word`, in upper or lower case.
    pub(crate) fn is(&self, at: usize, word: &str) -> bool {
        self.args.get(at).is_some_and(|arg| arg.eq_ignore_ascii_case(word.as_bytes()))
    }

    pub(crate) fn int(&self, at: usize) -> Result<i64, ErrorReply> {
        let arg = self.args.get(at).ok_or(ErrorReply::SYNTAX)?;
        number::integer(arg).ok_or(ErrorReply::NOT_AN_INTEGER)
    }

    pub(crate) fn wrong_arity(&self) -> CommandResult {
        Err(wrong_arity(self.command.name))
    }
}

pub(crate) fn wrong_arity(name: &str) -> ErrorReply {
    format!("ERR wrong number of arguments for '{name}' command").into()
}
