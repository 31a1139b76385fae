//! What is handed to workers of other languages.

use keylapse_connection::Value;

use crate::error::{Error, ErrorKind, Result};
use crate::{Store, scripts};

/// Something to put into a list or a stream, once.
#[derive(Clone, Debug)]
pub struct Forwarding<'a> {
    /// The list or stream.
    pub into: &'a [u8],
    /// Remembers that it was put there; in the slot of `into`.
    pub memory: &'a [u8],
    /// Else it is a list.
    pub is_stream: bool,
    /// While it has so many, nothing is put there; 0: any number.
    pub max_length: u64,
    /// For how long, in ms.
    pub remember_ms: u64,
    /// What is put there once.
    pub id: &'a [u8],
    /// What workers get.
    pub message: &'a [u8],
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Forwarded {
    /// It was put there.
    Put,
    /// It had been put there before, by an attempt whose end was not heard.
    Before,
    /// There is no room: it was not put there.
    Full,
}

impl Store {
    /// Puts something there, if it was not and there is room.
    ///
    /// # Errors
    /// When the server cannot be reached or refuses.
    pub async fn forward(&self, what: &Forwarding<'_>) -> Result<Forwarded> {
        if self.0.topology.slot_of(what.into) != self.0.topology.slot_of(what.memory) {
            return Err(Error::invalid("a list or stream with a } in its name needs a hash tag before that"));
        }
        let mut call = self.call_with(&scripts::FORWARD, &[what.into, what.memory]);
        call.arg(if what.is_stream { "stream" } else { "list" }).arg(what.max_length).arg(what.remember_ms);
        call.arg(what.id).arg(what.message);
        match call.run().await? {
            Value::Int(1) => Ok(Forwarded::Put),
            Value::Int(0) => Ok(Forwarded::Before),
            Value::Int(2) => Ok(Forwarded::Full),
            _ => Err(Error::new(ErrorKind::Server, "forward: the server's answer makes no sense")),
        }
    }
}
