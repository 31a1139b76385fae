//! The commands for the server as a whole.

use super::CommandCall;
use super::connection::VERSION;
use crate::reply::{CommandResult, ErrorReply, RedisReply};

/// Returns the error of a command with subcommands for an unknown subcommand.
pub(super) fn unknown_subcommand(call: &mut CommandCall<'_>) -> CommandResult {
    let (name, word) = (call.command.name.to_uppercase(), String::from_utf8_lossy(call.arg(1)));
    Err(format!("ERR unknown subcommand '{word:.128}'. Try {name} HELP.").into())
}

pub(super) fn time(call: &mut CommandCall<'_>) -> CommandResult {
    let now = call.state.now_micros;
    let parts = [now / 1_000_000, now % 1_000_000];
    Ok(RedisReply::Array(parts.map(|part| RedisReply::bulk(part.to_string())).into()))
}

pub(super) fn role(_: &mut CommandCall<'_>) -> CommandResult {
    Ok(RedisReply::Array(vec![RedisReply::bulk("master"), RedisReply::Int(0), RedisReply::Array(vec![])]))
}

/// Returns 0, because there are no replicas.
pub(super) fn wait(call: &mut CommandCall<'_>) -> CommandResult {
    call.int(1)?;
    call.int(2)?;
    Ok(RedisReply::Int(0))
}

pub(super) fn waitaof(call: &mut CommandCall<'_>) -> CommandResult {
    let (local, _, _) = (call.int(1)?, call.int(2)?, call.int(3)?);
    if local > 0 {
        return Err(ErrorReply::of(
            "ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.",
        ));
    }
    Ok(RedisReply::Array(vec![RedisReply::Int(0), RedisReply::Int(0)]))
}

/// Returns no description of any command. Clients do without.
pub(super) fn command(_: &mut CommandCall<'_>) -> CommandResult {
    Ok(RedisReply::Array(vec![]))
}

pub(super) fn info(call: &mut CommandCall<'_>) -> CommandResult {
    let sections: Vec<String> =
        call.args[1..].iter().map(|arg| String::from_utf8_lossy(arg).to_lowercase()).collect();
    let everything = sections.is_empty()
        || sections.iter().any(|name| matches!(name.as_str(), "all" | "default" | "everything"));
    let mut text = String::new();
    for (name, lines) in lines(call) {
        if everything || sections.iter().any(|section| section.eq_ignore_ascii_case(name)) {
            if !text.is_empty() {
                text.push_str("\r\n");
            }
            text.push_str(&format!("# {name}\r\n"));
            lines.iter().for_each(|(field, value)| text.push_str(&format!("{field}:{value}\r\n")));
        }
    }
    Ok(RedisReply::Verbatim(text.into()))
}

type Section = (&'static str, Vec<(&'static str, String)>);

fn lines(call: &CommandCall<'_>) -> Vec<Section> {
    let state = &call.state;
    let uptime = (state.now_micros - state.started_micros) / 1_000_000;
    let subscribers = state.pubsub.connections().filter(|(_, connection)| connection.is_subscriber()).count();
    let mut keyspace = Vec::new();
    if state.keys.len() > 0 {
        let (keys, expires) = (state.keys.len(), state.keys.volatile());
        keyspace.push(("db0", format!("keys={keys},expires={expires},avg_ttl=0")));
    }
    vec![
        (
            "Server",
            vec![
                ("redis_version", VERSION.to_owned()),
                ("redis_mode", "standalone".to_owned()),
                ("server_time_usec", state.now_micros.to_string()),
                ("uptime_in_seconds", uptime.to_string()),
                ("hz", "10".to_owned()),
            ],
        ),
        (
            "Clients",
            vec![
                ("connected_clients", state.pubsub.connections().count().to_string()),
                ("pubsub_clients", subscribers.to_string()),
            ],
        ),
        (
            "Memory",
            vec![
                ("used_memory", state.memory().to_string()),
                ("maxmemory", state.config.max_memory.to_string()),
                ("maxmemory_policy", state.config.get("maxmemory-policy").unwrap_or_default()),
            ],
        ),
        ("Persistence", vec![("loading", "0".to_owned()), ("aof_enabled", "0".to_owned())]),
        (
            "Stats",
            vec![
                ("total_commands_processed", state.commands.to_string()),
                ("expired_keys", state.expired.to_string()),
                ("evicted_keys", "0".to_owned()),
            ],
        ),
        ("Replication", vec![("role", "master".to_owned()), ("connected_slaves", "0".to_owned())]),
        ("Keyspace", keyspace),
    ]
}
