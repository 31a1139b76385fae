//! MULTI and what belongs to it.

use bytes::Bytes;

use super::{Engine, refused};
use crate::client::{Client, Transaction};
use crate::commands;
use crate::reply::{Answer, Refusal, Reply};

impl Engine {
    pub(super) fn multi(client: &mut Client) -> Answer {
        if client.transaction.is_some() {
            return refused("ERR MULTI calls can not be nested");
        }
        client.transaction = Some(Transaction::default());
        Ok(Reply::OK)
    }

    /// What the queue holds was admitted when it came.
    pub(super) fn exec(&mut self, client: &mut Client) -> Answer {
        let Some(transaction) = client.transaction.take() else { return refused("ERR EXEC without MULTI") };
        let changed = self.state().watches.end(client.id);
        if transaction.broken {
            return refused("EXECABORT Transaction discarded because of previous errors.");
        }
        if changed {
            return Ok(Reply::Nil);
        }
        let mut replies = Vec::with_capacity(transaction.commands.len());
        for args in &transaction.commands {
            let Some(command) = commands::find(args) else { continue };
            replies.push(self.run(client, command, args).unwrap_or_else(Reply::from));
        }
        Ok(Reply::Array(replies))
    }

    /// An EXEC that is itself refused ends the transaction.
    pub(super) fn abort(&mut self, client: &mut Client, refusal: &Refusal) -> Refusal {
        client.transaction = None;
        self.state().watches.end(client.id);
        let reason = refusal.0.strip_prefix("ERR ").unwrap_or(&refusal.0);
        format!("EXECABORT Transaction discarded because of: {reason}").into()
    }

    pub(super) fn discard(&mut self, client: &mut Client) -> Answer {
        if client.transaction.take().is_none() {
            return refused("ERR DISCARD without MULTI");
        }
        self.unwatch(client)
    }

    pub(super) fn watch(&mut self, client: &mut Client, keys: &[Bytes]) -> Answer {
        if client.transaction.is_some() {
            return refused("ERR WATCH inside MULTI is not allowed");
        }
        keys.iter().for_each(|key| self.state().watches.watch(client.id, key));
        Ok(Reply::OK)
    }

    pub(super) fn unwatch(&mut self, client: &mut Client) -> Answer {
        self.state().watches.end(client.id);
        Ok(Reply::OK)
    }
}
