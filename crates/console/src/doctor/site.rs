//! The machine that a server runs on, as far as advice depends on it.

use std::net::IpAddr;

use crate::connection::Endpoint;

use super::info::Info;

/// Where the server is, as seen from here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Site {
    /// On this machine.
    Here,
    /// In a container, on whichever machine.
    Container,
    /// On the machine of this name.
    Elsewhere(String),
}

impl Site {
    /// A server that is the first process of its machine runs in a container.
    pub(super) fn of(endpoint: &Endpoint, info: &Info) -> Self {
        match endpoint {
            _ if info.number("process_id") == Some(1) => Self::Container,
            Endpoint::Tcp { host, .. } if !is_here(endpoint) => Self::Elsewhere(host.clone()),
            _ => Self::Here,
        }
    }

    /// Ends a line that says what to install.
    pub(super) fn there(&self) -> String {
        match self {
            Self::Here => "on this machine".to_owned(),
            Self::Container => "in its container: start it from a newer image".to_owned(),
            Self::Elsewhere(host) => format!("on {host}"),
        }
    }

    /// Begins a line that is for the kernel of the server's machine; empty where that is this one.
    pub(super) fn prefix(&self) -> String {
        match self {
            Self::Here => String::new(),
            Self::Container => "on the machine that runs the container: ".to_owned(),
            Self::Elsewhere(host) => format!("on {host}: "),
        }
    }
}

/// Returns whether the way there stays within the machine. A name may lead anywhere.
pub(super) fn is_here(endpoint: &Endpoint) -> bool {
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

    #[test]
    fn a_server_that_is_the_first_process_is_in_a_container() {
        for (host, info, site) in [
            ("localhost", "process_id:7\r\n", Site::Here),
            ("localhost", "process_id:1\r\n", Site::Container),
            ("redis.shop", "process_id:1\r\n", Site::Container),
            ("redis.shop", "", Site::Elsewhere("redis.shop".to_owned())),
        ] {
            assert_eq!(Site::of(&Endpoint::read(host, 6379).unwrap(), &Info::read(info)), site, "{host}");
        }
    }
}
