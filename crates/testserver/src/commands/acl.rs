//! ACL.

use super::Call;
use crate::acl::DEFAULT;
use crate::reply::{Answer, Refusal, Reply};

fn word(call: &Call<'_>, at: usize) -> String {
    String::from_utf8_lossy(call.arg(at)).into_owned()
}

/// Subscriptions that a user may not have any more end with their connections.
pub(super) fn setuser(call: &mut Call<'_>) -> Answer {
    let name = word(call, 2);
    call.state.acl.set(&name, &call.args[3..])?;
    let (acl, lines) = (&call.state.acl, call.state.pubsub.lines());
    for (_, line) in lines.filter(|(_, line)| line.user == name) {
        if line.topics().any(|(kind, topic)| !acl.hears(&name, kind, topic)) {
            line.outbox.close();
        }
    }
    Ok(Reply::OK)
}

/// Connections of such a user end.
pub(super) fn deluser(call: &mut Call<'_>) -> Answer {
    let mut deleted = 0;
    for at in 2..call.args.len() {
        let name = word(call, at);
        if name == DEFAULT {
            return Err(Refusal::of("ERR The 'default' user cannot be removed"));
        }
        if call.state.acl.delete(&name) {
            deleted += 1;
            let lines = call.state.pubsub.lines().filter(|(_, line)| line.user == name);
            lines.for_each(|(_, line)| line.outbox.close());
        }
    }
    Ok(Reply::Int(deleted))
}

pub(super) fn getuser(call: &mut Call<'_>) -> Answer {
    let Some(user) = call.state.acl.user(&word(call, 2)) else { return Ok(Reply::Nil) };
    let [commands, keys, channels] = user.rights();
    let flags = user.flags().into_iter().map(Reply::bulk).collect();
    let fields = [
        ("flags", Reply::Set(flags)),
        ("passwords", Reply::Array(vec![])),
        ("commands", Reply::bulk(commands)),
        ("keys", Reply::bulk(keys)),
        ("channels", Reply::bulk(channels)),
    ];
    Ok(Reply::Map(fields.into_iter().map(|(name, value)| (Reply::bulk(name), value)).collect()))
}

pub(super) fn list(call: &mut Call<'_>) -> Answer {
    let acl = &call.state.acl;
    let line = |name: &str| acl.user(name).map(|user| Reply::bulk(format!("user {name} {}", user.rules())));
    Ok(Reply::Array(acl.names().filter_map(line).collect()))
}

pub(super) fn users(call: &mut Call<'_>) -> Answer {
    Ok(Reply::Array(call.state.acl.names().map(Reply::bulk).collect()))
}

pub(super) fn whoami(call: &mut Call<'_>) -> Answer {
    Ok(Reply::bulk(call.client.user.as_deref().unwrap_or(DEFAULT)))
}
