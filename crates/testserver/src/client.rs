//! What the server knows of a connection while it executes its commands.

use bytes::Bytes;

use crate::resp::Protocol;

/// Who sends a command.
#[derive(Debug)]
pub(crate) struct ClientSession {
    pub(crate) id: u64,
    pub(crate) name: Bytes,
    pub(crate) protocol: Protocol,
    /// None: nobody has logged in.
    pub(crate) user: Option<String>,
    pub(crate) transaction: Option<Transaction>,
    /// The connection ends after this answer.
    pub(crate) leaves: bool,
}

/// Commands between MULTI and EXEC.
#[derive(Debug, Default)]
pub(crate) struct Transaction {
    pub(crate) commands: Vec<Vec<Bytes>>,
    /// One was refused: EXEC executes none.
    pub(crate) broken: bool,
}

impl ClientSession {
    pub(crate) fn new(id: u64, user: Option<String>) -> Self {
        Self { id, name: Bytes::new(), protocol: Protocol::Resp2, user, transaction: None, leaves: false }
    }
}
