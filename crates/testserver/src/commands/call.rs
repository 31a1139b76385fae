//! What a command's function is given.

use bytes::Bytes;

use crate::client::Client;
use crate::number;
use crate::reply::{Answer, Refusal};
use crate::state::State;

use super::Command;

/// A command that is being executed, its name first among its words.
pub(crate) struct Call<'a> {
    pub(crate) state: &'a mut State,
    pub(crate) client: &'a mut Client,
    pub(crate) command: &'static Command,
    pub(crate) args: &'a [Bytes],
}

impl<'a> Call<'a> {
    /// A word that the table has made sure of.
    pub(crate) fn arg(&self, at: usize) -> &'a Bytes {
        &self.args[at]
    }

    /// Whether the word is there and is this one, in any case.
    pub(crate) fn is(&self, at: usize, word: &str) -> bool {
        self.args.get(at).is_some_and(|arg| arg.eq_ignore_ascii_case(word.as_bytes()))
    }

    pub(crate) fn int(&self, at: usize) -> Result<i64, Refusal> {
        let arg = self.args.get(at).ok_or(Refusal::SYNTAX)?;
        number::integer(arg).ok_or(Refusal::NOT_AN_INTEGER)
    }

    pub(crate) fn wrong_arity(&self) -> Answer {
        Err(wrong_arity(self.command.name))
    }
}

pub(crate) fn wrong_arity(name: &str) -> Refusal {
    format!("ERR wrong number of arguments for '{name}' command").into()
}
