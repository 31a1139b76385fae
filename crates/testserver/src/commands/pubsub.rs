//! Publishing and subscribing.

use bytes::Bytes;

use super::Call;
use crate::pubsub::Kind;
use crate::reply::{Answer, Reply};

pub(super) fn publish(call: &mut Call<'_>) -> Answer {
    Ok(Reply::count(call.state.pubsub.publish(call.arg(1), call.arg(2))))
}

pub(super) fn spublish(call: &mut Call<'_>) -> Answer {
    Ok(Reply::count(call.state.pubsub.publish_to_shard(call.arg(1), call.arg(2))))
}

/// Each name, and how many have subscribed to it.
pub(super) fn shardnumsub(call: &mut Call<'_>) -> Answer {
    let count = |name: &Bytes| Reply::count(call.state.pubsub.subscribers(Kind::Shard, name));
    let each = call.args[2..].iter().flat_map(|name| [Reply::Bulk(name.clone()), count(name)]);
    Ok(Reply::Array(each.collect()))
}

pub(super) fn subscribe(call: &mut Call<'_>) -> Answer {
    start(call, Kind::Channel)
}

pub(super) fn psubscribe(call: &mut Call<'_>) -> Answer {
    start(call, Kind::Pattern)
}

pub(super) fn ssubscribe(call: &mut Call<'_>) -> Answer {
    start(call, Kind::Shard)
}

pub(super) fn unsubscribe(call: &mut Call<'_>) -> Answer {
    end(call, Kind::Channel)
}

pub(super) fn punsubscribe(call: &mut Call<'_>) -> Answer {
    end(call, Kind::Pattern)
}

pub(super) fn sunsubscribe(call: &mut Call<'_>) -> Answer {
    end(call, Kind::Shard)
}

fn start(call: &mut Call<'_>, kind: Kind) -> Answer {
    let pubsub = &mut call.state.pubsub;
    if pubsub.carrier.as_ref().is_some_and(|carrier| !carrier.admits()) {
        pubsub.line_mut(call.client.id).iter().for_each(|line| line.outbox.close());
        return Ok(Reply::Nil); // which nobody gets any more
    }
    confirm_each(call, kind, &call.args[1..], |call, name| {
        call.state.pubsub.subscribe(call.client.id, kind, name);
    })
}

/// Without names, from everything of this kind.
fn end(call: &mut Call<'_>, kind: Kind) -> Answer {
    let all;
    let names = if call.args.len() > 1 {
        &call.args[1..]
    } else {
        all = call.state.pubsub.names(call.client.id, kind);
        &all[..]
    };
    if names.is_empty() {
        return Ok(confirmation(call, kind, Reply::Nil));
    }
    confirm_each(call, kind, names, |call, name| {
        call.state.pubsub.unsubscribe(call.client.id, kind, name);
    })
}

/// Each name is confirmed by a message of its own; the last is the answer.
fn confirm_each(
    call: &mut Call<'_>,
    kind: Kind,
    names: &[Bytes],
    act: impl Fn(&mut Call<'_>, &Bytes),
) -> Answer {
    let mut last = None;
    for name in names {
        if let Some(before) = last.take() {
            let (id, protocol) = (call.client.id, call.client.protocol);
            if let Some(line) = call.state.pubsub.line_mut(id) {
                line.outbox.send(&before, protocol);
            }
        }
        act(call, name);
        last = Some(confirmation(call, kind, Reply::Bulk(name.clone())));
    }
    Ok(last.unwrap_or(Reply::Nil))
}

fn confirmation(call: &Call<'_>, kind: Kind, name: Reply) -> Reply {
    let count = call.state.pubsub.count(call.client.id, kind);
    Reply::Push(vec![Reply::bulk(call.command.name), name, Reply::count(count)])
}
