//! The commands of a connection: HELLO, AUTH, PING, ECHO, SELECT, RESET and QUIT.

use super::CommandCall;
use crate::number;
use crate::reply::{CommandResult, ErrorReply, RedisReply};
use crate::resp::Protocol;

/// The version of Redis whose behaviour this server has.
pub(super) const VERSION: &str = "7.0.15";

pub(super) fn hello(call: &mut CommandCall<'_>) -> CommandResult {
    let mut protocol = call.client.protocol;
    if let Some(version) = call.args.get(1) {
        protocol = match number::integer(version) {
            Some(2) => Protocol::Resp2,
            Some(3) => Protocol::Resp3,
            Some(_) => return Err(ErrorReply::of("NOPROTO unsupported protocol version")),
            None => return Err(ErrorReply::of("ERR Protocol version is not an integer or out of range")),
        };
        options(call)?;
    }
    if call.client.user.is_none() {
        return Err(ErrorReply::of(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> \
             AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol \
             version at the same time",
        ));
    }
    set_protocol(call, protocol);
    Ok(greeting(call))
}

fn options(call: &mut CommandCall<'_>) -> Result<(), ErrorReply> {
    let mut at = 2;
    while at < call.args.len() {
        let left = call.args.len() - at - 1;
        if call.is(at, "AUTH") && left >= 2 {
            log_in(call, at + 1)?;
            at += 3;
        } else if call.is(at, "SETNAME") && left >= 1 {
            call.client.name = super::client::name(call.arg(at + 1))?;
            at += 2;
        } else {
            let option = String::from_utf8_lossy(call.arg(at));
            return Err(format!("ERR Syntax error in HELLO option '{option}'").into());
        }
    }
    Ok(())
}

fn set_protocol(call: &mut CommandCall<'_>, protocol: Protocol) {
    call.client.protocol = protocol;
    if let Some(connection) = call.state.pubsub.connection_mut(call.client.id) {
        connection.protocol = protocol;
    }
}

fn greeting(call: &CommandCall<'_>) -> RedisReply {
    let proto = if call.client.protocol == Protocol::Resp3 { 3 } else { 2 };
    let id = i64::try_from(call.client.id).unwrap_or(i64::MAX);
    let fields = [
        ("server", RedisReply::bulk("redis")),
        ("version", RedisReply::bulk(VERSION)),
        ("proto", RedisReply::Int(proto)),
        ("id", RedisReply::Int(id)),
        ("mode", RedisReply::bulk("standalone")),
        ("role", RedisReply::bulk("master")),
        ("modules", RedisReply::Array(vec![])),
    ];
    RedisReply::Map(fields.into_iter().map(|(name, value)| (RedisReply::bulk(name), value)).collect())
}

/// Logs in with the user and password at this position.
fn log_in(call: &mut CommandCall<'_>, at: usize) -> Result<(), ErrorReply> {
    let user = String::from_utf8_lossy(call.arg(at)).into_owned();
    call.state.acl.authenticate(&user, call.arg(at + 1))?;
    if let Some(connection) = call.state.pubsub.connection_mut(call.client.id) {
        connection.user.clone_from(&user);
    }
    call.client.user = Some(user);
    Ok(())
}

pub(super) fn auth(call: &mut CommandCall<'_>) -> CommandResult {
    match call.args.len() {
        2 if call.state.acl.default_needs_no_password() => Err(ErrorReply::of(
            "ERR AUTH <password> called without any password configured for the default user. Are you sure \
             your configuration is correct?",
        )),
        2 => {
            call.state.acl.authenticate("default", call.arg(1))?;
            call.client.user = Some("default".to_owned());
            Ok(RedisReply::OK)
        }
        3 => log_in(call, 1).map(|()| RedisReply::OK),
        _ => Err(ErrorReply::SYNTAX),
    }
}

pub(super) fn ping(call: &mut CommandCall<'_>) -> CommandResult {
    if call.args.len() > 2 {
        return call.wrong_arity();
    }
    let word = call.args.get(1);
    // In RESP2 a subscribed client expects only messages, so the reply has the form of one.
    if call.client.protocol == Protocol::Resp2 && call.state.pubsub.is_subscriber(call.client.id) {
        let word = word.cloned().unwrap_or_default();
        return Ok(RedisReply::Array(vec![RedisReply::bulk("pong"), RedisReply::Bulk(word)]));
    }
    Ok(word.map_or(RedisReply::Status("PONG".into()), |word| RedisReply::Bulk(word.clone())))
}

pub(super) fn echo(call: &mut CommandCall<'_>) -> CommandResult {
    Ok(RedisReply::Bulk(call.arg(1).clone()))
}

/// Accepts only database 0, because there is no other.
pub(super) fn select(call: &mut CommandCall<'_>) -> CommandResult {
    match call.int(1)? {
        0 => Ok(RedisReply::OK),
        _ => Err(ErrorReply::of("ERR DB index is out of range")),
    }
}

pub(super) fn reset(call: &mut CommandCall<'_>) -> CommandResult {
    let id = call.client.id;
    call.state.pubsub.unsubscribe_all(id);
    call.state.watches.end(id);
    set_protocol(call, Protocol::Resp2);
    call.client.transaction = None;
    call.client.name.clear();
    call.client.user = call.state.acl.first_user();
    Ok(RedisReply::Status("RESET".into()))
}

pub(super) fn quit(call: &mut CommandCall<'_>) -> CommandResult {
    call.client.leaves = true;
    Ok(RedisReply::OK)
}
