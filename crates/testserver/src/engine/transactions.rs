//! MULTI, EXEC, DISCARD, WATCH and UNWATCH.

use bytes::Bytes;

use super::{Engine, refused};
use crate::client::{ClientSession, Transaction};
use crate::commands;
use crate::reply::{CommandResult, ErrorReply, RedisReply};

impl Engine {
    pub(super) fn multi(client: &mut ClientSession) -> CommandResult {
        if client.transaction.is_some() {
            return refused("ERR MULTI calls can not be nested");
        }
        client.transaction = Some(Transaction::default());
        Ok(RedisReply::OK)
    }

    /// Executes the queue. Its commands were checked when they were queued.
    pub(super) fn exec(&mut self, client: &mut ClientSession) -> CommandResult {
        let Some(transaction) = client.transaction.take() else { return refused("ERR EXEC without MULTI") };
        let changed = self.state().watches.end(client.id);
        if transaction.broken {
            return refused("EXECABORT Transaction discarded because of previous errors.");
        }
        if changed {
            return Ok(RedisReply::Nil);
        }
        let mut replies = Vec::with_capacity(transaction.commands.len());
        for args in &transaction.commands {
            let Some(command) = commands::find(args) else { continue };
            replies.push(self.run(client, command, args).unwrap_or_else(RedisReply::from));
        }
        Ok(RedisReply::Array(replies))
    }

    /// Ends the transaction of an EXEC that was refused, and returns the error.
    pub(super) fn abort(&mut self, client: &mut ClientSession, refusal: &ErrorReply) -> ErrorReply {
        client.transaction = None;
        self.state().watches.end(client.id);
        let reason = refusal.0.strip_prefix("ERR ").unwrap_or(&refusal.0);
        format!("EXECABORT Transaction discarded because of: {reason}").into()
    }

    pub(super) fn discard(&mut self, client: &mut ClientSession) -> CommandResult {
        if client.transaction.take().is_none() {
            return refused("ERR DISCARD without MULTI");
        }
        self.unwatch(client)
    }

    pub(super) fn watch(&mut self, client: &mut ClientSession, keys: &[Bytes]) -> CommandResult {
        if client.transaction.is_some() {
            return refused("ERR WATCH inside MULTI is not allowed");
        }
        keys.iter().for_each(|key| self.state().watches.watch(client.id, key));
        Ok(RedisReply::OK)
    }

    pub(super) fn unwatch(&mut self, client: &mut ClientSession) -> CommandResult {
        self.state().watches.end(client.id);
        Ok(RedisReply::OK)
    }
}
