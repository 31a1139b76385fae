//! Whether scripts run.

use keylapse_connection::cmd;

use crate::error::{ErrorKind, Result};
use crate::wire::scripts::PEEK;

use super::super::case::Case;
use super::super::codes;

/// With one of our own, over a key that does not exist: it writes nothing, and its flags are what older servers do not know. A replica's
/// scripts are its primary's.
pub(super) async fn check(case: &mut Case) -> Result<()> {
    if !case.takes_writes() {
        return Ok(());
    }
    let run = cmd("EVAL").arg(&PEEK.text).arg(1).arg(case.patient.key("none")).clone();
    match case.ask("running a script", &run).await? {
        // Refusals are found one by one, and what passes is none of the scripts'.
        Err(error) if matches!(error.kind(), ErrorKind::Permission | ErrorKind::Unavailable) => {}
        Err(error) => case.say(&codes::NO_LUA, error.to_string()),
        Ok(_) => {}
    }
    Ok(())
}
