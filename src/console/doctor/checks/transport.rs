//! What is spoken on the way.

use std::net::IpAddr;

use crate::connection::Endpoint;

use super::super::case::Case;
use super::super::codes;

pub(super) fn check(case: &mut Case) {
    let address = case.patient.address();
    if !address.is_over_tls() && !address.has_streams() && !is_here(&address.endpoint()) {
        case.say(&codes::NO_TLS, "plain TCP to an address that is not this machine's");
    }
}

/// Whether the way there leaves the machine. A name may lead anywhere.
fn is_here(endpoint: &Endpoint) -> bool {
    match endpoint {
        Endpoint::Unix(_) => true,
        Endpoint::Tcp { host, .. } => {
            host.eq_ignore_ascii_case("localhost")
                || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_and_sockets_are_here() {
        for (endpoint, here) in [
            ("127.0.0.1", true),
            ("127.8.8.8", true),
            ("[::1]", true),
            ("LocalHost", true),
            ("10.0.0.1", false),
            ("localhost.example.com", false),
            ("[2001:db8::1]", false),
        ] {
            assert_eq!(is_here(&Endpoint::read(endpoint, 6379).unwrap()), here, "{endpoint}");
        }
        assert!(is_here(&Endpoint::Unix("/run/redis.sock".into())));
    }
}
