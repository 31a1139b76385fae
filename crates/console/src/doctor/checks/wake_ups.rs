//! Whether listeners could be told of new timers.

use keylapse_connection::cmd;

use crate::error::{Error, ErrorKind, Result};
use crate::inside::hearing::Earshot;

use super::super::case::{Case, answered};
use super::super::codes;
use super::super::refusal::{Need, Refusal};

pub(super) async fn check(case: &mut Case, earshot: &Earshot) -> Result<()> {
    let (channel, voice) = (case.patient.key("wake"), earshot.voice());
    if !earshot.is_ordered() {
        case.say(&codes::NO_SHARDED, "there is no RESP3, in which alone it is used");
        return Ok(());
    }
    let subscribe = cmd("SSUBSCRIBE").arg(&channel).clone();
    if let Err(error) = answered(voice.ask("SSUBSCRIBE", &subscribe).await)? {
        refused(case, "+ssubscribe +sunsubscribe", &error);
    }
    if case.takes_writes() {
        let publish = cmd("SPUBLISH").arg(&channel).arg("").clone();
        if let Err(error) = answered(voice.ask("SPUBLISH", &publish).await)? {
            refused(case, "+spublish", &error);
        }
    }
    Ok(())
}

/// Of a cluster, the channel's slot may be on its way: that says nothing.
fn refused(case: &mut Case, rule: &str, error: &Error) {
    match error.kind() {
        ErrorKind::Permission => {
            let rules = format!("{rule} '&{}:*'", case.patient.namespace);
            case.refusals.push(Refusal::new(Need::WakeUps, &rules, &error.to_string()));
        }
        ErrorKind::Unsupported if error.redirect().is_none() && !case.has_said(&[codes::NO_SHARDED]) => {
            case.say(&codes::NO_SHARDED, error.to_string());
        }
        _ => {}
    }
}
