//! Resolves the names of hosts. Connections are made only to the addresses that were checked here.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use url::Host;

use super::address::{Allowed, is_metadata};

/// A resolver that leaves out addresses which are not allowed. Connections use exactly its result: another lookup could
/// return other addresses.
pub(crate) struct FilteringResolver {
    pub(crate) resolver: Arc<dyn Resolve>,
    pub(crate) allowed: Allowed,
}

/// The resolver of the operating system.
#[derive(Debug)]
pub(crate) struct System;

impl Resolve for System {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let found: Vec<_> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

impl Resolve for FilteringResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let (allowed, host) = (self.allowed.clone(), name.as_str().to_owned());
        let resolving = self.resolver.resolve(name);
        Box::pin(async move {
            let found: Vec<SocketAddr> = resolving.await?.collect();
            let kept: Vec<_> = found.iter().copied().filter(|at| allowed.has(at.ip())).collect();
            match (found.first(), kept.is_empty()) {
                (Some(refused), true) => Err(refuse(&host, refused.ip()).into()),
                (None, _) => Err(format!("{host} has no address").into()),
                _ => Ok(Box::new(kept.into_iter()) as Addrs),
            }
        })
    }
}

/// Checks a host that is an address. The client does not pass these to the resolver.
pub(crate) fn check_literal(host: &Host, allowed: &Allowed) -> Result<(), String> {
    let address: IpAddr = match host {
        Host::Ipv4(address) => (*address).into(),
        Host::Ipv6(address) => (*address).into(),
        Host::Domain(_) => return Ok(()),
    };
    if allowed.has(address) { Ok(()) } else { Err(refuse(&address.to_string(), address)) }
}

fn refuse(host: &str, address: IpAddr) -> String {
    let (is, remedy) = if is_metadata(address) {
        ("gives cloud machines their credentials", "list the address by itself in")
    } else {
        ("is private to this machine or its network", "list it in")
    };
    format!("{host} is {address}, which {is}: {remedy} `allow-addresses`")
}
