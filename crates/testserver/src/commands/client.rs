//! CLIENT.

use bytes::Bytes;

use super::Call;
use crate::reply::{Answer, Refusal, Reply};

pub(super) fn id(call: &mut Call<'_>) -> Answer {
    Ok(Reply::Int(i64::try_from(call.client.id).unwrap_or(i64::MAX)))
}

pub(super) fn getname(call: &mut Call<'_>) -> Answer {
    let name = call.client.name.clone();
    Ok(if name.is_empty() { Reply::Nil } else { Reply::Bulk(name) })
}

pub(super) fn setname(call: &mut Call<'_>) -> Answer {
    call.client.name = name(call.arg(2))?;
    Ok(Reply::OK)
}

/// A name without blanks.
pub(super) fn name(word: &Bytes) -> Result<Bytes, Refusal> {
    let fits = word.iter().all(|byte| (b'!'..=b'~').contains(byte));
    let text = "ERR Client names cannot contain spaces, newlines or special characters.";
    if fits { Ok(word.clone()) } else { Err(Refusal::of(text)) }
}

pub(super) fn setinfo(_: &mut Call<'_>) -> Answer {
    Ok(Reply::OK)
}

pub(super) fn no_evict(call: &mut Call<'_>) -> Answer {
    if call.is(2, "ON") || call.is(2, "OFF") { Ok(Reply::OK) } else { Err(Refusal::SYNTAX) }
}

/// By `TYPE` or by `ID`; how many connections end.
pub(super) fn kill(call: &mut Call<'_>) -> Answer {
    if call.args.len() == 3 {
        return Err(Refusal::of("ERR No such client"));
    }
    if !call.args.len().is_multiple_of(2) {
        return Err(Refusal::SYNTAX);
    }
    let mut victims: Vec<u64> = call.state.pubsub.lines().map(|(id, _)| id).collect();
    let mut spare_me = true;
    for at in (2..call.args.len()).step_by(2) {
        if call.is(at, "SKIPME") {
            spare_me = call.is(at + 1, "yes");
        } else if call.is(at, "ID") {
            let id = u64::try_from(call.int(at + 1)?).unwrap_or_default();
            victims.retain(|victim| *victim == id);
        } else if call.is(at, "TYPE") {
            let subscribers = kind(call, at + 1)?;
            victims.retain(|id| call.state.pubsub.is_subscriber(*id) == subscribers);
        } else {
            return Err(Refusal::SYNTAX);
        }
    }
    victims.retain(|id| !spare_me || *id != call.client.id);
    end(call, &victims)
}

/// Whether the type means those that have subscribed to something.
fn kind(call: &Call<'_>, at: usize) -> Result<bool, Refusal> {
    match () {
        () if call.is(at, "pubsub") => Ok(true),
        () if call.is(at, "normal") => Ok(false),
        () => Err(format!("ERR Unknown client type '{}'", String::from_utf8_lossy(call.arg(at))).into()),
    }
}

fn end(call: &mut Call<'_>, victims: &[u64]) -> Answer {
    for id in victims {
        if *id == call.client.id {
            call.client.leaves = true;
        } else if let Some(line) = call.state.pubsub.line_mut(*id) {
            line.outbox.close();
        }
    }
    Ok(Reply::count(victims.len()))
}
