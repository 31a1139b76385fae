//! The subcommands of ACL.

use super::CommandCall;
use crate::acl::DEFAULT;
use crate::reply::{CommandResult, ErrorReply, RedisReply};

fn word(call: &CommandCall<'_>, at: usize) -> String {
    String::from_utf8_lossy(call.arg(at)).into_owned()
}

/// Creates or changes a user. Closes connections with subscriptions that the user may no longer have.
pub(super) fn setuser(call: &mut CommandCall<'_>) -> CommandResult {
    let name = word(call, 2);
    call.state.acl.set(&name, &call.args[3..])?;
    let (acl, connections) = (&call.state.acl, call.state.pubsub.connections());
    for (_, connection) in connections.filter(|(_, connection)| connection.user == name) {
        if connection.topics().any(|(kind, topic)| !acl.may_subscribe(&name, kind, topic)) {
            connection.outbox.close();
        }
    }
    Ok(RedisReply::OK)
}

/// Deletes users, and closes their connections.
pub(super) fn deluser(call: &mut CommandCall<'_>) -> CommandResult {
    let mut deleted = 0;
    for at in 2..call.args.len() {
        let name = word(call, at);
        if name == DEFAULT {
            return Err(ErrorReply::of("ERR The 'default' user cannot be removed"));
        }
        if call.state.acl.delete(&name) {
            deleted += 1;
            let connections = call.state.pubsub.connections();
            let closed = connections.filter(|(_, connection)| connection.user == name);
            closed.for_each(|(_, connection)| connection.outbox.close());
        }
    }
    Ok(RedisReply::Int(deleted))
}

pub(super) fn getuser(call: &mut CommandCall<'_>) -> CommandResult {
    let Some(user) = call.state.acl.user(&word(call, 2)) else { return Ok(RedisReply::Nil) };
    let [commands, keys, channels] = user.rights();
    let flags = user.flags().into_iter().map(RedisReply::bulk).collect();
    let fields = [
        ("flags", RedisReply::Set(flags)),
        ("passwords", RedisReply::Array(vec![])),
        ("commands", RedisReply::bulk(commands)),
        ("keys", RedisReply::bulk(keys)),
        ("channels", RedisReply::bulk(channels)),
    ];
    Ok(RedisReply::Map(fields.into_iter().map(|(name, value)| (RedisReply::bulk(name), value)).collect()))
}

pub(super) fn list(call: &mut CommandCall<'_>) -> CommandResult {
    let acl = &call.state.acl;
    let line =
        |name: &str| acl.user(name).map(|user| RedisReply::bulk(format!("user {name} {}", user.rules())));
    Ok(RedisReply::Array(acl.names().filter_map(line).collect()))
}

pub(super) fn users(call: &mut CommandCall<'_>) -> CommandResult {
    Ok(RedisReply::Array(call.state.acl.names().map(RedisReply::bulk).collect()))
}

pub(super) fn whoami(call: &mut CommandCall<'_>) -> CommandResult {
    Ok(RedisReply::bulk(call.client.user.as_deref().unwrap_or(DEFAULT)))
}
