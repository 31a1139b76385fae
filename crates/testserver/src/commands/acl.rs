//! ACL.

use super::CommandCall;
use crate::acl::DEFAULT;
use crate::reply::{CommandResult, ErrorReply, RedisReply};

fn word(call: &CommandCall<'_>, at: usize) -> String {
    String::from_utf8_lossy(call.arg(at)).into_owned()
}

/// Subscriptions that a user may not have any more end with their connections.
pub(super) fn setuser(call: &mut CommandCall<'_>) -> CommandResult {
    let name = word(call, 2);
    call.state.acl.set(&name, &call.args[3..])?;
    let (acl, lines) = (&call.state.acl, call.state.pubsub.connections());
    for (_, line) in lines.filter(|(_, line)| line.user == name) {
        if line.topics().any(|(kind, topic)| !acl.may_subscribe(&name, kind, topic)) {
            line.outbox.close();
        }
    }
    Ok(RedisReply::OK)
}

/// Connections of such a user end.
pub(super) fn deluser(call: &mut CommandCall<'_>) -> CommandResult {
    let mut deleted = 0;
    for at in 2..call.args.len() {
        let name = word(call, at);
        if name == DEFAULT {
            return Err(ErrorReply::of("ERR The 'default' user cannot be removed"));
        }
        if call.state.acl.delete(&name) {
            deleted += 1;
            let lines = call.state.pubsub.connections().filter(|(_, line)| line.user == name);
            lines.for_each(|(_, line)| line.outbox.close());
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
