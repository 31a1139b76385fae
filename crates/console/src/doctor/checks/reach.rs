//! Whether the server answers at all.

use keylapse_connection::cmd;

use crate::connection::classify::is_of_no_database;
use crate::connection::may_pass;
use crate::connection::probe::{NO_TLS, TLS};
use crate::error::{Error, ErrorKind};

use super::super::case::Case;
use super::super::codes;
use super::super::info::Info;
use super::super::patient::Asked;
use super::{database, url};

/// Whether it is worth asking further. One call of INFO, which is answered while data are loaded, too.
pub(super) async fn check(case: &mut Case) -> bool {
    let said = case.patient.server.seat().call("asking a server about itself", &cmd("INFO")).await;
    match said {
        Ok(said) => {
            case.info =
                Info::read(&keylapse_connection::from_redis_value::<String>(said).unwrap_or_default());
            true
        }
        Err(error) => is_no_matter(case, &error),
    }
}

fn is_no_matter(case: &mut Case, error: &Error) -> bool {
    let said = error.to_string();
    match error.kind() {
        ErrorKind::Auth => url::login(case, error),
        ErrorKind::Tls if said.contains(NO_TLS) => url::transport(case, false, error),
        ErrorKind::Tls if said.contains(TLS) => url::transport(case, true, error),
        _ if is_of_no_database(error) => url::database(case, error),
        // A replica that the primary has named: the primary itself was reached.
        _ if case.patient.is_known_replica() && may_pass(error) && case.patient.asked == Asked::Server => {
            case.say(&codes::REPLICA_UNSEEN, said);
        }
        _ if database::is_refused(error) => database::say(case, error),
        // Who may not ask for INFO, or not there, may do all the rest. The rights say so.
        ErrorKind::Permission | ErrorKind::Unsupported if matches!(error.code(), Some("NOPERM" | "ERR")) => {
            return true;
        }
        _ => case.say(&codes::UNREACHABLE, said),
    }
    false
}
