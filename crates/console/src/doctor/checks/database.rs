//! The user and the database that the URL selects.

use keylapse_connection::cmd;

use crate::connection::classify::NO_DATABASE;
use crate::error::{Error, ErrorKind, Result};

use super::super::case::Case;
use super::super::codes;

/// Returns whether it is worth asking further: INFO is answered anywhere, and no command about a key is.
pub(super) async fn check(case: &mut Case) -> Result<bool> {
    let look = cmd("EXISTS").arg(case.patient.key("none")).clone();
    let refused = case.ask("looking for a key", &look).await?.err().filter(is_refused);
    if let Some(error) = &refused {
        say(case, error);
    }
    Ok(refused.is_none())
}

/// Returns whether an error says that.
pub(super) fn is_refused(error: &Error) -> bool {
    error.kind() == ErrorKind::Permission && error.to_string().contains(NO_DATABASE)
}

pub(super) fn say(case: &mut Case, error: &Error) {
    let db = case.patient.db.to_string();
    case.say_with(&codes::DATABASE_REFUSED, error.to_string(), &[("db", &db)]);
}
