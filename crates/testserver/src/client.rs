//! The state of a connection that commands read and change.

use bytes::Bytes;

use crate::resp::Protocol;

/// The client of a connection.
#[derive(Debug)]
pub(crate) struct ClientSession {
    pub(crate) id: u64,
    pub(crate) name: Bytes,
    pub(crate) protocol: Protocol,
    /// `None` until the client logs in.
    pub(crate) user: Option<String>,
    pub(crate) transaction: Option<Transaction>,
    /// True if the connection ends after this reply.
    pub(crate) leaves: bool,
}

/// The commands between MULTI and EXEC.
#[derive(Debug, Default)]
pub(crate) struct Transaction {
    pub(crate) commands: Vec<Vec<Bytes>>,
    /// True if a command was refused. EXEC then executes none.
    pub(crate) broken: bool,
}

impl ClientSession {
    pub(crate) fn new(id: u64, user: Option<String>) -> Self {
        Self { id, name: Bytes::new(), protocol: Protocol::Resp2, user, transaction: None, leaves: false }
    }
}
