//! The subcommands of CLIENT.

use bytes::Bytes;

use super::CommandCall;
use crate::reply::{CommandResult, ErrorReply, RedisReply};

pub(super) fn id(call: &mut CommandCall<'_>) -> CommandResult {
    Ok(RedisReply::Int(i64::try_from(call.client.id).unwrap_or(i64::MAX)))
}

pub(super) fn getname(call: &mut CommandCall<'_>) -> CommandResult {
    let name = call.client.name.clone();
    Ok(if name.is_empty() { RedisReply::Nil } else { RedisReply::Bulk(name) })
}

pub(super) fn setname(call: &mut CommandCall<'_>) -> CommandResult {
    call.client.name = name(call.arg(2))?;
    Ok(RedisReply::OK)
}

/// Checks the name of a client, which must not have spaces.
pub(super) fn name(word: &Bytes) -> Result<Bytes, ErrorReply> {
    let fits = word.iter().all(|byte| (b'!'..=b'~').contains(byte));
    let text = "ERR Client names cannot contain spaces, newlines or special characters.";
    if fits { Ok(word.clone()) } else { Err(ErrorReply::of(text)) }
}

pub(super) fn setinfo(_: &mut CommandCall<'_>) -> CommandResult {
    Ok(RedisReply::OK)
}

pub(super) fn no_evict(call: &mut CommandCall<'_>) -> CommandResult {
    if call.is(2, "ON") || call.is(2, "OFF") { Ok(RedisReply::OK) } else { Err(ErrorReply::SYNTAX) }
}

/// Closes the connections that all filters (TYPE, ID) select, and returns their number.
pub(super) fn kill(call: &mut CommandCall<'_>) -> CommandResult {
    if call.args.len() == 3 {
        return Err(ErrorReply::of("ERR No such client"));
    }
    if !call.args.len().is_multiple_of(2) {
        return Err(ErrorReply::SYNTAX);
    }
    let mut victims: Vec<u64> = call.state.pubsub.connections().map(|(id, _)| id).collect();
    let mut skip_me = true;
    for at in (2..call.args.len()).step_by(2) {
        if call.is(at, "SKIPME") {
            skip_me = call.is(at + 1, "yes");
        } else if call.is(at, "ID") {
            let id = u64::try_from(call.int(at + 1)?).unwrap_or_default();
            victims.retain(|victim| *victim == id);
        } else if call.is(at, "TYPE") {
            let subscribers = kind(call, at + 1)?;
            victims.retain(|id| call.state.pubsub.is_subscriber(*id) == subscribers);
        } else {
            return Err(ErrorReply::SYNTAX);
        }
    }
    victims.retain(|id| !skip_me || *id != call.client.id);
    end(call, &victims)
}

/// Returns true for the type `pubsub`, and false for `normal`.
fn kind(call: &CommandCall<'_>, at: usize) -> Result<bool, ErrorReply> {
    match () {
        () if call.is(at, "pubsub") => Ok(true),
        () if call.is(at, "normal") => Ok(false),
        () => Err(format!("ERR Unknown client type '{}'", String::from_utf8_lossy(call.arg(at))).into()),
    }
}

fn end(call: &mut CommandCall<'_>, victims: &[u64]) -> CommandResult {
    for id in victims {
        if *id == call.client.id {
            call.client.leaves = true;
        } else if let Some(connection) = call.state.pubsub.connection_mut(*id) {
            connection.outbox.close();
        }
    }
    Ok(RedisReply::count(victims.len()))
}
