//! The commands to publish and subscribe.

use bytes::Bytes;

use super::CommandCall;
use crate::pubsub::Kind;
use crate::reply::{CommandResult, RedisReply};

pub(super) fn publish(call: &mut CommandCall<'_>) -> CommandResult {
    Ok(RedisReply::count(call.state.pubsub.publish(call.arg(1), call.arg(2))))
}

pub(super) fn spublish(call: &mut CommandCall<'_>) -> CommandResult {
    Ok(RedisReply::count(call.state.pubsub.publish_to_shard(call.arg(1), call.arg(2))))
}

/// Returns each name with its number of subscribers.
pub(super) fn shardnumsub(call: &mut CommandCall<'_>) -> CommandResult {
    let count = |name: &Bytes| RedisReply::count(call.state.pubsub.subscribers(Kind::Shard, name));
    let each = call.args[2..].iter().flat_map(|name| [RedisReply::Bulk(name.clone()), count(name)]);
    Ok(RedisReply::Array(each.collect()))
}

pub(super) fn subscribe(call: &mut CommandCall<'_>) -> CommandResult {
    start(call, Kind::Channel)
}

pub(super) fn psubscribe(call: &mut CommandCall<'_>) -> CommandResult {
    start(call, Kind::Pattern)
}

pub(super) fn ssubscribe(call: &mut CommandCall<'_>) -> CommandResult {
    start(call, Kind::Shard)
}

pub(super) fn unsubscribe(call: &mut CommandCall<'_>) -> CommandResult {
    end(call, Kind::Channel)
}

pub(super) fn punsubscribe(call: &mut CommandCall<'_>) -> CommandResult {
    end(call, Kind::Pattern)
}

pub(super) fn sunsubscribe(call: &mut CommandCall<'_>) -> CommandResult {
    end(call, Kind::Shard)
}

fn start(call: &mut CommandCall<'_>, kind: Kind) -> CommandResult {
    let pubsub = &mut call.state.pubsub;
    if pubsub.carrier.as_ref().is_some_and(|carrier| !carrier.admits()) {
        pubsub.connection_mut(call.client.id).iter().for_each(|connection| connection.outbox.close());
        return Ok(RedisReply::Nil); // is not sent, because the connection is closed
    }
    confirm_each(call, kind, &call.args[1..], |call, name| {
        call.state.pubsub.subscribe(call.client.id, kind, name);
    })
}

/// Ends subscriptions. Without names it ends all of this kind.
fn end(call: &mut CommandCall<'_>, kind: Kind) -> CommandResult {
    let all;
    let names = if call.args.len() > 1 {
        &call.args[1..]
    } else {
        all = call.state.pubsub.names(call.client.id, kind);
        &all[..]
    };
    if names.is_empty() {
        return Ok(confirmation(call, kind, RedisReply::Nil));
    }
    confirm_each(call, kind, names, |call, name| {
        call.state.pubsub.unsubscribe(call.client.id, kind, name);
    })
}

/// Confirms each name with a push. Returns the last one as the reply.
fn confirm_each(
    call: &mut CommandCall<'_>,
    kind: Kind,
    names: &[Bytes],
    act: impl Fn(&mut CommandCall<'_>, &Bytes),
) -> CommandResult {
    let mut last = None;
    for name in names {
        if let Some(before) = last.take() {
            let (id, protocol) = (call.client.id, call.client.protocol);
            if let Some(connection) = call.state.pubsub.connection_mut(id) {
                connection.outbox.send(&before, protocol);
            }
        }
        act(call, name);
        last = Some(confirmation(call, kind, RedisReply::Bulk(name.clone())));
    }
    Ok(last.unwrap_or(RedisReply::Nil))
}

fn confirmation(call: &CommandCall<'_>, kind: Kind, name: RedisReply) -> RedisReply {
    let count = call.state.pubsub.count(call.client.id, kind);
    RedisReply::Push(vec![RedisReply::bulk(call.command.name), name, RedisReply::count(count)])
}
