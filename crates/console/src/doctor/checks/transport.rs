//! What is spoken on the way.

use super::super::case::Case;
use super::super::codes;
use super::super::site::is_here;

pub(super) fn check(case: &mut Case) {
    let address = case.patient.address();
    if !address.is_over_tls() && !address.has_streams() && !is_here(&address.endpoint()) {
        let url = case.patient.url(case.patient.kind(), true, &case.patient.path());
        case.say_with(&codes::NO_TLS, "plain TCP to an address that is not this machine's", &[("url", &url)]);
    }
}
