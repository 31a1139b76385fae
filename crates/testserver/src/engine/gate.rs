//! The checks before a command is executed, in the order of Redis.

use bytes::Bytes;

use crate::acl::Denial;
use crate::client::ClientSession;
use crate::commands::{self, CommandFlags, RedisCommand};
use crate::reply::ErrorReply;
use crate::resp::Protocol;
use crate::state::State;

/// The part of a command that an error shows.
const MAX_SHOWN_BYTES: usize = 128;

pub(super) fn admit(
    state: &mut State,
    client: &ClientSession,
    args: &[Bytes],
) -> Result<&'static RedisCommand, ErrorReply> {
    let command = commands::find(args).ok_or_else(|| unknown(args))?;
    if !command.takes(args.len()) {
        return Err(commands::wrong_arity(command.name));
    }
    let free = command.flags.has(CommandFlags::NO_AUTH);
    match &client.user {
        None if !free => return Err(ErrorReply::of("NOAUTH Authentication required.")),
        Some(user) if !free => {
            state.acl.check(user, command, args).map_err(|denial| denied(denial, command))?;
        }
        _ => {}
    }
    if (command.flags.has(CommandFlags::DENY_OOM) || transaction_grows(client, command)) && state.is_full() {
        return Err(ErrorReply::OUT_OF_MEMORY);
    }
    if client.protocol == Protocol::Resp2
        && !command.flags.has(CommandFlags::SUBSCRIBED)
        && state.pubsub.is_subscriber(client.id)
    {
        return Err(only_messages(command));
    }
    Ok(command)
}

pub(super) fn is_exec(args: &[Bytes]) -> bool {
    args.first().is_some_and(|name| name.eq_ignore_ascii_case(b"exec"))
}

/// Returns whether the command makes a transaction need memory. Queueing a command needs memory, too.
fn transaction_grows(client: &ClientSession, command: &RedisCommand) -> bool {
    match command.name {
        _ if client.transaction.is_none() => false,
        "exec" => queue_grows(client),
        name => !["discard", "quit", "reset"].contains(&name),
    }
}

fn queue_grows(client: &ClientSession) -> bool {
    let queued = client.transaction.iter().flat_map(|transaction| &transaction.commands);
    queued.filter_map(|args| commands::find(args)).any(|command| command.flags.has(CommandFlags::DENY_OOM))
}

fn unknown(args: &[Bytes]) -> ErrorReply {
    let shown = |word: &Bytes| String::from_utf8_lossy(&word[..word.len().min(MAX_SHOWN_BYTES)]).into_owned();
    let mut rest = String::new();
    for word in &args[1..] {
        if rest.len() >= MAX_SHOWN_BYTES {
            break;
        }
        rest.push_str(&format!("'{}' ", shown(word)));
    }
    format!("ERR unknown command '{}', with args beginning with: {rest}", shown(&args[0])).into()
}

fn denied(denial: Denial, command: &RedisCommand) -> ErrorReply {
    match denial {
        Denial::Command => {
            format!("NOPERM this user has no permissions to run the '{}' command", command.name).into()
        }
        Denial::Key => {
            ErrorReply::of("NOPERM this user has no permissions to access one of the keys used as arguments")
        }
        Denial::Channel => ErrorReply::of(
            "NOPERM this user has no permissions to access one of the channels used as arguments",
        ),
    }
}

fn only_messages(command: &RedisCommand) -> ErrorReply {
    let name = command.name;
    format!(
        "ERR Can't execute '{name}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed \
         in this context"
    )
    .into()
}
